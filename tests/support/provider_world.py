"""What the provider contract needs from a simulated provider, and the same for Vultr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from gpulease.domain.offer import Offer, PlanKind
from gpulease.ports import InstanceRequest, Provider, Ref
from gpulease.providers.http import Transport
from gpulease.providers.registry import build
from gpulease_local.sim_transport import SimTransport
from gpulease_sim.vultr.cloud import VultrCloud
from gpulease_sim.vultr.faults import Fault, lost_answer
from gpulease_sim.vultr.server import serve
from gpulease_sim.vultr.settings import Settings

KEY = "SECRETKEY0123456789ABCDEFGHIJ"
DEPLOYMENT = "dep1"
START = 1_790_000_000.0


class ManualClock:
    """Moves only when told to."""

    def __init__(self) -> None:
        self.seconds = START

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def __call__(self) -> float:
        return self.seconds


class OneKey:
    """A secret store with a key and, after a rotation, another one behind the cache."""

    def __init__(self, key: str = KEY) -> None:
        self.cached = key
        self.stored = key
        self.fresh_reads = 0

    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        if fresh:
            self.fresh_reads += 1
            self.cached = self.stored
        return self.cached


@dataclass
class Lines:
    """A log that keeps what it is told."""

    lines: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)

    def info(self, event: str, **facts: object) -> None:
        self.lines.append(("info", event, facts))

    def warning(self, event: str, **facts: object) -> None:
        self.lines.append(("warning", event, facts))

    def error(self, event: str, **facts: object) -> None:
        self.lines.append(("error", event, facts))


class World(Protocol):
    """A provider with somebody who can make it misbehave."""

    provider: Provider
    tells_stock: bool
    """Whether it says beforehand what is sold out."""
    names_refusals: bool
    """Whether refusals have codes, so that other words change nothing."""
    refuses_early_destroy: bool
    """Whether a machine that just started cannot be destroyed yet."""

    def advance(self, seconds: float) -> None: ...
    def offer(self, kind: PlanKind) -> Offer: ...
    def creates_seen(self) -> int:
        """Create calls for machines that reached the provider."""
        ...

    def machines_made(self) -> int: ...
    def volumes_made(self) -> int:
        """Volumes asked for as such; disks that come with machines do not count."""
        ...

    def elsewhere(self, offer: Offer) -> tuple[str, str]:
        """Region and zone where volumes are sold and from where a machine of this offer can have none."""
        ...

    def reach_volume_limit(self) -> None: ...
    def lose_next_create_answer(self) -> None: ...
    def break_reads(self, body: str, status: int, *, html: bool = False) -> None:
        """From now on every read is answered so."""
        ...

    def refuse_key(self) -> None: ...
    def heal(self) -> None: ...
    def reword(self) -> None: ...
    def sell_out(self, offer: Offer) -> None: ...
    def reach_limit(self) -> None: ...
    def remove_by_hand(self, provider_id: str) -> None: ...
    def hide_from_lists(self, seconds: float) -> None:
        """New machines stay out of lists for so long."""
        ...


class VultrWorld:
    """`World` on the simulated Vultr. Pauses between tries are noted and not waited for."""

    tells_stock = True
    names_refusals = False
    refuses_early_destroy = True

    def __init__(self, transport: Callable[[VultrCloud], Transport] = SimTransport, base_url: str = "") -> None:
        self.clock = ManualClock()
        self.cloud = VultrCloud(self.clock, settings=Settings(requests_per_second=None))
        self.secrets = OneKey()
        self.log = Lines()
        self.slept: list[float] = []
        self.provider = self.connect(transport(self.cloud), base_url)

    def connect(self, transport: Transport, base_url: str = "") -> Provider:
        return build(
            "vultr",
            "vultr",
            transport,
            self.secrets,
            clock=self.clock,
            log=self.log,
            sleep=self.slept.append,
            base_url=base_url,
        )

    def advance(self, seconds: float) -> None:
        self.clock.seconds += seconds

    def offer(self, kind: PlanKind) -> Offer:
        plan, region = {
            PlanKind.VM: ("vcg-a16-2c-8g-2vram", "ewr"),
            PlanKind.BARE_METAL: ("vbm-48c-1024gb-4-a100-gpu", "ewr"),
        }[kind]
        return next(each for each in self.provider.offers() if each.plan == plan and each.region == region)

    def creates_seen(self) -> int:
        return sum(c.method == "POST" and c.path in ("/instances", "/bare-metals") for c in self.cloud.calls)

    def machines_made(self) -> int:
        return sum(each.kind in ("instance", "bare_metal") for each in self.cloud.book_objects())

    def volumes_made(self) -> int:
        return sum(each.kind == "block" for each in self.cloud.book_objects())

    def elsewhere(self, offer: Offer) -> tuple[str, str]:
        return next(region for region in ("ord", "ewr") if region != offer.region), ""

    def reach_volume_limit(self) -> None:
        self._set(block_limit=0)

    def lose_next_create_answer(self) -> None:
        self.cloud.faults.add(lost_answer("POST", "/(instances|bare-metals|vpcs|blocks)"))

    def break_reads(self, body: str, status: int, *, html: bool = False) -> None:
        if status == 200:
            self.cloud.faults.add(Fault(method="GET", execute=False, body=body))
        else:
            self.cloud.faults.add(Fault(method="GET", execute=False, status=status, error=body, html=html))

    def refuse_key(self) -> None:
        self._set(api_keys=frozenset({"another"}))

    def heal(self) -> None:
        self.cloud.faults.clear()
        self._set(api_keys=None)

    def reword(self) -> None:
        self._set(reworded=True)

    def sell_out(self, offer: Offer) -> None:
        self._set(capacity={f"{offer.region}/{offer.plan}": 0})

    def reach_limit(self) -> None:
        self._set(instance_limit=0)

    def remove_by_hand(self, provider_id: str) -> None:
        self.cloud.remove_by_hand(provider_id)

    def hide_from_lists(self, seconds: float) -> None:
        settings = self.cloud.settings
        self.cloud.settings = replace(
            settings,
            vm=replace(settings.vm, list_lag_seconds=(seconds, seconds)),
            metal=replace(settings.metal, list_lag_seconds=(seconds, seconds)),
        )

    def _set(self, **changes: object) -> None:
        self.cloud.settings = replace(self.cloud.settings, **changes)  # type: ignore[arg-type]


@contextmanager
def vultr_over_http(transport: Transport) -> Iterator[VultrWorld]:
    """The same world behind a real socket on loopback."""
    world = VultrWorld()
    with serve(world.cloud) as server:
        world.provider = world.connect(transport, f"{server.url}/v2")
        yield world


def request(offer: Offer, marker: str, **changes: object) -> InstanceRequest:
    """A create request as the step would make it."""
    made = InstanceRequest(offer=offer, marker=marker, label="my-lease", user_data=b"#cloud-config\n{}\n")
    return replace(made, **changes)  # type: ignore[arg-type]


def ref_of(seen: object, *, by_marker: bool = False) -> Ref:
    """The Ref of an observation; without its id when `by_marker`."""
    from gpulease.domain.observation import Observation

    assert isinstance(seen, Observation)
    provider_id = "" if by_marker else seen.provider_id
    return Ref(seen.kind, seen.region, seen.marker, provider_id, seen.subkind, seen.zone)
