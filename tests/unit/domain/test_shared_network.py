"""Who uses a shared network, as pure rules."""

from datetime import timedelta

import pytest
from gpulease.domain.lease import Attachment, Attempt, LeaseKind, LeaseState, Reason
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceKind, ResourceState
from gpulease.domain.shared_network import (
    Place,
    holder_id,
    holder_owner,
    member_uses_network,
    new_holder,
    shared_network,
    uses_network,
    without_members,
)

from tests.support.ledger_samples import NOW, a_lease, a_resource, an_offer, at

PLACE = Place("ada", "vultr", "ewr")
HOLDER = holder_id(PLACE, 1)
HELD, RELEASING, RELEASED = ResourceState.HELD, ResourceState.RELEASING, ResourceState.RELEASED


def a_record(*machines: ResourceState, attachment: Attachment | None = None, **attempt: object) -> LeaseRecord:
    """A lease whose first attempt wants the shared network, with machines in these states."""
    tried = Attempt(number=1, offer=an_offer(), started_at=NOW, ready_deadline=at(600)).model_copy(
        update={"attachment": attachment or Attachment(holder_id=HOLDER), **attempt}
    )
    lease = a_lease(state=LeaseState.PROVISIONING, attempts=(tried,))
    ids = ("l-aaaaaaaaaaaa.instance.1", "l-aaaaaaaaaaaa.instance.1.x1")
    return LeaseRecord(lease, tuple(a_resource(id=i, state=s) for i, s in zip(ids, machines, strict=False)))


@pytest.mark.parametrize(
    ("record", "uses"),
    [
        (a_record(), True),
        (a_record(reason=Reason.NO_CAPACITY), False),
        (a_record(ended_at=NOW), False),
        (a_record(ResourceState.INTENDED), True),
        (a_record(HELD), True),
        (a_record(RELEASING, ended_at=NOW), True),
        (a_record(RELEASED, ended_at=NOW), False),
        (a_record(RELEASED, RELEASING, ended_at=NOW), True),
        (a_record(HELD, attachment=Attachment()), False),
        (a_record(HELD, attachment=Attachment(holder_id=HOLDER, dropped=True)), False),
        (a_record(HELD, attachment=Attachment(holder_id=HOLDER, dropped=True, ever_accepted=True)), True),
        (a_record(HELD, attachment=Attachment(holder_id=HOLDER, dropped=True, passed=True)), True),
        (a_record(RELEASED, attachment=Attachment(holder_id=HOLDER, dropped=True, passed=True)), False),
    ],
)
def test_a_machine_uses_its_network_until_it_is_gone_or_cannot_be_in_it(record: LeaseRecord, uses: bool) -> None:
    member = "l-aaaaaaaaaaaa.instance.1"

    assert uses_network(record, record.lease.attempts[0]) is uses
    assert member_uses_network(record, HOLDER, member) is uses
    assert not member_uses_network(record, holder_id(PLACE, 2), member)
    assert not member_uses_network(record, HOLDER, "l-aaaaaaaaaaaa.instance.2")


def test_a_lease_that_is_ended_before_it_has_a_machine_needs_no_network() -> None:
    record = a_record()
    ended = LeaseRecord(record.lease.model_copy(update={"state": LeaseState.RELEASING}))

    assert not uses_network(ended, record.lease.attempts[0])


def test_ids_of_holders_differ_by_owner_account_region_and_generation() -> None:
    places = [PLACE, Place("bob", "vultr", "ewr"), Place("ada", "vultr-2", "ewr"), Place("ada", "vultr", "ams")]
    # Parts must not run into one another.
    places += [Place("ada", "vultrewr", ""), Place("adavultr", "", "ewr")]
    ids = {holder_id(place, generation) for place in places for generation in (1, 2)}

    assert len(ids) == 12
    assert all(each.startswith("n-") and len(each) == 14 for each in ids)
    assert len({holder_owner(place) for place in places}) == 6


def test_the_last_member_takes_the_network_along_and_no_other_does() -> None:
    lease, _ = new_holder(PLACE, 1, "l-a.instance.1", NOW)
    lease = lease.model_copy(update={"members": ("l-a.instance.1", "l-b.instance.1"), "version": 2})
    network = a_resource(lease.id, id=f"{lease.id}.network.1", kind=ResourceKind.NETWORK, state=HELD)
    record = LeaseRecord(lease, (network,))
    later = NOW + timedelta(hours=1)

    one = without_members(record, frozenset({"l-a.instance.1"}), later)
    assert one.lease is not None
    assert (one.lease.members, one.lease.state, one.resources) == (("l-b.instance.1",), LeaseState.RUNNING, ())

    last = without_members(record, frozenset(lease.members), later)
    assert last.lease is not None
    assert (last.lease.members, last.lease.state, last.lease.epoch) == ((), LeaseState.RELEASING, 2)
    assert (last.lease.kind, last.lease.reason) == (LeaseKind.NETWORK, Reason.UNUSED)
    assert [each.state for each in last.resources] == [RELEASING]


def test_a_network_on_its_way_out_is_not_the_one_to_join() -> None:
    lease, _ = new_holder(PLACE, 1, "l-a.instance.1", NOW)
    old = a_resource(lease.id, id=f"{lease.id}.network.1", kind=ResourceKind.NETWORK, state=RELEASED)
    twin = a_resource(lease.id, id=f"{lease.id}.network.2.x1", kind=ResourceKind.NETWORK, state=RELEASING)
    new = a_resource(lease.id, id=f"{lease.id}.network.2", kind=ResourceKind.NETWORK, state=HELD)

    assert shared_network(LeaseRecord(lease, (old, new, twin))) == new
    assert shared_network(LeaseRecord(lease, (old, twin))) is None
