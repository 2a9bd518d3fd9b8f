"""What agents may ask and what their word does: tokens, reports, readiness, keys."""

import json
from datetime import timedelta

import pytest
from gpulease.domain.agent import AgentRecord
from gpulease.domain.agent_protocol import (
    HEARTBEAT_PATH,
    KEYS_PATH,
    PROGRAM_PATH,
    lease_of_token,
    new_token,
    token_digest,
)
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.policy import Signal
from gpulease.domain.readiness import agent_of_attempt, word_of
from gpulease.domain.record import Change
from gpulease.steps import poll_readiness
from gpulease.steps.agent_access import let_in, shut_out
from gpulease.steps.base import StepCommand

from tests.support.agent_steps import LEASE, TOKEN, AgentWorld, body_of


@pytest.fixture
def world() -> AgentWorld:
    return AgentWorld()


# --- the token --------------------------------------------------------------------------------------------------------

OTHERS = [
    "",
    "Bearer",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN}0",
    f"Bearer {TOKEN[:-1]}0",
    f"Basic {TOKEN}",
    "Bearer " + new_token("l-bbbbbbbbbbbb", "0" * 32),
    "Bearer gla_" + "x" * 5000,
]


@pytest.mark.parametrize("header", OTHERS)
@pytest.mark.parametrize(("method", "path"), [("POST", HEARTBEAT_PATH), ("GET", KEYS_PATH), ("GET", PROGRAM_PATH)])
def test_whatever_is_wrong_with_a_token_the_answer_is_the_same(
    world: AgentWorld, header: str, method: str, path: str
) -> None:
    answer = world.ask(method, path, b"{}", authorization=header)

    assert answer["statusCode"] == 401
    assert answer == world.ask(method, path, b"{}", authorization="")
    assert LEASE not in answer["body"]


def test_a_token_of_a_lease_that_ended_opens_nothing(world: AgentWorld) -> None:
    assert world.report()["statusCode"] == 200

    shut_out(LEASE, world.deps)

    assert world.report()["statusCode"] == 401


def test_a_new_attempts_token_ends_the_old_one(world: AgentWorld) -> None:
    record = world.record()
    attempt = record.lease.attempts[-1].model_copy(update={"number": 2})
    config = world.config(new_token(LEASE, "f" * 32))

    let_in(record, attempt, config, world.deps)

    assert world.report()["statusCode"] == 401
    assert world.report(token=config.token)["statusCode"] == 200


def test_only_a_hash_of_the_token_is_stored(world: AgentWorld) -> None:
    stored = world.agent()

    assert TOKEN not in stored.model_dump_json()
    assert stored.token_sha256 == token_digest(TOKEN)


@pytest.mark.parametrize("text", ["gla_l-aaaaaaaaaaaa_" + "0" * 31, "gla_l-AAAAAAAAAAAA_" + "0" * 32, "x" + TOKEN])
def test_what_has_not_the_form_of_a_token_names_no_lease(text: str) -> None:
    assert lease_of_token(text) is None
    assert lease_of_token(TOKEN) == LEASE


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_report_is_kept(world: AgentWorld) -> None:
    answer = world.report(gpus=1, seen_seconds_ago={"gpu": 12.5}, mounted=["/root/.cache"], problems=["cache: slow"])

    agent = world.agent()
    assert json.loads(answer["body"])["interval_seconds"] == 60
    assert answer["headers"]["Cache-Control"] == "no-store"
    assert agent.first_report_at == agent.last_report_at == world.at
    assert agent.activity_at == {Signal.GPU: world.at - timedelta(seconds=12.5)}
    assert (agent.mounted, agent.problems, agent.gpus) == (("/root/.cache",), ("cache: slow",), 1)


RSA, ECDSA, ED25519 = "ssh-rsa BBBB root@box", "ecdsa-sha2-nistp256 CCCC", "ssh-ed25519 AAAA root@box"


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ([ECDSA, ED25519, RSA], ("ssh-ed25519 AAAA",)),
        ([RSA, ECDSA], ("ecdsa-sha2-nistp256 CCCC",)),
        (["sk-ssh-ed25519@openssh.com DDDD", RSA], ("ssh-rsa BBBB",)),
        ([], ()),
    ],
)
def test_of_several_host_keys_the_best_kind_is_kept_without_its_comment(
    world: AgentWorld, told: list[str], kept: tuple[str, ...]
) -> None:
    world.report(host_keys=told)

    assert world.agent().host_keys == kept


WRONG = [
    b"",
    b"[]",
    b"null",
    b"{",
    b'{"gpus": "8"}',
    b'{"gpus": -1}',
    b'{"gpus": 1e99}',
    b'{"more": 1}',
    b'{"ready": "yes"}',
    b'{"seen_seconds_ago": {"gpu": -5}}',
    b'{"seen_seconds_ago": {"gpu": NaN}}',
    b'{"seen_seconds_ago": {"coffee": 5}}',
    b'{"start_script": "exploded"}',
    b'{"host_keys": ["ssh-ed25519 AAAA\\n* ssh-rsa BBBB"]}',
    b'{"problems": ["' + b"x" * 301 + b'"]}',
    b'{"problems": [' + b",".join([b'"x"'] * 11) + b"]}",
]


@pytest.mark.parametrize("body", WRONG)
def test_a_report_that_is_not_as_agreed_is_refused_and_changes_nothing(world: AgentWorld, body: bytes) -> None:
    before = world.agent()

    answer = world.ask("POST", HEARTBEAT_PATH, body)

    assert answer["statusCode"] == 422
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    assert "exploded" not in answer["body"] and "coffee" not in answer["body"].replace("seen_seconds_ago.coffee", "")
    assert world.agent() == before


@pytest.mark.parametrize("encoded", [False, True])
def test_a_report_over_16_kilobytes_is_refused(world: AgentWorld, encoded: bool) -> None:
    body = json.dumps({"boot_id": "x" * 17000}).encode()

    assert world.ask("POST", HEARTBEAT_PATH, body, encoded=encoded)["statusCode"] == 413


def test_a_body_in_base64_is_read(world: AgentWorld) -> None:
    assert world.ask("POST", HEARTBEAT_PATH, body_of(gpus=1), encoded=True)["statusCode"] == 200


def test_a_report_of_use_costs_one_read_and_one_write_once_the_lease_runs(world: AgentWorld) -> None:
    world.becomes_ready()
    world.report(gpus=1)
    world.calls.clear()

    world.at += timedelta(seconds=60)
    world.report(gpus=1, seen_seconds_ago={"gpu": 0})

    assert world.calls == ["agents.load", "agents.save"]


def test_a_report_beside_another_writer_is_kept(world: AgentWorld) -> None:
    world.between_load_and_save = lambda: world.write_agent(flush_wanted_at=world.at)

    answer = world.report(gpus=1)

    assert json.loads(answer["body"])["flush"] is True
    assert world.agent().last_report_at == world.at


def test_a_ledger_that_does_not_answer_is_told_as_not_now(world: AgentWorld) -> None:
    world.fails = True

    answer = world.report(gpus=1)

    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "20")


def test_a_flush_is_asked_for_until_it_is_no_longer_wanted(world: AgentWorld) -> None:
    world.becomes_ready()
    world.write_agent(flush_wanted_at=world.at)

    asked = world.report(gpus=1)
    done = world.report(gpus=1, flushed=True)

    assert json.loads(asked["body"])["flush"] is True
    assert json.loads(done["body"])["flush"] is True
    assert world.agent().flushed_at == world.at


def test_an_agent_that_is_asked_is_heard_every_ten_seconds_until_it_is_done(world: AgentWorld) -> None:
    world.report(gpus=1, seen_seconds_ago={"gpu": 0})
    world.write_agent(flush_wanted_at=world.at, flush_until=world.at + timedelta(minutes=15))

    saving = world.report(gpus=1, seen_seconds_ago={"gpu": 0}, saving=True)
    said = world.agent().saving_at
    old_agent = world.report(gpus=1, seen_seconds_ago={"gpu": 0})
    done = world.report(gpus=1, seen_seconds_ago={"gpu": 0}, flushed=True)

    assert said == world.at
    answers = [json.loads(each["body"]) for each in (saving, old_agent, done)]
    assert [each["interval_seconds"] for each in answers] == [10, 10, 60]
    assert [each["flush_seconds"] for each in answers] == [900, 900, 900]
    assert (world.agent().saving_at, world.agent().flushed_at) == (None, world.at)


def test_a_wish_that_is_over_hurries_nobody(world: AgentWorld) -> None:
    world.report(gpus=1, seen_seconds_ago={"gpu": 0})
    world.write_agent(flush_wanted_at=world.at, flush_until=world.at)

    answer = json.loads(world.report(gpus=1, seen_seconds_ago={"gpu": 0}, saving=True)["body"])

    assert (answer["interval_seconds"], answer["flush_seconds"]) == (60, 0)


def test_no_flush_that_nobody_asked_for_is_noted(world: AgentWorld) -> None:
    world.report(gpus=1, flushed=True, saving=True)

    assert world.agent().flushed_at is None and world.agent().saving_at is None


# --- readiness --------------------------------------------------------------------------------------------------------


def test_the_first_report_moves_the_lease_where_all_else_is_there(world: AgentWorld) -> None:
    world.becomes_ready()

    world.report(gpus=1)

    assert world.record().lease.state is LeaseState.RUNNING


def test_a_report_before_the_provider_shows_the_machine_as_ready_moves_nothing(world: AgentWorld) -> None:
    answer = world.report(gpus=1)

    assert json.loads(answer["body"])["start"] is False
    assert world.record().lease.state is LeaseState.PROVISIONING
    assert word_of(world.agent(), world.attempt()).ready, "the workflow's next turn goes on with it"


def test_a_machine_that_prepares_is_not_ready_and_hears_of_its_volume(world: AgentWorld) -> None:
    world.becomes_ready(volume=True)

    answer = world.report(ready=False, gpus=1)

    told = json.loads(answer["body"])
    assert (told["volume_attached"], told["start"], told["interval_seconds"]) == (True, True, 10)
    assert world.record().lease.state is LeaseState.PROVISIONING
    assert world.agent().first_report_at is None


def test_c30_gpus_are_counted_against_the_offer(world: AgentWorld) -> None:
    world.report(gpus=0)

    attempt = world.attempt()
    assert attempt.reason is Reason.GPU_CHECK_FAILED
    assert "0/1" in attempt.detail


def test_c33_a_start_script_that_failed_is_a_failed_boot(world: AgentWorld) -> None:
    world.report(gpus=1, start_script="failed", start_script_exit=3)

    assert world.attempt().reason is Reason.BOOT_FAILED
    assert "ended with 3" in world.attempt().detail


def test_a_script_that_failed_long_ago_does_not_fail_a_resume() -> None:
    attempt = AgentWorld().attempt()
    resumed = attempt.model_copy(update={"resumed_at": attempt.started_at})
    agent = AgentRecord(
        lease_id=LEASE,
        attempt=1,
        token_sha256="0" * 64,
        first_report_at=attempt.started_at + timedelta(minutes=1),
        gpus=1,
        start_script="failed",
    )

    assert word_of(agent, attempt).reason is Reason.BOOT_FAILED
    assert word_of(agent, resumed).ready


def test_why_gpus_are_missing_is_told_where_the_machine_says_it() -> None:
    attempt = AgentWorld().attempt()
    agent = AgentRecord(
        lease_id=LEASE,
        attempt=1,
        token_sha256="0" * 64,
        first_report_at=attempt.started_at + timedelta(minutes=1),
        gpus=0,
        problems=("nvidia-smi: ended with 9: no driver", "GPUs: 0 of 1 are there; nothing is started"),
    )

    assert word_of(agent, attempt).detail == "0/1 GPUs are there; nvidia-smi: ended with 9: no driver"


def test_a_report_from_before_a_start_proves_nothing() -> None:
    attempt = AgentWorld().attempt()
    resumed = attempt.model_copy(update={"resumed_at": attempt.started_at + timedelta(hours=1)})
    agent = AgentRecord(
        lease_id=LEASE,
        attempt=1,
        token_sha256="0" * 64,
        first_report_at=attempt.started_at + timedelta(minutes=1),
        gpus=1,
    )

    word = word_of(agent, resumed)

    assert not word.ready and word.reason is None


def test_another_attempts_agent_is_none_of_this_machines(world: AgentWorld) -> None:
    attempt = world.attempt()

    assert agent_of_attempt(world.agent(), attempt) is not None
    assert agent_of_attempt(world.agent(), attempt.model_copy(update={"number": 2})) is None
    assert agent_of_attempt(None, attempt) is None


def test_a_report_of_a_cancelled_lease_moves_nothing(world: AgentWorld) -> None:
    world.becomes_ready()
    lease = world.record().lease.model_copy(update={"state": LeaseState.RELEASING, "epoch": 2})
    world.ledger.commit(Change(lease_id=LEASE, lease=lease))

    answer = world.report(gpus=1)

    assert answer["statusCode"] == 200
    assert world.record().lease.state is LeaseState.RELEASING


def test_the_workflow_finds_the_lease_running_at_its_next_turn(world: AgentWorld) -> None:
    world.becomes_ready()
    world.report(gpus=1)

    outcome = poll_readiness.run(StepCommand(lease_id=LEASE, epoch=1), world.deps)

    assert outcome.outcome == "ready"


# --- keys and program -------------------------------------------------------------------------------------------------


def test_a_lease_without_a_cache_gets_no_keys(world: AgentWorld) -> None:
    assert world.ask("GET", KEYS_PATH)["statusCode"] == 404


def test_the_program_is_the_one_of_the_digest_in_the_user_data(world: AgentWorld) -> None:
    from gpulease.agent_program import agent_program

    answer = world.ask("GET", PROGRAM_PATH)

    assert answer["body"].encode() == agent_program().source


def test_other_routes_are_not_known(world: AgentWorld) -> None:
    assert world.ask("DELETE", HEARTBEAT_PATH)["statusCode"] == 404
    assert world.ask("GET", "/v1/leases")["statusCode"] == 404
