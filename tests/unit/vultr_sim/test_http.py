"""The simulated provider over HTTP on loopback, its control routes and its process."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from gpulease_sim.http_server import ServerHandle
from gpulease_sim.vultr import Fault, VultrCloud, lost_answer
from gpulease_sim.vultr.server import serve
from gpulease_sim.wall_clock import ScaledClock

from tests.support.vultr_world import GPU_VM, KEY, steady

SCALE = 1000.0
CREATE = {"region": "ord", "plan": GPU_VM, "os_id": 1743, "label": "x"}


@pytest.fixture
def cloud() -> VultrCloud:
    return VultrCloud(ScaledClock.from_now(SCALE), 1, steady())


@pytest.fixture
def server(cloud: VultrCloud) -> Iterator[ServerHandle]:
    clock = cloud.clock
    assert isinstance(clock, ScaledClock)
    with serve(cloud, clock=clock) as handle:
        yield handle


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        opened.headers["Authorization"] = f"Bearer {KEY}"
        opened.trust_env = False
        yield opened


def test_one_connection_serves_many_calls(server: ServerHandle) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=5)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}

    def call(method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        connection.request(method, f"/v2{path}", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    status, created = call("POST", "/vpcs", '{"region": "ord"}')
    opened = connection.sock
    path = f"/vpcs/{json.loads(created)['vpc']['id']}"
    assert [call("GET", path)[0] for _ in range(20)] == [200] * 20
    assert call("DELETE", path) == (204, b"")
    assert call("GET", path)[0] == 404

    assert status == 201
    assert opened is not None and connection.sock is opened
    connection.close()


def test_a_cut_answer_closes_the_connection(cloud: VultrCloud, server: ServerHandle, session: requests.Session) -> None:
    cloud.faults.add(lost_answer("POST", "/instances"))

    with pytest.raises(requests.ConnectionError):
        session.post(f"{server.url}/v2/instances", json=CREATE)

    assert [each.label for each in cloud.book_objects()] == ["x"]
    assert session.get(f"{server.url}/v2/instances").status_code == 200


def test_the_time_a_call_takes_is_waited(cloud: VultrCloud, server: ServerHandle, session: requests.Session) -> None:
    cloud.faults.add(Fault(path="/account", delay_seconds=60 * SCALE))

    with pytest.raises(requests.ReadTimeout):
        session.get(f"{server.url}/v2/account", timeout=0.2)


def test_a_quoted_query_reaches_the_filter(cloud: VultrCloud, server: ServerHandle, session: requests.Session) -> None:
    session.post(f"{server.url}/v2/instances", json={**CREATE, "tags": ["gpulease:d/1=ü &x"]})

    found = session.get(f"{server.url}/v2/instances", params={"tag": "gpulease:d/1=ü &x"}).json()

    assert found["meta"]["total"] == 1


def test_clients_behind_different_addresses_have_limits_of_their_own(
    cloud: VultrCloud, server: ServerHandle, session: requests.Session
) -> None:
    cloud.settings = steady(requests_per_hour=1)
    mine, other = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}

    statuses = [session.get(f"{server.url}/v2/account", headers=each).status_code for each in (mine, mine, other)]

    assert statuses == [200, 429, 200]


# Control routes: the first four are shared with other simulators of this provider


def control(session: requests.Session, server: ServerHandle, route: str, body: Any) -> requests.Response:
    return session.post(f"{server.url}/_control/{route}", json=body)


def test_boot_seconds_are_wall_clock_seconds(
    cloud: VultrCloud, server: ServerHandle, session: requests.Session
) -> None:
    assert control(session, server, "settings", {"boot_seconds": 12.5}).status_code == 204

    assert cloud.settings.vm.active_seconds == cloud.settings.metal.active_seconds == (12_500, 12_500)


def test_the_book_tells_wall_clock_times_of_servers_and_networks(
    cloud: VultrCloud, server: ServerHandle, session: requests.Session
) -> None:
    vpc = session.post(f"{server.url}/v2/vpcs", json={"region": "ord", "description": "d"}).json()["vpc"]["id"]
    session.post(f"{server.url}/v2/reserved-ips", json={"region": "ord", "ip_type": "v4"})
    instance = session.post(f"{server.url}/v2/instances", json=CREATE).json()["instance"]["id"]
    cloud.machine(instance).gone_at = cloud.machine(instance).created + 30
    cloud.account.machine_changed(cloud.machine(instance))
    entry = cloud.book.entry(instance)
    while cloud.now() < entry.destroyed_from:
        pass

    objects = session.get(f"{server.url}/_control/book").json()["objects"]

    assert [(each["kind"], each["id"], each["label"], each["plan"]) for each in objects] == [
        ("vpc", vpc, "d", None),
        ("instance", instance, "x", GPU_VM),
    ]
    machine = objects[1]
    assert set(machine) == {"kind", "id", "label", "region", "plan", "created", "active", "destroyed"}
    assert machine["active"] - machine["created"] == pytest.approx(20 / SCALE, abs=1e-4)
    assert machine["destroyed"] - machine["created"] == pytest.approx(30 / SCALE, abs=1e-4)
    everything = session.get(f"{server.url}/_control/book?all=1").json()["objects"]
    assert [each["kind"] for each in everything] == ["vpc", "reserved_ip", "instance"]
    assert everything[2]["hourly_usd"] == "1.671"


def test_faults_are_replaced_and_act(cloud: VultrCloud, server: ServerHandle, session: requests.Session) -> None:
    fault = {"method": "GET", "path": "/(account|regions)", "execute": False, "status": 500, "error": "boom"}
    assert control(session, server, "faults", {"faults": [fault]}).status_code == 204
    assert session.get(f"{server.url}/v2/account").json() == {"error": "boom", "status": 500}
    assert session.get(f"{server.url}/v2/accounts").status_code == 404

    assert control(session, server, "faults", {"faults": [{"delay_seconds": 0.5, "body": {"odd": 1}}]})
    assert cloud.faults.faults()[0].delay_seconds == 500
    assert control(session, server, "faults", {"faults": []}).status_code == 204
    assert session.get(f"{server.url}/v2/account").status_code == 200


def test_reset_empties_everything(cloud: VultrCloud, server: ServerHandle, session: requests.Session) -> None:
    session.post(f"{server.url}/v2/instances", json=CREATE)
    control(session, server, "faults", {"faults": [{"status": 500}]})
    control(session, server, "settings", {"instance_limit": 0})

    assert control(session, server, "reset", {}).status_code == 204

    assert session.get(f"{server.url}/_control/book").json() == {"objects": []}
    assert session.get(f"{server.url}/v2/instances").json()["instances"] == []
    assert cloud.settings == steady()


def test_ids_from_before_a_reset_do_not_come_again(server: ServerHandle, session: requests.Session) -> None:
    first = session.post(f"{server.url}/v2/instances", json=CREATE).json()["instance"]["id"]
    control(session, server, "reset", {})

    second = session.post(f"{server.url}/v2/instances", json=CREATE).json()["instance"]["id"]

    assert second != first
    assert session.get(f"{server.url}/v2/instances/{first}").status_code == 404


def test_any_setting_can_be_changed_by_name(cloud: VultrCloud, server: ServerHandle, session: requests.Session) -> None:
    body = {
        "reworded": True,
        "vm": {"ok_seconds": 7, "stuck": "pending"},
        "block": {"attach_seconds": 3, "attach_lost_probability": 0.5},
        "rules": [{"match": "^a", "change": {"deletes_ignored": 1}}],
        "capacity": {"ord/*": 2},
        "not_found": {"instance": [400, "gone"]},
        "monthly_fee_limit_usd": "100.5",
        "requests_per_second": None,
    }

    assert control(session, server, "settings", body).status_code == 204

    assert cloud.settings.reworded
    assert (cloud.settings.vm.ok_seconds, cloud.settings.vm.stuck) == ((7, 7), "pending")
    assert cloud.settings.vm.active_seconds == steady().vm.active_seconds
    assert (cloud.settings.block.attach_seconds, cloud.settings.block.attach_lost_probability) == ((3, 3), 0.5)
    assert cloud.settings.block.detach_seconds == steady().block.detach_seconds
    assert cloud.settings.rules[0].change == {"deletes_ignored": 1}
    assert cloud.settings.not_found == {"instance": (400, "gone")}


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("settings", {"nonsense": 1}),
        ("settings", {"vm": {"nonsense": 1}}),
        ("settings", {"instance_limit": "many"}),
        ("settings", {"rules": [{"change": {"nonsense": 1}}]}),
        ("settings", {"boot_seconds": "soon"}),
        ("faults", {"faults": [{"nonsense": 1}]}),
        ("faults", {"faults": [{"effect": "explode"}]}),
        ("faults", {"faults": [{"path": "("}]}),
        ("faults", {}),
        ("remove", {"id": "nope"}),
        ("reset", []),
    ],
)
def test_a_bad_control_body_is_refused_and_changes_nothing(
    cloud: VultrCloud, server: ServerHandle, session: requests.Session, route: str, body: Any
) -> None:
    assert control(session, server, route, body).status_code == 400

    assert cloud.settings == steady()
    assert cloud.faults.faults() == []


def test_control_tells_whether_a_host_accepts_ssh_and_removes_by_hand(
    cloud: VultrCloud, server: ServerHandle, session: requests.Session
) -> None:
    control(session, server, "settings", {"vm": {"active_seconds": 0, "locked_seconds": 0, "ok_seconds": 0}})
    control(session, server, "settings", {"vm": {"ssh_seconds": 0}})
    instance = session.post(f"{server.url}/v2/instances", json=CREATE).json()["instance"]["id"]
    query = {"address": cloud.machine(instance).address}

    assert session.get(f"{server.url}/_control/ssh", params=query).json() == {"open": True}
    assert control(session, server, "remove", {"id": instance}).status_code == 204
    assert session.get(f"{server.url}/_control/ssh", params=query).json() == {"open": False}
    assert session.get(f"{server.url}/_control/clock").json()["time_scale"] == SCALE
    assert session.get(f"{server.url}/_control/nothing").status_code == 404


# The process


class Process:
    """The simulator as a child process on a free port."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "gpulease_sim.vultr", "--port", "0", *arguments]
        self._child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert self._child.stdout is not None
        self.base = self._child.stdout.readline().strip()

    def kill(self) -> None:
        """As `kill -9` does."""
        self._child.kill()
        self._end()

    def terminate(self) -> int:
        """As Ctrl-C does, politely; the exit status."""
        self._child.terminate()
        return self._end()

    def _end(self) -> int:
        assert self._child.stdout is not None
        self._child.stdout.close()
        return self._child.wait(10)


def test_a_killed_process_continues_with_account_book_settings_and_clock(
    tmp_path: Path, pytestconfig: pytest.Config, session: requests.Session
) -> None:
    folder = pytestconfig.rootpath / "simulator"
    arguments = ("--time-scale", "100", "--seed", "5", "--state", str(tmp_path / "state.db"))
    first = Process(folder, *arguments, "--settings", json.dumps({"instance_limit": 9}))
    origin = first.base.removesuffix("/v2")
    vpc = session.post(f"{first.base}/vpcs", json={"region": "ord"}).json()["vpc"]["id"]
    created = session.post(f"{first.base}/instances", json={**CREATE, "attach_vpc": [vpc]}).json()["instance"]
    book = session.get(f"{origin}/_control/book?all=1").json()["objects"]
    clock = session.get(f"{origin}/_control/clock").json()["now"]
    first.kill()

    second = Process(folder, *arguments)
    try:
        origin = second.base.removesuffix("/v2")
        shown = session.get(f"{second.base}/instances/{created['id']}").json()["instance"]
        assert (shown["label"], shown["tags"], shown["date_created"]) == ("x", [], created["date_created"])
        again = session.get(f"{origin}/_control/book?all=1").json()["objects"]
        assert [(each["id"], each["created"]) for each in again] == [(each["id"], each["created"]) for each in book]
        assert session.get(f"{origin}/_control/clock").json()["now"] >= clock
        assert session.delete(f"{second.base}/vpcs/{vpc}").status_code == 400
        other = session.post(f"{second.base}/instances", json=CREATE).json()["instance"]
        assert other["id"] != created["id"]
        body = {"instance_limit": 2}
        assert session.post(f"{origin}/_control/settings", json=body).status_code == 204
        assert session.post(f"{second.base}/instances", json=CREATE).status_code == 400
    finally:
        status = second.terminate()
    assert status == 0
