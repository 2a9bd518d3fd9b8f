"""What watching a machine costs: reports as large as real ones, counted from the real function."""

from dataclasses import replace

import pytest
from gpulease.domain.agent_protocol import AgentReport
from gpulease.domain.policy import Signal

from bench.bench_cost import VM_REQUEST
from bench.machine_reports import as_on_a_machine, host_keys
from bench.metered_stack import AGENT_FUNCTION, Assumed, Stack
from bench.prices import HOURS_PER_MONTH, WRITE_UNIT_BYTES
from bench.watched import IN_TURNS, IN_USE, QUIET_SECONDS, USED_SECONDS, Watched, of_one, used

SIMULATED = {"boot_id": "i-1-1", "gpus": 2, "seen_seconds_ago": {"gpu": 3.0}, "ready": True}


def test_host_keys_are_as_long_as_those_that_a_machine_makes() -> None:
    assert [(key.split()[0], len(key.split()[1])) for key in host_keys("i-1")] == [
        ("ecdsa-sha2-nistp256", 140),
        ("ssh-ed25519", 68),
        ("ssh-rsa", 544),
    ]


def test_a_report_is_filled_up_to_what_a_machine_says_and_stays_a_report() -> None:
    report = AgentReport.model_validate(as_on_a_machine(SIMULATED))

    assert (report.gpus, len(report.gpu_models), len(report.host_keys)) == (2, 2, 3)
    assert report.seen_seconds_ago[Signal.GPU] == 3.0


def test_turns_alternate_between_use_and_quiet_just_below_the_idle_limit() -> None:
    workload = used(in_turns=True)

    assert workload.session_at(USED_SECONDS - 1) is not None
    assert workload.session_at(USED_SECONDS + QUIET_SECONDS - 1) is None
    assert workload.session_at(USED_SECONDS + QUIET_SECONDS) is not None
    assert workload.idle_after_seconds - 120 < QUIET_SECONDS < workload.idle_after_seconds


def test_lambdas_own_lines_are_not_counted_where_the_template_turns_them_off() -> None:
    assert Stack.read().quiet == {AGENT_FUNCTION}


@pytest.mark.parametrize("way", [IN_USE, IN_TURNS], ids=["in use", "in turns"])
def test_a_machine_costs_one_request_and_one_write_unit_per_report(way: Watched) -> None:
    watched = replace(way, machines=1, seconds=USED_SECONDS + QUIET_SECONDS)

    use, detail = of_one(Stack.read(), Assumed(), watched, VM_REQUEST)

    times = HOURS_PER_MONTH * 3600 / watched.seconds
    reports = detail[f"calls {AGENT_FUNCTION}"]
    assert 48 <= reports <= 60
    assert use["api_requests"] == pytest.approx(reports * times)
    assert use["lambda_requests"] == pytest.approx(reports * times)
    assert detail["agent_row_bytes"] <= WRITE_UNIT_BYTES
    assert reports < use["write_units"] / times < reports + 20, "the rest is what a check writes"
