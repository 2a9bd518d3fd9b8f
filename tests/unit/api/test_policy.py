"""Changing a living lease over HTTP: its policy, and that it is in use."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpulease.domain.agent import AgentRecord
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.model import STORED
from gpulease.domain.policy import Then, Window
from gpulease.domain.record import Change
from gpulease.steps import limits

from tests.support.api_events import BOB, Client
from tests.support.api_world import START, OneProvider, World, running_lease


def quiet_since(world: World, lease_id: str, minutes: int) -> None:
    """Its machine is ready, has an agent, and nothing has used it for so long."""
    now = world.clock.now()
    since = now - timedelta(minutes=minutes)
    world.policy = replace(world.policy, agent_url="https://api")
    lease = world.ledger.load(lease_id).lease
    world.ledger.commit(Change(lease_id, lease=lease.model_copy(update={"ready_at": since})))
    told = {"first_report_at": since, "last_report_at": now, "quiet_reports": minutes}
    world.agents.save(AgentRecord(lease_id=lease_id, attempt=1, token_sha256="0" * 64, **told))


def test_a_policy_is_changed_in_parts_and_the_rest_stays(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    before = world.ledger.load(lease_id).lease.rules

    answer = client(
        "PATCH", f"/v1/leases/{lease_id}", {"policy": {"idle": {"after_seconds": 7200}, "budget_usd": "25.50"}}
    )

    after = world.ledger.load(lease_id).lease.rules
    assert answer.status == 200
    assert (after.idle.after_seconds, str(after.budget_usd)) == (7200, "25.50")
    assert after.idle.then is before.idle.then is Then.PAUSE
    assert after.unreachable == before.unreachable and after.paused == before.paused
    due = world.ledger.load(lease_id).lease.next_check_at
    assert due is not None and due <= world.clock.now()
    assert "budget_usd, idle" in client.get(f"/v1/leases/{lease_id}/events").json["events"][-1]["text"]


def test_windows_are_replaced_whole_and_limits_taken_off_with_null(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    window = {"keep": "off", "start": "0 22 * * *", "end": "0 8 * * *", "timezone": "Europe/Berlin"}

    set_ = client("PATCH", f"/v1/leases/{lease_id}", {"policy": {"windows": [window], "max_duration_seconds": 36000}})
    client("PATCH", f"/v1/leases/{lease_id}", {"policy": {"windows": [], "max_duration_seconds": None}})

    rules = world.ledger.load(lease_id).lease.rules
    assert (len(set_.json["policy"]["windows"]), set_.json["policy"]["max_duration_seconds"]) == (1, 36000)
    assert rules.windows == () and rules.max_duration_seconds is None


@pytest.mark.parametrize(
    ("policy", "field", "word"),
    [
        ({"idle": {"after_seconds": 5}}, "policy.idle.after_seconds", "60"),
        ({"idle": {"after_seconds": "300"}}, "policy.idle.after_seconds", "integer"),
        ({"idle": {"after_seconds": True}}, "policy.idle.after_seconds", "integer"),
        ({"idle": {"signals": ["smoke"]}}, "policy.idle.signals[0]", "gpu"),
        ({"idle": {"signals": ["gpu", "gpu"]}}, "policy", "twice"),
        ({"idel": {}}, "policy.idel", "unknown field"),
        ({"budget_usd": "-1"}, "policy.budget_usd", "greater than 0"),
        ({"windows": [{"keep": "off", "start": "0 25 * * *"}]}, "policy.windows[0]", "five cron fields"),
        ({"windows": [{"keep": "warm", "start": "0 5 * * *"}]}, "policy.windows[0]", "needs an end"),
        (None, "policy", "object"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_its_field(
    world: World, client: Client, policy: object, field: str, word: str
) -> None:
    lease_id = running_lease(world, client)
    before = world.ledger.load(lease_id).lease

    answer = client("PATCH", f"/v1/leases/{lease_id}", {"policy": policy})

    assert answer.status == 422
    error = answer.json["errors"][0]
    assert error["field"] == field and word in error["message"]
    assert world.ledger.load(lease_id).lease == before


@pytest.mark.parametrize(
    ("policy", "field", "told"),
    [
        ({"budget_usd": "4"}, "policy.budget_usd", "it has cost $4.794 so far"),
        ({"max_duration_seconds": 3600}, "policy.max_duration_seconds", "its maximum duration is over"),
    ],
)
def test_a_limit_that_is_over_when_it_is_set_gives_nothing_back_and_is_refused(
    world: World, client: Client, policy: dict[str, Any], field: str, told: str
) -> None:
    lease_id = running_lease(world, client)

    answer = client("PATCH", f"/v1/leases/{lease_id}", {"policy": policy})

    assert (answer.status, answer.json["code"]) == (409, "would_end_at_once")
    (error,) = answer.json["errors"]
    assert error["field"] == field and told in error["message"] and "gpulease down" in error["message"]
    assert world.ledger.load(lease_id).lease.rules.budget_usd is None


@pytest.mark.parametrize("stops", [True, False])
def test_less_idle_time_than_has_passed_is_refused_only_where_a_pause_would_keep_nothing(
    world: World, client: Client, stops: bool
) -> None:
    lease_id = running_lease(world, client)
    world.providers = OneProvider(stops=stops)
    quiet_since(world, lease_id, minutes=20)

    answer = client("PATCH", f"/v1/leases/{lease_id}", {"policy": {"idle": {"after_seconds": 600}}})

    assert answer.status == (200 if stops else 409)
    if not stops:
        assert answer.json["errors"][0]["field"] == "policy.idle.after_seconds"


def test_a_paused_lease_is_not_given_back_by_a_limit_that_is_over_when_it_is_set(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    for state in (LeaseState.PAUSING, LeaseState.PAUSED):
        lease = world.ledger.load(lease_id).lease.model_copy(update={"state": state, "paused_at": START})
        world.ledger.commit(Change(lease_id, lease=lease))

    answer = client("PATCH", f"/v1/leases/{lease_id}", {"policy": {"paused": {"release_after_seconds": 60}}})

    assert (answer.status, answer.json["errors"][0]["field"]) == (409, "policy.paused.release_after_seconds")


def test_what_is_due_anyway_does_not_hold_up_another_change(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    lease = world.ledger.load(lease_id).lease
    rules = lease.rules.model_copy(update={"max_duration_seconds": 60})
    world.ledger.commit(Change(lease_id, lease=lease.model_copy(update={"policy": rules})))

    assert client("PATCH", f"/v1/leases/{lease_id}", {"policy": {"on_no_capacity": "replace"}}).status == 200


LOST = {"keep": "off", "start": "0 22 * * *", "timezone": "Mars/Olympus"}
EMPTY = {"keep": "off", "start": "0 9 * * *", "end": "0 9 * * *"}


@pytest.mark.parametrize("window", [LOST, EMPTY, {"keep": "warm", "start": "0 9 30 2 *", "end": "0 10 * * *"}])
def test_a_stored_window_that_means_nothing_any_more_holds_up_nothing_else(
    world: World, client: Client, window: dict[str, Any]
) -> None:
    """Its zone may have been renamed by an update."""
    lease_id = running_lease(world, client)
    lease = world.ledger.load(lease_id).lease
    policy = lease.rules.model_copy(update={"windows": (Window.model_validate(window, context=STORED),)})
    stored = lease.model_copy(update={"policy": policy, "ready_at": lease.running_at})
    world.ledger.commit(Change(lease_id=lease_id, lease=stored))

    shown = client.get(f"/v1/leases/{lease_id}")
    changed = client("PATCH", f"/v1/leases/{lease_id}", {"policy": {"max_duration_seconds": 7200}})
    world.clock.advance(3600)
    verdict = limits.act(world.ledger.load(lease_id), world, world.clock.now())

    assert (shown.status, changed.status) == (200, 200), changed.text
    assert verdict is not None and verdict.reason is Reason.EXPIRED
    assert world.ledger.load(lease_id).lease.state is LeaseState.RELEASING


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("PATCH", "", {"policy": {}}), ("POST", "/touch", None), ("POST", "/keep", {"seconds": 3600})],
)
def test_somebody_elses_lease_cannot_be_changed_and_looks_absent(
    world: World, client: Client, method: str, path: str, body: object
) -> None:
    lease_id = running_lease(world, client)
    before = world.ledger.load(lease_id).lease

    answer = client(method, f"/v1/leases/{lease_id}{path}", body, owner=BOB)

    assert answer.status == 404
    assert world.ledger.load(lease_id).lease == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("PATCH", "", {"policy": {}}), ("POST", "/touch", None), ("POST", "/keep", {"seconds": 3600})],
)
def test_what_is_on_its_way_out_cannot_be_changed(
    world: World, client: Client, method: str, path: str, body: object
) -> None:
    lease_id = running_lease(world, client)
    client.delete(f"/v1/leases/{lease_id}")

    answer = client(method, f"/v1/leases/{lease_id}{path}", body)

    assert (answer.status, answer.json["code"]) == (409, "being_released")


def test_touch_and_keep_are_the_owners_word_that_it_is_in_use(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    world.clock.advance(600)

    touched = client("POST", f"/v1/leases/{lease_id}/touch")
    kept = client("POST", f"/v1/leases/{lease_id}/keep", {"seconds": 7200})

    lease = world.ledger.load(lease_id).lease
    assert touched.status == kept.status == 200
    assert lease.touched_at == world.clock.now()
    assert lease.keep_until is not None and (lease.keep_until - world.clock.now()).total_seconds() == 7200


def test_a_lease_is_asked_for_with_its_policy(world: World, client: Client) -> None:
    answer = client.post({"gpu": ["A100"], "policy": {"idle": {"after_seconds": 600, "then": "release"}}})

    lease = world.ledger.load(answer.json["id"]).lease
    assert answer.status == 202
    assert (lease.rules.idle.after_seconds, lease.rules.idle.then) == (600, Then.RELEASE)


def test_two_durations_that_contradict_each_other_are_refused(world: World, client: Client) -> None:
    body = {"gpu": ["A100"], "max_duration_seconds": 3600, "policy": {"max_duration_seconds": 7200}}

    answer = client.post(body)

    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "max_duration_seconds")
    assert "policy.max_duration_seconds" in answer.json["errors"][0]["message"]


def test_a_policy_in_a_request_is_checked_before_anything_is_made(world: World, client: Client) -> None:
    answer = client.post({"gpu": ["A100"], "policy": {"idle": {"after_seconds": 1}}})

    assert answer.status == 422
    assert answer.json["errors"][0]["field"] == "policy.idle.after_seconds"
    assert client.get("/v1/leases").json["leases"] == []


@pytest.mark.parametrize(("stops", "word"), [(True, "paused (idle)"), (False, "released (idle)")])
def test_what_comes_next_is_not_called_a_pause_where_that_would_keep_nothing(
    world: World, client: Client, stops: bool, word: str
) -> None:
    lease_id = running_lease(world, client)
    world.providers = OneProvider(stops=stops)
    quiet_since(world, lease_id, minutes=20)

    shown = client.get(f"/v1/leases/{lease_id}").json["next"]
    listed = client.get("/v1/leases").json["leases"][0]["next"]

    assert shown == listed and shown["text"].startswith(word)
    assert ("keep nothing" in shown["text"]) is not stops


def test_what_its_agent_told_of_the_gpus_is_shown(world: World, client: Client) -> None:
    lease_id = running_lease(world, client)
    quiet_since(world, lease_id, minutes=20)
    told = {"gpus": 1, "gpu_models": ("NVIDIA A100",), "gpu_percent": (97,)}
    told |= {"gpu_memory_mib": (81920,), "gpu_memory_used_mib": (70123,)}
    agent = world.agents.load(lease_id)
    world.agents.save(agent.model_copy(update=told))

    view = client.get(f"/v1/leases/{lease_id}").json

    assert {name: view["agent"][name] for name in told} == json.loads(json.dumps(told))
    assert view["ready_at"] == "2026-01-05T13:10:00Z"


def test_a_budget_that_the_first_hour_spends_rents_nothing(world: World, client: Client) -> None:
    """Billed by the started hour, such a machine would be paid for and given back as soon as it runs."""
    refused = client.post({"gpu": ["A100"], "policy": {"budget_usd": "2"}})
    dear = client.post({"gpu": ["A100", "A16"], "policy": {"budget_usd": "2"}}, query="dry_run=true")

    error = refused.json["errors"][0]
    assert (refused.status, refused.json["code"]) == (422, "no_matching_offer")
    assert error["field"] == "policy.budget_usd" and "$2.397 at the least" in error["message"]
    assert {offer["gpu_model"] for offer in dear.json["offers"]} == {"A16"}, "what it pays for is tried"
    assert client.get("/v1/leases").json["leases"] == []
