"""Pausing and resuming over HTTP: what is answered by state, what is told beforehand, and what is started."""

from datetime import timedelta
from decimal import Decimal

import pytest
from gpulease.domain.lease import LeaseState, PauseMode, PauseProgress, Reason, ResumeMode
from gpulease.domain.offer import OfferSnapshot
from gpulease.domain.policy import Capacity
from gpulease.domain.record import Change
from gpulease.domain.resource import Rate, ResourceKind, ResourceState

from tests.support.api_events import BOB, Client
from tests.support.api_world import ADMIN, OFFERS, START, OneProvider, World, offer, running_lease


@pytest.fixture
def world() -> World:
    return World(providers=OneProvider(stops=True))


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


def paused_lease(world: World, client: Client) -> str:
    """A lease whose machine is stopped."""
    lease_id = running_lease(world, client)
    record, now = world.ledger.load(lease_id), world.clock.now()
    (machine,) = record.of_kind(ResourceKind.INSTANCE)
    stopped = machine.model_copy(
        update={
            "stopped_at": now,
            "address": "",
            "rates": (*machine.rates, Rate(since=now, usd_per_hour=Decimal("0.011"))),
        }
    )
    progress = PauseProgress(mode=PauseMode.STOP, reason=Reason.IDLE, requested_at=now)
    pausing = record.lease.model_copy(update={"state": LeaseState.PAUSING, "pause": progress, "epoch": 2})
    world.ledger.commit(Change(lease_id=lease_id, lease=pausing, resources=(stopped,)))
    lease = world.ledger.load(lease_id).lease
    done = lease.model_copy(update={"state": LeaseState.PAUSED, "paused_at": now})
    world.ledger.commit(Change(lease_id=lease_id, lease=done))
    return lease_id


def test_a_pause_is_accepted_its_workflow_started_and_no_address_shown_any_more(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    assert client.get(f"/v1/leases/{lease_id}").json["address"] == "192.0.2.7"

    answer = client("POST", f"/v1/leases/{lease_id}/pause")

    lease = world.ledger.load(lease_id).lease
    assert (answer.status, answer.json["state"]) == (202, "pausing")
    assert (answer.json["address"], answer.json["ssh"]) == ("", None)
    assert (answer.json["pause"]["mode"], answer.json["pause"]["reason"]) == ("stop", "user")
    assert world.workflows.started[-1] == ("pause", f"{lease_id}-pause-{lease.epoch}", lease_id, lease.epoch)
    assert answer.json["resources"][0]["billed"] is True
    assert answer.json["price_per_hour_usd"] == "2.397", "billed in full until it is seen stopped"


def test_to_pause_again_is_the_same_pause(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    client("POST", f"/v1/leases/{lease_id}/pause")
    epoch = world.ledger.load(lease_id).lease.epoch

    again = client("POST", f"/v1/leases/{lease_id}/pause")

    assert (again.status, again.json["state"]) == (202, "pausing")
    assert world.ledger.load(lease_id).lease.epoch == epoch
    assert len({name for machine, name, *_ in world.workflows.started if machine == "pause"}) == 1


def test_a_pause_that_would_keep_nothing_is_refused_before_anything_happens(world: World, client: Client) -> None:
    world.providers = OneProvider(stops=False)
    lease_id = running_lease(world, client)
    before = world.ledger.load(lease_id)

    answer = client("POST", f"/v1/leases/{lease_id}/pause")

    assert (answer.status, answer.json["code"]) == (409, "nothing_to_keep")
    assert "gpulease down" in answer.json["detail"] and "billed" not in answer.json["detail"].partition("bills")[0]
    assert world.ledger.load(lease_id) == before


def test_a_dry_run_tells_both_prices_and_changes_nothing(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    before = world.ledger.load(lease_id)

    told = client("POST", f"/v1/leases/{lease_id}/pause", query="dry_run=true")

    assert told.status == 200
    assert (told.json["possible"], told.json["code"], told.json["mode"]) == (True, "", "stop")
    assert (told.json["running_price_per_hour_usd"], told.json["paused_price_per_hour_usd"]) == ("2.397", "0.011")
    assert told.json["billed_while_paused"] == [{"what": "disk of the stopped machine", "price_per_hour_usd": "0.011"}]
    assert told.json["release_after_seconds"] == 7 * 86400
    assert "$2.397/h" in told.json["text"] and "$0.011/h" in told.json["text"]
    assert world.ledger.load(lease_id) == before


def test_a_dry_run_says_why_a_pause_is_not_possible(world: World, client: Client) -> None:
    world.providers = OneProvider(stops=False)
    lease_id = running_lease(world, client)

    told = client("POST", f"/v1/leases/{lease_id}/pause", query="dry_run=true")

    assert (told.status, told.json["possible"], told.json["code"]) == (200, False, "nothing_to_keep")


@pytest.mark.parametrize(
    ("state", "pause", "resume"),
    [
        (LeaseState.REQUESTED, "not_running", "not_paused"),
        (LeaseState.PROVISIONING, "not_running", "not_paused"),
        (LeaseState.RUNNING, "", ""),
        (LeaseState.PAUSING, "", "being_paused"),
        (LeaseState.PAUSED, "", ""),
        (LeaseState.RESUMING, "not_running", ""),
        (LeaseState.RELEASING, "being_released", "being_released"),
        (LeaseState.RELEASED, "released", "released"),
    ],
)
def test_each_state_has_its_answer(world: World, client: Client, state: LeaseState, pause: str, resume: str) -> None:
    answers = {}
    for word in ("pause", "resume"):
        lease_id = paused_lease(world, client)
        lease = world.ledger.load(lease_id).lease
        world.ledger.commit(Change(lease_id=lease_id, lease=lease.model_copy(update={"state": state})))
        answers[word] = client("POST", f"/v1/leases/{lease_id}/{word}")

    for word, code in (("pause", pause), ("resume", resume)):
        assert answers[word].status == (409 if code else 202), word
        assert answers[word].json.get("code", "") == code


def test_a_paused_lease_lists_what_it_still_costs_and_until_when_it_stays(world: World, client: Client) -> None:
    lease_id = paused_lease(world, client)

    shown = client.get(f"/v1/leases/{lease_id}").json

    paused_at = world.ledger.load(lease_id).lease.paused_at
    assert shown["pause"]["billed"] == [
        {"what": "disk of the stopped machine at vultr/ewr", "price_per_hour_usd": "0.011"}
    ]
    assert (shown["pause"]["price_per_hour_usd"], shown["price_per_hour_usd"]) == ("0.011", "0.011")
    assert shown["pause"]["release_at"] == (paused_at + timedelta(days=7)).isoformat().replace("+00:00", "Z")


def test_a_resume_is_accepted_and_starts_the_stopped_machine(world: World, client: Client) -> None:
    lease_id = paused_lease(world, client)

    answer = client("POST", f"/v1/leases/{lease_id}/resume", query="on_no_capacity=replace&wait_seconds=600")

    lease = world.ledger.load(lease_id).lease
    assert (answer.status, answer.json["state"], answer.json["address"]) == (202, "resuming", "")
    assert lease.resume is not None
    assert (lease.resume.mode, lease.resume.on_no_capacity) == (ResumeMode.START, Capacity.REPLACE)
    assert lease.resume.give_up_at == world.clock.now() + timedelta(minutes=10)
    assert world.workflows.started[-1][:2] == ("resume", f"{lease_id}-resume-{lease.epoch}")


def test_a_resume_in_vain_and_its_reason_are_shown(world: World, client: Client) -> None:
    lease_id = paused_lease(world, client)
    lease = world.ledger.load(lease_id).lease
    failed = lease.pause.model_copy(update={"resume_failed": Reason.NO_CAPACITY})
    world.ledger.commit(Change(lease_id=lease_id, lease=lease.model_copy(update={"pause": failed})))

    assert client.get(f"/v1/leases/{lease_id}").json["pause"]["resume_failed"] == "no_capacity"


def test_the_dry_run_of_a_resume_says_which_machine_it_would_be(world: World, client: Client) -> None:
    lease_id = paused_lease(world, client)

    told = client("POST", f"/v1/leases/{lease_id}/resume", query="dry_run=true")

    assert (told.status, told.json["possible"], told.json["new_machine"]) == (200, True, False)
    assert told.json["price_per_hour_usd"] == "2.397"
    assert world.ledger.load(lease_id).lease.state is LeaseState.PAUSED


@pytest.mark.parametrize(
    ("budget", "kept", "status"), [("2", False, 409), ("9", False, 202), ("2", True, 409), ("9", True, 202)]
)
def test_a_resume_that_the_budget_does_not_pay_for_is_refused(
    world: World, client: Client, budget: str, kept: bool, status: int
) -> None:
    """It would run for a moment, be billed, and the lease would end: with the disk of a stopped machine."""
    lease_id = paused_lease(world, client)
    record = world.ledger.load(lease_id)
    rules = record.lease.rules.model_copy(update={"budget_usd": Decimal(budget)})
    (machine,) = record.of_kind(ResourceKind.INSTANCE)
    gone = machine.model_copy(update={"state": ResourceState.RELEASED, "released_at": world.clock.now()})
    lease = record.lease.model_copy(update={"policy": rules})
    world.ledger.commit(Change(lease_id, lease=lease, resources=() if kept else (gone,)))

    told = client("POST", f"/v1/leases/{lease_id}/resume", query="dry_run=true").json
    answer = client("POST", f"/v1/leases/{lease_id}/resume")

    assert (answer.status, told["possible"]) == (status, status == 202)
    if status == 409:
        assert answer.json["code"] == told["code"] == "over_budget"
        assert "$2.397 at the least" in answer.json["detail"] == told["text"]


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_somebody_elses_lease_looks_like_none_and_an_admin_is_named(world: World, client: Client, word: str) -> None:
    lease_id = running_lease(world, client) if word == "pause" else paused_lease(world, client)

    assert client("POST", f"/v1/leases/{lease_id}/{word}", owner=BOB).json["code"] == "lease_not_found"
    assert client("POST", f"/v1/leases/{lease_id}/{word}", owner=ADMIN).status == 202

    events = client.get(f"/v1/leases/{lease_id}/events").json["events"]
    assert ADMIN in events[-1]["text"]


@pytest.mark.parametrize(
    ("path", "query"),
    [("pause", "dryrun=true"), ("resume", "on_no_capacity=perhaps"), ("resume", "wait_seconds=-1")],
)
def test_what_is_misspelt_does_nothing(world: World, client: Client, path: str, query: str) -> None:
    lease_id = running_lease(world, client)

    answer = client("POST", f"/v1/leases/{lease_id}/{path}", query=query)

    assert answer.status == 422
    assert world.ledger.load(lease_id).lease.state is LeaseState.RUNNING


def test_what_a_pause_would_be_is_told_before_anything_is_rented(world: World, client: Client) -> None:
    told = client("POST", "/v1/leases", {"gpu": ["A100"]}, query="dry_run=true").json["when_paused"]
    assert "running $2.397/h, paused $0.011/h" in told

    world.providers = OneProvider(stops=False)
    told = client("POST", "/v1/leases", {"gpu": ["A100"]}, query="dry_run=true").json["when_paused"]
    assert "bills a stopped machine in full" in told and "given back" in told
    assert "[" not in told, "one sort of machine needs no name"
    assert "after 30 minutes without use or after 20 minutes without a report" in told and "$2.397/h until then" in told


def test_what_a_pause_would_be_is_told_of_each_sort_of_machine_that_would_be_tried(
    world: World, client: Client
) -> None:
    spot = offer("vcg-a100-12c", "A100", "1.10", spot=True)
    world.offers.save(OfferSnapshot(provider="vultr", as_of=START, offers=(*OFFERS, spot)))

    told = client("POST", "/v1/leases", {"gpu": ["A100"], "spot": "any"}, query="dry_run=true").json["when_paused"]

    assert told.startswith("when paused: [vultr spot] ") and "; [vultr] " in told
    assert "running $1.100/h" in told and "running $2.397/h" in told
