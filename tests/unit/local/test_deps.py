"""The parts that only one computer has: workflows on the engine, keys, the log."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from gpulease.errors import InputInvalid, ProviderAuthFailed
from gpulease_local.asl import Engine, TaskReply, VirtualClock, load_definition
from gpulease_local.deps import Account, EngineWorkflows, FixedSecrets, LineLog, LocalProviders, LogAlarms, UserSecrets
from gpulease_local.sim_transport import SimTransport
from gpulease_local.world import DepsClock
from gpulease_sim.vultr import VultrCloud

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def _log(level: str = "info") -> tuple[LineLog, io.StringIO]:
    stream = io.StringIO()
    return LineLog(stream, lambda: NOW, level), stream


def test_a_doubled_start_is_one_execution_and_an_ended_name_is_fine() -> None:
    engine = Engine(clock=VirtualClock(0.0), seed=0, invoke=lambda name, payload: TaskReply())
    waits = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 5, "End": True}}}
    engine.register(load_definition(waits, name="release"))
    workflows = EngineWorkflows(lambda: engine)

    workflows.start("release", "l-1-release-1", "l-1", 1)
    workflows.start("release", "l-1-release-1", "l-1", 1)
    during = workflows.is_running("release", "l-1-release-1")
    engine.run_until(10.0)
    workflows.start("release", "l-1-release-1", "l-1", 1)

    assert during
    assert not workflows.is_running("release", "l-1-release-1")
    assert not workflows.is_running("release", "never-started")
    assert [execution.input for execution in engine.executions()] == [{"lease_id": "l-1", "epoch": 1}]


def test_a_key_comes_from_the_environment_first_and_then_from_the_private_file(tmp_path: Path) -> None:
    (tmp_path / "vultr").write_text("from-file\n")
    (tmp_path / "vultr").chmod(0o600)

    assert UserSecrets({"VULTR_API_KEY": "from-env"}, tmp_path).provider_key("vultr") == "from-env"
    assert UserSecrets({}, tmp_path).provider_key("vultr") == "from-file"


def test_a_missing_key_says_where_it_may_be_put(tmp_path: Path) -> None:
    with pytest.raises(ProviderAuthFailed, match=r"set VULTR_RESEARCH_API_KEY, or put it into .*vultr-research"):
        UserSecrets({}, tmp_path).provider_key("vultr-research")


def test_a_key_that_others_can_read_is_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "vultr").write_text("from-file\n")
    (tmp_path / "vultr").chmod(0o640)

    with pytest.raises(ProviderAuthFailed, match="chmod 600") as caught:
        UserSecrets({}, tmp_path).provider_key("vultr")

    assert "from-file" not in str(caught.value)


def test_accounts_keep_their_order_and_an_unknown_one_is_named() -> None:
    clock = VirtualClock(1000.0)
    log, _ = _log()
    transport = SimTransport(VultrCloud(clock.time), passed=lambda seconds: None)
    providers = LocalProviders(
        {name: Account("vultr", transport) for name in ("vultr", "vultr-research")},
        secrets=FixedSecrets(),
        clock=DepsClock(clock),
        log=log,
        sleep=lambda seconds: None,
    )

    assert list(providers.accounts()) == ["vultr", "vultr-research"]
    assert providers.get("vultr-research").account == "vultr-research"
    assert providers.get("vultr") is providers.get("vultr")
    with pytest.raises(InputInvalid, match="'aws'; configured: vultr, vultr-research"):
        providers.get("aws")


def test_the_log_is_one_json_object_per_line_from_its_level_on() -> None:
    log, stream = _log("warning")

    log.info("quiet")
    log.warning("loud", lease_id="l-1", at=NOW)
    LogAlarms(log).alarm("release_stuck", "look", {"tries": 3})

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["loud", "alarm"]
    assert (lines[0]["lease_id"], lines[0]["level"], lines[0]["time"]) == (
        "l-1",
        "warning",
        "2026-03-01T00:00:00.000+00:00",
    )
    assert (lines[1]["alarm"], lines[1]["tries"], lines[1]["level"]) == ("release_stuck", 3, "error")
