"""Giving leases back over HTTP."""

from decimal import Decimal

import pytest
from gpulease.api.views import money
from gpulease.domain.agent import AgentRecord
from gpulease.domain.event import Event
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import Change, LeaseRecord
from gpulease.errors import LeaseConflict, LedgerUnavailable
from gpulease.ledger.sqlite import SqliteLedger

from tests.support.api_events import Client
from tests.support.api_world import START, World, running_lease

A100 = {"gpu": ["A100"]}


def test_a_lease_that_is_given_back_is_shown_as_billed_until_that_is_proven(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)

    answer = client.delete(f"/v1/leases/{lease_id}")

    assert answer.status == 202
    assert answer.json["state"] == "releasing" and answer.json["reason"] == "user" and answer.json["epoch"] == 2
    assert answer.json["ssh"] is None
    assert [(r["state"], r["billed"]) for r in answer.json["resources"]] == [("releasing", True)]
    assert world.workflows.started[-1] == ("release", f"{lease_id}-release-2", lease_id, 2)


def test_giving_back_twice_answers_the_same_view(world: World, client: Client) -> None:
    lease_id = client.post(A100).json["id"]

    first, second = (client.delete(f"/v1/leases/{lease_id}") for _ in range(2))

    assert first.status == second.status == 202 and first.json == second.json
    assert len(client.get(f"/v1/leases/{lease_id}/events").json["events"]) == 2


def test_giving_back_a_released_lease_changes_nothing(world: World, client: Client) -> None:
    lease_id = client.post(A100).json["id"]
    client.delete(f"/v1/leases/{lease_id}")
    lease = world.ledger.load(lease_id).lease
    gone = lease.model_copy(update={"state": LeaseState.RELEASED, "released_at": START, "next_check_at": None})
    world.ledger.commit(Change(lease_id=lease_id, lease=gone, epoch=lease.epoch))
    started = list(world.workflows.started)

    answer = client.delete(f"/v1/leases/{lease_id}")

    assert answer.status == 202 and answer.json["state"] == "released"
    assert world.workflows.started == started
    assert client.get("/v1/leases").json["leases"][0]["cost_so_far_usd"] is None


class BusyLedger(SqliteLedger):
    """Another writer gets ahead of the first few commits."""

    conflicts = 0

    def commit(self, change: Change) -> None:
        if self.conflicts:
            self.conflicts -= 1
            event = Event(lease_id=change.lease_id, at=START, kind="meanwhile", text="x")
            lease = self.load(change.lease_id).lease.model_copy(update={"waiting_for": f"{self.conflicts}"})
            super().commit(Change(lease_id=change.lease_id, lease=lease, events=(event,)))
            raise LeaseConflict(change.lease_id)
        super().commit(change)


@pytest.mark.parametrize(("conflicts", "status"), [(4, 202), (5, 503)])
def test_giving_back_is_tried_again_when_another_writer_was_first(world: World, conflicts: int, status: int) -> None:
    world.ledger = BusyLedger()
    client = world.client()
    lease_id = client.post(A100).json["id"]
    world.ledger.conflicts = conflicts

    answer = client.delete(f"/v1/leases/{lease_id}")

    assert answer.status == status
    reason = world.ledger.load(lease_id).lease.reason
    assert reason is (Reason.USER if status == 202 else None)


class WithoutCaches(SqliteLedger):
    """A ledger of which one row cannot be read."""

    def load(self, lease_id: str) -> LeaseRecord:
        if lease_id.startswith("c-"):
            raise LedgerUnavailable("a stored lease cannot be read")
        return super().load(lease_id)


def test_a_cache_that_cannot_be_read_does_not_keep_its_machine_from_being_given_back(world: World) -> None:
    world.ledger = WithoutCaches()
    client = world.client()
    lease_id, now = running_lease(world, client), world.clock.now()
    lease = world.ledger.load(lease_id).lease
    world.ledger.commit(Change(lease_id=lease_id, lease=lease.model_copy(update={"cache_id": "c-1"})))
    agent = AgentRecord(lease_id=lease_id, attempt=1, token_sha256="0" * 64, first_report_at=now, last_report_at=now)
    world.agents.save(agent)

    answer = client.delete(f"/v1/leases/{lease_id}")

    assert (answer.status, answer.json["state"]) == (202, "releasing")
    assert answer.json["cache_saving"] is not None, "its agent is asked all the same"


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0", "0.00"), ("1.5", "1.50"), ("0.0138888888", "0.013889"), ("1E+3", "1000.00"), ("1E-9", "0.00")],
)
def test_money_is_plain_decimal_text(amount: str, text: str) -> None:
    assert money(Decimal(amount)) == text
