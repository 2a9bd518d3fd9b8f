"""The simulated Vultr account as simulations see it: see `clouds.py`."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from gpulease.domain.resource import marker_for
from gpulease_sim.vultr import VultrCloud, outage
from gpulease_sim.vultr.book import Entry, cost_of

from gpulease_local.simulate.clouds import MACHINE, NETWORK, OTHER, VOLUME, Spans, Thing, markers_of

REGIONS = ("ewr", "ord", "lax", "atl", "dfw", "sea", "mia")
ROLES = {"instance": MACHINE, "bare_metal": MACHINE, "vpc": NETWORK, "block": VOLUME}
STRANGER = "l-aaaaaaaaaaaa.instance.1"
_OS = 1743
_HERE = ("ord", "vcg-a16-2c-8g-2vram")
_ADDRESS = "198.51.100.7"
_TRIES = 20
"""An account without room refuses by chance; strangers keep asking."""
_HEADERS = {"Authorization": "Bearer somebody", "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class _Source:
    """Vultr bills by the started hour from create to end, stopped or not."""

    entry: Entry

    def destroyed_from(self) -> float:
        return self.entry.destroyed_from

    def is_billed(self, now: float) -> bool:
        return self.entry.created <= now < self.entry.destroyed_from

    def spans(self, now: float) -> Spans:
        end = self.entry.destroyed_from
        return ((self.entry.created, end if end <= now else None),)

    def cost_usd(self, now: float) -> Decimal:
        return cost_of(self.entry, now)

    def usd_per_hour(self) -> Decimal:
        return max(rate for _, rate, _ in self.entry.rates)


class VultrSide:
    """`clouds.Cloud` of a simulated Vultr account."""

    name = "vultr"
    regions = REGIONS

    def __init__(self, cloud: VultrCloud) -> None:
        self._cloud = cloud
        self._known = 0

    # --- the book ---

    def things(self) -> list[Thing]:
        now = self._cloud.now()
        return [_thing(entry) for entry in self._cloud.book if entry.created <= now]

    def fresh(self) -> Sequence[Thing]:
        entries = list(self._cloud.book)
        made = entries[self._known :] if len(entries) >= self._known else entries
        self._known = len(entries)
        return [_thing(entry) for entry in made]

    def find(self, thing_id: str) -> Thing | None:
        entry = self._cloud.book.find(thing_id)
        return _thing(entry) if entry is not None else None

    def log_lines(self) -> Iterable[str]:
        for each in self._cloud.book.objects():
            yield f"{each.id} {each.created} {each.destroyed} {each.cost_usd}\n"

    def calls(self) -> int:
        return self._cloud.calls_total

    # --- who has what ---

    def members(self, network_id: str) -> list[str]:
        now = self._cloud.now()
        return [
            machine.id
            for machine in self._cloud.account.machines.values()
            if not machine.is_gone(now) and any(a.vpc_id == network_id and a.shows(now) for a in machine.attachments)
        ]

    def user_of(self, volume_id: str) -> str:
        now = self._cloud.now()
        block = self._cloud.account.blocks.get(volume_id)
        hold = block.hold(now) if block is not None else None
        machine = self._cloud.account.machines.get(hold.instance_id) if hold is not None else None
        return machine.id if machine is not None and not machine.is_gone(now) else ""

    def ready_at(self, machine_id: str) -> float | None:
        machine = self._cloud.account.machines.get(machine_id)
        if machine is None:
            return None
        return math.inf if machine.active_at() == math.inf else machine.ssh_at

    def ended_for(self, machine_id: str) -> str:
        machine = self._cloud.account.machines.get(machine_id)
        suspended = machine is not None and machine.moment(self._cloud.now()).status == "suspended"
        return "boot_failed" if suspended else ""

    # --- what others do ---

    def remove_by_hand(self, thing_id: str) -> None:
        self._cloud.remove_by_hand(thing_id)

    def darken(self, since: float, until: float, region: str) -> None:
        kept = [f for f in self._cloud.faults.faults() if (f.until_seconds or since + 1) > since]
        self._cloud.replace_faults([*kept, outage(since, until, region=region, timeout_seconds=30.0)])

    def reword(self, reworded: bool) -> None:
        self._cloud.settings = replace(self._cloud.settings, reworded=reworded)

    def strangers(self, deployment: str) -> list[str]:
        ours = marker_for(deployment, "")
        tags: tuple[list[str], ...] = (
            ["production"],
            [],
            [marker_for("otherplace0", STRANGER)],
            [ours.rstrip(":")],
            [ours.rstrip(":") + "x:" + STRANGER],
            [(ours + STRANGER).upper()],
            ["x" + ours + STRANGER],
        )
        made = [self._machine(_HERE, "gpulease", each) for each in tags]
        network = {"region": "ewr", "description": marker_for("otherplace0", STRANGER)}
        return [*made, self._create("/vpcs", network)]

    def plant(self, like: Thing, marker: str) -> str:
        return self._machine((like.region, like.plan), "x", [marker])

    def _machine(self, place: tuple[str, str], label: str, tags: list[str]) -> str:
        body = {"region": place[0], "plan": place[1], "os_id": _OS, "label": label, "tags": tags}
        return self._create("/instances", body)

    def _create(self, path: str, body: Mapping[str, object]) -> str:
        # Whoever puts it there is not kept out by an outage that is meant for us.
        kept = self._cloud.faults.faults()
        self._cloud.replace_faults([])
        try:
            for _ in range(_TRIES):
                answer = self._cloud.handle("POST", f"/v2{path}", {}, _HEADERS, json.dumps(body).encode(), _ADDRESS)
                if answer.status < 300:
                    return str(next(iter(answer.json().values()))["id"])
        finally:
            self._cloud.replace_faults(kept)
        raise RuntimeError(f"{path} is refused for good: {answer.status} {answer.body!r}")


def _thing(entry: Entry) -> Thing:
    return Thing(
        provider="vultr",
        kind=entry.kind,
        role=ROLES.get(entry.kind, OTHER),
        id=entry.id,
        region=entry.region,
        plan=entry.plan or "",
        markers=markers_of((*entry.tags, entry.label)),
        created=entry.created,
        source=_Source(entry),
    )
