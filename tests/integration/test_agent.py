"""The agent itself, as a process, against the real local API: ready, its script, its cache, outages, restarts."""

from functools import partial
from pathlib import Path

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.policy import Signal
from gpulease.domain.user_data import START_LOG_PATH
from gpulease.runtime.world import sleep

from tests.support.agent_world import AgentServer, Machine, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the agent is for Linux")


def test_a_report_makes_the_lease_run_and_the_script_runs_once(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    script = b"echo once >>'%s'\n" % str(tmp_path / "ran").encode()
    lease = server.up(gpu_count=1, plan_kinds=["vm"], start_script=script.decode())
    machine = Machine(tmp_path, server.user_data(lease), gpus=1)
    machines.append(machine)

    machine.boot()
    until(lambda: server.lease(lease).state is LeaseState.RUNNING)
    until(lambda: server.agent(lease).start_script == "done")
    first = server.agent(lease)
    machine.stop()
    machine.boot()
    until(lambda: server.agent(lease).version > first.version + 2)

    assert (first.gpus, first.gpu_models, first.problems) == (1, ("NVIDIA L40S",), ())
    assert (tmp_path / "ran").read_text(encoding="utf-8") == "once\n"
    assert server.lease(lease).state is LeaseState.RUNNING
    assert machine.token not in machine.said()


def test_c30_missing_gpus_start_nothing_and_the_machine_is_replaced_once(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    lease = server.up(gpu_count=1, plan_kinds=["vm"], start_script="echo ran\n")
    seen: set[bytes] = set()
    for number in (1, 2):
        data = until(lambda: (d := server.user_data(lease)) not in seen and d)
        seen.add(data)
        machine = Machine(tmp_path / str(number), data, gpus=0)
        machines.append(machine)
        machine.boot()
        until(partial(_has_failed, server, lease, number))

    until(lambda: server.lease(lease).state in (LeaseState.RELEASING, LeaseState.RELEASED))

    ended = server.lease(lease)
    assert ended.reason is Reason.GPU_CHECK_FAILED
    assert "0/1 GPUs" in ended.reason_detail
    assert len(ended.attempts) == 2
    assert not any(m.path(START_LOG_PATH).exists() for m in machines)


def _has_failed(server: AgentServer, lease: str, times: int) -> bool:
    return sum(a.reason is Reason.GPU_CHECK_FAILED for a in server.lease(lease).attempts) == times


def test_c33_a_script_that_fails_at_once_is_a_failed_boot(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    lease = server.up(gpu_count=1, plan_kinds=["vm"], start_script="echo no; exit 3\n")
    machine = Machine(tmp_path, server.user_data(lease), gpus=1)
    machines.append(machine)

    machine.boot()
    until(lambda: server.lease(lease).reason is not None)

    assert server.lease(lease).reason is Reason.BOOT_FAILED
    assert "ended with 3" in server.lease(lease).reason_detail
    assert machine.path(START_LOG_PATH).read_text(encoding="utf-8") == "no\n"


def test_signals_between_reports_are_told_and_reports_go_on_after_an_outage(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    lease = server.up(gpu_count=1, plan_kinds=["vm"])
    machine = Machine(tmp_path, server.user_data(lease), gpus=1)
    machines.append(machine)
    machine.boot()
    until(lambda: server.lease(lease).state is LeaseState.RUNNING)

    machine.has_gpus(1, percent=80)
    until(lambda: Signal.GPU in server.agent(lease).activity_at)
    machine.has_gpus(1)
    (machine.path("/run/gpulease") / "touch").touch()
    until(lambda: Signal.BUSY in server.agent(lease).activity_at)
    before = server.agent(lease).version
    server.close()
    until(lambda: "report not taken" in machine.said())
    used = machine.cpu_seconds()
    sleep(3)
    used_in_outage = machine.cpu_seconds() - used
    tries = machine.said().count("report not taken")
    server.start()
    until(lambda: server.agent(lease).version > before + 1)

    assert tries <= 6
    assert used_in_outage < 1.0
    assert machine.token not in machine.said()


def test_a_dead_token_is_asked_about_again_only_much_later(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    lease = server.up(gpu_count=1, plan_kinds=["vm"])
    machine = Machine(tmp_path, server.user_data(lease), gpus=1)
    machines.append(machine)
    machine.boot()
    until(lambda: server.lease(lease).state is LeaseState.RUNNING)

    record = server.agent(lease)
    until(lambda: _shut_out(server, lease))
    until(lambda: "no longer valid" in machine.said())
    sleep(2)

    assert record.token_sha256
    assert machine.said().count("no longer valid") == 1


def _shut_out(server: AgentServer, lease: str) -> bool:
    from gpulease.steps.agent_access import shut_out

    shut_out(lease, server.deps)
    return True


def test_a_cache_keeps_what_was_written_and_is_let_go_of_when_asked(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    lease = server.up(gpu_count=1, plan_kinds=["vm"])
    data = server.user_data(lease)
    volume = {"kind": "directory", "path": str(tmp_path / "volume")}
    cache = {"volume": volume, "mounts": ["/root/.cache"], "docker": False}
    machine = Machine(tmp_path / "a", data, gpus=1, cache=cache)
    machines.append(machine)
    machine.write("/root/.cache/old", b"was here")

    machine.boot()
    until(lambda: server.agent(lease).mounted == ("/root/.cache",))
    (machine.path("/root/.cache") / "new").write_text("kept", encoding="utf-8")
    agent = server.agent(lease)
    until(lambda: _asked_to_flush(server, lease))
    until(lambda: server.agent(lease).flushed_at is not None)
    machine.stop()
    let_go = server.agent(lease).mounted
    until(lambda: _asked_to_flush(server, lease, wanted=False))
    other = Machine(tmp_path / "b", data, gpus=1, cache=cache)
    machines.append(other)
    other.boot()
    until(lambda: (other.path("/root/.cache") / "new").exists())

    assert agent.problems == ()
    assert let_go == ()
    assert not (machine.path("/root/.cache") / "new").exists()
    assert (other.path("/root/.cache") / "new").read_text(encoding="utf-8") == "kept"
    assert (other.path("/root/.cache") / "old").read_text(encoding="utf-8") == "was here"


def _asked_to_flush(server: AgentServer, lease: str, *, wanted: bool = True) -> bool:
    from gpulease.errors import LeaseConflict

    agent = server.agent(lease)
    try:
        now = server.deps.clock.now() if wanted else None
        server.deps.agents.save(agent.model_copy(update={"flush_wanted_at": now}))
    except LeaseConflict:
        return False
    return True
