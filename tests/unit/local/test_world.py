"""Clocks and ids of one computer, and the way to a simulated cloud."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gpulease.providers.http import Fault, TransportError
from gpulease_local.asl import TaskReply, VirtualClock
from gpulease_local.home import HomeRefused
from gpulease_local.sim_transport import SimTransport
from gpulease_local.world import DepsClock, OpenPorts, SeededIds, continued_clock, timed, virtual_sleep
from gpulease_sim.vultr import Fault as SimulatedFault
from gpulease_sim.vultr import VultrCloud, lost_answer


def _keep(file: Path, *, ago: float, simulated: float, scale: float) -> float:
    """Write a mapping that was made `ago` seconds ago, and return the wall time of now."""
    wall = continued_clock(file.with_name("scratch.json"), 1.0).time()
    file.write_text(json.dumps({"simulated": simulated, "wall": wall - ago, "scale": scale}))
    return wall


def test_simulated_time_goes_on_while_nothing_runs(tmp_path: Path) -> None:
    _keep(tmp_path / "clock.json", ago=100.0, simulated=5000.0, scale=60.0)

    clock = continued_clock(tmp_path / "clock.json", 60.0)

    assert clock.time() == pytest.approx(5000.0 + 100.0 * 60.0, abs=60.0)


def test_another_scale_begins_where_the_old_one_has_come_to(tmp_path: Path) -> None:
    _keep(tmp_path / "clock.json", ago=100.0, simulated=5000.0, scale=60.0)

    continued_clock(tmp_path / "clock.json", 1.0)
    again = continued_clock(tmp_path / "clock.json", 1.0)

    assert again.time() == pytest.approx(11_000.0, abs=60.0)


def test_a_wall_clock_that_was_set_back_does_not_take_simulated_time_back(tmp_path: Path) -> None:
    _keep(tmp_path / "clock.json", ago=-1000.0, simulated=5000.0, scale=60.0)

    assert continued_clock(tmp_path / "clock.json", 60.0).time() >= 5000.0


@pytest.mark.parametrize("text", ["", "[]", '{"simulated": 1}', '{"simulated": 1, "wall": "x", "scale": 1}'])
def test_a_broken_clock_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "clock.json").write_text(text)

    with pytest.raises(HomeRefused, match="clock"):
        continued_clock(tmp_path / "clock.json", 1.0)


def test_the_port_shows_the_engines_time_as_aware_utc() -> None:
    assert DepsClock(VirtualClock(0.0)).now().isoformat() == "1970-01-01T00:00:00+00:00"


def test_seeded_ids_are_the_same_for_the_same_seed_and_all_different() -> None:
    first, second, other = SeededIds(1), SeededIds(1), SeededIds(2)

    made = [first.lease_id() for _ in range(50)]

    assert made == [second.lease_id() for _ in range(50)]
    assert len(set(made)) == 50
    assert other.lease_id() not in made
    assert len(first.token()) == 32


def test_what_a_call_sleeps_is_how_long_it_took() -> None:
    clock = VirtualClock(10.0)
    sleep = virtual_sleep(clock)

    def invoke(name: str, payload: object) -> TaskReply:
        sleep(2.5)
        return TaskReply(value=clock.time())

    reply = timed(clock)(invoke)("f", {})

    assert (reply.value, reply.duration_seconds, clock.time()) == (12.5, 2.5, 10.0)


def test_a_simulated_port_is_open_when_the_cloud_says_so() -> None:
    probe = OpenPorts(lambda address, port: (address, port) == ("198.18.0.1", 22))

    assert probe.tcp_open("198.18.0.1", 22)
    assert not probe.tcp_open("198.18.0.1", 80)


class Pause:
    """Adds up what was slept."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def pause() -> Pause:
    return Pause()


@pytest.fixture
def cloud() -> VultrCloud:
    return VultrCloud(lambda: 1000.0)


@pytest.fixture
def get(cloud: VultrCloud, pause: Pause) -> Callable[[str], tuple[int, bytes]]:
    transport = SimTransport(cloud, passed=pause)

    def send(path: str) -> tuple[int, bytes]:
        answer = transport.send(
            "GET",
            f"https://api.vultr.com/v2{path}",
            headers={"Authorization": "Bearer k"},
            body=b"",
            connect_timeout=5,
            read_timeout=60,
        )
        return answer.status, answer.body

    return send


def test_a_request_reaches_the_simulated_cloud_with_its_query(get: Callable[[str], tuple[int, bytes]]) -> None:
    status, body = get("/regions?per_page=2")

    assert status == 200
    assert len(json.loads(body)["regions"]) == 2


def test_a_cut_connection_is_an_answer_lost(
    cloud: VultrCloud, pause: Pause, get: Callable[[str], tuple[int, bytes]]
) -> None:
    cloud.replace_faults([lost_answer("GET", "/regions", delay_seconds=30)])

    with pytest.raises(TransportError) as caught:
        get("/regions")

    assert caught.value.fault is Fault.ANSWER_LOST
    assert pause.seconds == 30


def test_an_answer_slower_than_the_read_timeout_is_lost_after_that_time(
    cloud: VultrCloud, pause: Pause, get: Callable[[str], tuple[int, bytes]]
) -> None:
    cloud.replace_faults([SimulatedFault(path="/regions", delay_seconds=600)])

    with pytest.raises(TransportError):
        get("/regions")

    assert pause.seconds == 60
