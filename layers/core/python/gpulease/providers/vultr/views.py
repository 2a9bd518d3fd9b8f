"""Vultr's state words as conditions.

A VM's three state fields do not move together: `active` has been seen while it was powered off and locked (public
measurement, June 2026). So a VM is ready only when all of them say so and it has an address.
"""

from dataclasses import dataclass

from gpulease.domain.observation import Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import ResourceKind
from gpulease.ports import Ref
from gpulease.providers.vultr.models import NO_ADDRESSES, Block, Machine, Vpc

MARKER_PREFIX = "gpulease:"
KEEP_TAG = "gpulease:keep"
"""On a machine: the sweep leaves it alone, also when nobody owns it. VPCs have no tags, so there is none for them."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where one sort of machine lives in the API."""

    kind: PlanKind
    path: str
    one: tuple[str, ...]
    """Key of a single machine in a reply; for bare metal the reference and the wire differ."""
    many: str
    filters: bool
    """Whether its list can be filtered."""


VMS = Route(PlanKind.VM, "/instances", ("instance",), "instances", filters=True)
METALS = Route(PlanKind.BARE_METAL, "/bare-metals", ("bare_metal", "baremetal"), "bare_metals", filters=False)


def condition_of(machine: Machine, route: Route) -> Condition:
    """What the state words come to."""
    status, power, server = machine.status, machine.power_status, machine.server_status
    if "destr" in status or "destr" in server:
        return Condition.DELETING
    if status == "suspended":
        return Condition.FAILED
    has_address = machine.main_ip not in NO_ADDRESSES
    if route is METALS:
        return Condition.READY if status == "active" and has_address else Condition.PENDING
    if status == "active" and server == "ok":
        if power == "stopped":
            return Condition.STOPPED
        if power == "running" and has_address:
            return Condition.READY
    return Condition.PENDING


def observed_machine(machine: Machine, route: Route, marker: str = "", note: str = "") -> Observation:
    """A machine of a reply. `marker` is the one looked for; without it the first of ours that it carries."""
    ours = marker if marker in machine.tags else next(filter(_is_marker, machine.tags), "")
    words = [machine.status]
    if route is VMS:
        words += [machine.power_status or "-", machine.server_status or "-"]
    return Observation(
        kind=ResourceKind.INSTANCE,
        provider_id=machine.id.lower(),
        region=machine.region.lower(),
        marker=ours,
        condition=condition_of(machine, route),
        words="/".join(words) + (f" ({note})" if note else ""),
        subkind=route.kind.value,
        plan=machine.plan,
        address="" if machine.main_ip in NO_ADDRESSES else machine.main_ip,
        created_at=machine.date_created,
        network_ids=tuple(vpc.id.lower() for vpc in machine.vpcs or () if vpc.has_address),
        exempt=KEEP_TAG in machine.tags,
    )


def _is_marker(tag: str) -> bool:
    return tag.startswith(MARKER_PREFIX) and tag != KEEP_TAG


def observed_vpc(vpc: Vpc) -> Observation:
    """A VPC of a reply; it has no states. Its description is its marker."""
    return Observation(
        kind=ResourceKind.NETWORK,
        provider_id=vpc.id.lower(),
        region=vpc.region.lower(),
        marker=vpc.description,
        condition=Condition.READY,
        words="exists",
        created_at=vpc.date_created,
    )


def observed_block(block: Block, note: str = "") -> Observation:
    """A block of a reply. Its label is its marker; what it is attached to shows late, in both directions."""
    status, holder = block.status, block.attached_to_instance.lower()
    condition = {"active": Condition.READY, "suspended": Condition.FAILED}.get(status, Condition.PENDING)
    if "destr" in status:
        condition = Condition.DELETING
    return Observation(
        kind=ResourceKind.VOLUME,
        provider_id=block.id.lower(),
        region=block.region.lower(),
        marker=block.label,
        condition=condition,
        words=status + (f" ({note})" if note else ""),
        created_at=block.date_created,
        attached_to=holder,
        attached=bool(holder),
        size_gb=block.size_gb,
    )


def going(ref: Ref, route: Route, words: str) -> Observation:
    """The API answers an error about a machine that is being deleted; it exists and costs until it is gone."""
    return Observation(
        kind=ResourceKind.INSTANCE,
        provider_id=ref.provider_id.lower(),
        region=ref.region,
        marker=ref.marker,
        condition=Condition.DELETING,
        words=words,
        subkind=route.kind.value,
    )
