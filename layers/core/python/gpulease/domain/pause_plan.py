"""What a pause would do and cost, for people, before it happens (law 11)."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpulease.domain.lease import PauseMode


@dataclass(frozen=True, slots=True)
class BilledPart:
    """Something that is billed while a lease is paused."""

    what: str
    usd_per_hour: Decimal


@dataclass(frozen=True, slots=True)
class PausePlan:
    """`mode` None: a pause would keep nothing, so it is refused."""

    mode: PauseMode | None
    running_usd_per_hour: Decimal
    parts: tuple[BilledPart, ...]
    """Billed while it is paused."""
    text: str

    @property
    def paused_usd_per_hour(self) -> Decimal:
        return sum((part.usd_per_hour for part in self.parts), Decimal(0))


def plan_pause(
    mode: PauseMode | None,
    *,
    provider: str,
    running: Decimal,
    stopped: Decimal,
    cache: BilledPart | None,
    networks: Sequence[BilledPart] = (),
    spot: bool = False,
) -> PausePlan:
    """`running`, `stopped`: US dollars per hour of the machine. `cache`: where the lease has one."""
    why = no_stop(provider, spot=spot)
    if mode is PauseMode.STOP:
        parts = (BilledPart("disk of the stopped machine", stopped), *([cache] if cache else ()), *networks)
        doing = "the machine is stopped and kept with its root disk; what is on host disks (instance store) is lost"
    elif mode is PauseMode.KEEP_CACHE:
        parts = (cache,) if cache else ()
        doing = (
            f"{why}: the machine is given back, and everything on it but the "
            "cache is lost; a resume takes a new machine"
        )
    else:
        parts = ()
        doing = f"{why} and this lease has no cache: a pause would keep nothing; `gpulease down` gives the machine back"
    costs = running + (cache.usd_per_hour if cache else Decimal(0))
    plan = PausePlan(mode, costs, parts, "")
    prices = f"running {per_hour(costs)}, paused {per_hour(plan.paused_usd_per_hour)}"
    return PausePlan(mode, costs, parts, f"{doing} ({prices})" if mode else doing)


def no_stop(provider: str, *, spot: bool) -> str:
    """Why a machine is not stopped there."""
    return f"{provider} does not stop spot machines" if spot else f"{provider} bills a stopped machine in full"


def per_hour(price: Decimal) -> str:
    """`$1.850/h`."""
    return f"${price:.3f}/h"
