"""End what the ledger holds and the provider no longer has: a machine deleted by hand, a spot machine taken back.

Invariant: a list is a suspicion. Only absence by id and by marker, from calls that succeeded, ends anything; and even
then nothing is written as gone but a network of its own: `release` proves a machine's absence once more.
"""

from dataclasses import replace
from datetime import datetime

from gpulease.domain.cache import is_usable
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.observation import Absent, Observation
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.release import absent_once_more, released
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.domain.sweep import Missing
from gpulease.domain.transitions import cancel, event, reopen, to_release
from gpulease.errors import LeaseNotFound
from gpulease.ports import Deps, Provider
from gpulease.steps.base import ref_of
from gpulease.steps.cache import lost_cache
from gpulease.steps.facts import adopt
from gpulease.steps.starting import start_release

IN_A_WORKFLOWS_HANDS = frozenset(
    {LeaseState.REQUESTED, LeaseState.PROVISIONING, LeaseState.PAUSING, LeaseState.RESUMING}
)
"""A workflow watches the machine itself and knows what follows; should it be dead, `check_leases` starts it again."""


def lose(deps: Deps, provider: Provider, missing: Missing) -> str:
    """What became of it: "lost", "present" (it exists after all), or "left" (nobody's business by now)."""
    record = deps.ledger.load(missing.lease_id)
    resource = record.resource(missing.resource_id)
    if resource is None or resource.state is not ResourceState.HELD or record.lease.state in IN_A_WORKFLOWS_HANDS:
        return "left"
    if _exists(deps, provider, resource):
        return "present"
    since = f"missing since {missing.first_at:%H:%M} UTC"
    if resource.kind is ResourceKind.VOLUME and is_usable(record.lease):
        _end_cache(deps, record, resource, since)
    elif resource.kind is ResourceKind.INSTANCE or record.lease.state in (LeaseState.RELEASING, LeaseState.RELEASED):
        end(deps, record, resource, since, _why(provider, resource))
    else:
        _go_without(deps, record, resource, since)
    deps.log.warning(
        "resource_lost",
        lease_id=record.lease.id,
        resource_id=resource.id,
        provider=resource.provider,
        region=resource.region,
        provider_id=resource.provider_id,
    )
    return "lost"


def _exists(deps: Deps, provider: Provider, resource: Resource) -> bool:
    """By id, and by marker. Raises ProviderError where that could not be read."""
    if isinstance(provider.observe(ref_of(resource)), Observation):
        return True
    found = provider.find(ref_of(resource))
    others = [seen for seen in found if seen.provider_id != resource.provider_id]
    if others:
        adopt(deps, resource, others)
    return len(found) > len(others)


def _why(provider: Provider, resource: Resource) -> str:
    """The provider's own reason, as a value of `lease.Reason`, as long as it shows what has ended; empty = not told."""
    seen = provider.observe(ref_of(resource))
    return seen.reason if isinstance(seen, Absent) else ""


def end(deps: Deps, record: LeaseRecord, machine: Resource, since: str, why: str = "") -> None:
    """The machine was read as gone, by id and by marker: its lease ends, and giving back proves it once more.

    `why`: the provider's reason. Without one (AWS forgets it after an hour) nobody knows whether a spot machine was
    taken back or deleted by hand, and neither is claimed: it is `lost`.
    """
    lease, now = record.lease, deps.clock.now()
    what = f"{machine.kind} {machine.provider_id} is gone at {machine.provider}/{machine.region}, {since}"
    offer = next((a.offer for a in lease.attempts if a.number == machine.attempt), None)
    spot = offer is not None and offer.spot
    taken = spot and why == Reason.INTERRUPTED
    reason = Reason.INTERRUPTED if taken else Reason.LOST
    words = "it was ended outside of gpulease"
    if taken:
        words = "the provider took the spot machine back"
    elif spot and not why:
        words = "the provider no longer says whether it took the spot machine back or somebody ended it"
    detail = f"{what}: {words}"
    told = event(lease.id, now, "resource_lost", detail, "error", **_facts(machine, reason))
    if lease.state is LeaseState.RELEASED:
        change = reopen(record, machine, now=now)
    elif lease.state is LeaseState.RELEASING:
        change = Change(lease_id=lease.id, resources=(to_release(machine, now),), epoch=lease.epoch)
    else:
        change = cancel(record, now=now, reason=reason, detail=detail)
    marked = tuple(_absent_once(each, now) if each.id == machine.id else each for each in change.resources)
    deps.ledger.commit(replace(change, resources=marked, events=(told, *change.events)))
    start_release(deps.ledger.load(lease.id), deps)


def _end_cache(deps: Deps, record: LeaseRecord, volume: Resource, since: str) -> None:
    """A cache without its volume ends. The machine that used it goes on and is told; nothing else is touched."""
    lease, now = record.lease, deps.clock.now()
    change = lost_cache(record, volume, since, deps)
    warning = f"cache {lease.name} is lost: its volume {volume.provider_id} was deleted outside of gpulease ({since})"
    for member in lease.members:
        _warn(deps, member.partition(".")[0], warning, volume)
    told = event(lease.id, now, "resource_lost", warning, "error", **_facts(volume, Reason.LOST))
    marked = tuple(_absent_once(each, now) if each.id == volume.id else each for each in change.resources)
    deps.ledger.commit(replace(change, resources=marked, events=(told, *change.events)))
    start_release(deps.ledger.load(lease.id), deps)


def _absent_once(machine: Resource, now: datetime) -> Resource:
    """With the absence that was just read: giving back then begins with a look, and sends no delete to what is gone."""
    if machine.release is None:
        return machine
    return machine.model_copy(update={"release": absent_once_more(machine.release, now)})


def _go_without(deps: Deps, record: LeaseRecord, resource: Resource, since: str) -> None:
    """A network (or the like) is gone and the machine is not: the lease goes on and says so."""
    lease, now = record.lease, deps.clock.now()
    warning = f"{resource.kind} {resource.provider_id} was deleted outside of gpulease ({since})"
    told = event(lease.id, now, "resource_lost", warning, "warning", **_facts(resource, Reason.LOST))
    warned = lease.model_copy(update={"warnings": tuple(dict.fromkeys((*lease.warnings, warning))), "updated_at": now})
    gone = released(resource, now, "lost")
    for member in lease.members:
        _warn(deps, member.partition(".")[0], warning, resource)
    deps.ledger.commit(Change(lease_id=lease.id, lease=warned, resources=(gone,), events=(told,), epoch=lease.epoch))


def _warn(deps: Deps, lease_id: str, warning: str, resource: Resource) -> None:
    """Tell a lease whose machine shares the network. Before the network is closed, so that nobody is left out."""
    try:
        lease = deps.ledger.load(lease_id).lease
    except LeaseNotFound:
        return
    if warning in lease.warnings or lease.state in (LeaseState.RELEASING, LeaseState.RELEASED):
        return
    now = deps.clock.now()
    warned = lease.model_copy(update={"warnings": (*lease.warnings, warning), "updated_at": now})
    told = event(lease.id, now, "resource_lost", warning, "warning", **_facts(resource, Reason.LOST))
    deps.ledger.commit(Change(lease_id=lease.id, lease=warned, events=(told,), epoch=lease.epoch))


def _facts(resource: Resource, reason: Reason) -> dict[str, str]:
    return {
        "provider": resource.provider,
        "region": resource.region,
        "resource_id": resource.id,
        "provider_id": resource.provider_id,
        "reason": reason.value,
    }
