"""The agent itself, as a process, is given the time to save its cache when its lease is given back; and dies meanwhile.

Its object store is a folder, and rclone a script that takes as long as the case wants.
"""

import signal
from pathlib import Path

import pytest
from gpulease.domain.flush import FLUSH_TIME
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.user_data import agent_config_in

from tests.support.agent_world import SCALE, AgentServer, Machine, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the agent is for Linux")
REPORT_SECONDS = 1.0
"""Of the agent here, by the wall clock."""
RCLONE = """#!/bin/sh
# Copies between folders, with rclone's words and exit codes; what goes out takes its time.
remote() { echo "$1" | sed "s|^cache:|$0.store/|"; }
case "$1" in
  version) exit 0;;
  cat) f=$(remote "$2"); [ -f "$f" ] && cat "$f" || exit 4;;
  copy) case "$3" in cache:*) sleep %g;; esac; t=$(remote "$3"); mkdir -p "$t"; cp -a "$(remote "$2")/." "$t/";;
  copyto) t=$(remote "$3"); mkdir -p "$(dirname "$t")"; cp "$2" "$t";;
  check) diff -r "$2" "$(remote "$3")" >/dev/null;;
esac
"""


def booted(server: AgentServer, machines: list[Machine], folder: Path, saves_for: float) -> tuple[str, Machine]:
    """A running lease whose machine has something in its cache that its object store has not."""
    rclone = folder / "rclone"
    rclone.write_text(RCLONE % saves_for, encoding="utf-8")
    rclone.chmod(0o755)
    store = {"endpoint": "https://s3.invalid", "bucket": "bucket", "prefix": "models"}
    server.client.create_cache({"name": "models", "object_store": store})
    wish = {"name": "models", "mounts": ["/root/.cache"]}
    lease = server.up(gpu_count=1, plan_kinds=["vm"], cache=wish, policy={"idle": {"enabled": False}})
    data = server.user_data(lease)
    config = agent_config_in(data)
    assert config is not None
    cache = {**config["cache"], "volume": {"kind": "directory", "path": str(folder / "cache")}}
    commands = {"rclone": [str(rclone)], "apt-get": ["false"]}
    machine = Machine(folder, data, gpus=1, cache=cache, commands=commands)
    machines.append(machine)
    machine.boot()
    until(lambda: server.lease(lease).state is LeaseState.RUNNING)
    (machine.path("/root/.cache") / "model").write_text("weights", encoding="utf-8")
    return lease, machine


def saved_in(folder: Path) -> Path:
    return folder / "rclone.store/bucket/models/files/root/.cache/model"


def word_of(server: AgentServer, lease: str) -> str:
    flush = server.lease(lease).flush
    return flush.ended if flush is not None else ""


def flush_seconds(lease: Lease) -> float:
    """How long its machine was kept, by the API's clock."""
    assert lease.flush is not None and lease.flush.ended_at is not None
    return (lease.flush.ended_at - lease.flush.requested_at).total_seconds()


def test_what_was_written_last_is_in_the_object_store_before_the_machine_goes(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    takes = 7.0
    assert takes * SCALE > FLUSH_TIME.total_seconds(), "longer than it would be waited for without its word"
    lease, machine = booted(server, machines, tmp_path, takes)

    shown = server.client.release(lease)
    until(lambda: server.agent(lease).saving_at is not None)
    until(lambda: word_of(server, lease))
    ended = server.lease(lease)
    until(lambda: server.lease(lease).state is LeaseState.RELEASED)

    assert shown.cache_saving_until is not None and "cache to be saved" in shown.waiting_for
    assert word_of(server, lease) == "saved"
    assert saved_in(tmp_path).read_text(encoding="utf-8") == "weights"
    assert takes * SCALE <= flush_seconds(ended)
    assert not (machine.path("/root/.cache") / "model").exists(), "let go of"
    kinds = [event.kind for event in server.client.all_events(lease)]
    assert "cache_saved" in kinds and "cache_not_saved" not in kinds


def test_an_agent_that_is_killed_while_it_saves_holds_the_machine_no_longer_than_its_last_word(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    lease, machine = booted(server, machines, tmp_path, 12.0)

    server.client.release(lease)
    until(lambda: server.agent(lease).saving_at is not None)
    machine.stop(signal.SIGKILL)
    last_word = server.agent(lease).saving_at
    until(lambda: server.lease(lease).state is LeaseState.RELEASED)

    ended = server.lease(lease)
    assert last_word is not None and ended.flush is not None and ended.flush.ended_at is not None
    assert ended.flush.ended == "late"
    waited = (ended.flush.ended_at - last_word).total_seconds()
    assert waited <= FLUSH_TIME.total_seconds() + 2 * REPORT_SECONDS * SCALE
    assert not saved_in(tmp_path).exists()
    assert "cache_not_saved" in [event.kind for event in server.client.all_events(lease)]


def test_one_that_comes_back_is_asked_again_and_saves_after_all(
    server: AgentServer, machines: list[Machine], tmp_path: Path
) -> None:
    lease, machine = booted(server, machines, tmp_path, 1.0)

    server.client.release(lease)
    until(lambda: server.agent(lease).saving_at is not None)
    machine.stop(signal.SIGKILL)
    machine.boot()
    until(lambda: word_of(server, lease))

    assert word_of(server, lease) == "saved"
    assert saved_in(tmp_path).read_text(encoding="utf-8") == "weights"
