"""Scripted misbehaviour of the simulated API."""

import pytest
from gpulease_sim.vultr import ConnectionCut, Fault, lost_answer, outage

from tests.support.vultr_world import GPU_VM, START, VultrWorld, error_of, steady

CREATE = {"region": "ord", "plan": GPU_VM, "os_id": 1743, "label": "x"}


def test_a_create_can_be_carried_out_and_its_answer_cut() -> None:
    world = VultrWorld()
    world.cloud.faults.add(lost_answer("POST", "/instances"))

    with pytest.raises(ConnectionCut) as cut:
        world.call("POST", "/instances", CREATE)

    assert (cut.value.executed, cut.value.elapsed_seconds) == (True, 30)
    assert len(world.cloud.book.billed()) == 1
    world.call("POST", "/instances", CREATE)
    assert len(world.cloud.book.billed()) == 2


def test_a_create_can_answer_504_as_html_and_show_up_later() -> None:
    world = VultrWorld()
    world.cloud.faults.add(
        Fault(method="POST", path="/instances", status=504, html=True, delay_seconds=30, error="Gateway Time-out")
    )

    answer = world.call("POST", "/instances", CREATE)

    assert (answer.status, answer.headers["Content-Type"], answer.elapsed_seconds) == (504, "text/html", 30)
    assert b"Gateway Time-out" in answer.body
    assert world.now == START + 30
    assert [each["label"] for each in world.get("/instances", label="x")["instances"]] == ["x"]


def test_a_call_can_be_kept_from_being_carried_out() -> None:
    world = VultrWorld()
    machine_id = world.running_vm()
    world.cloud.faults.add(Fault(method="DELETE", path="/instances/.*", execute=False, status=500, error="no"))

    assert error_of(world.call("DELETE", f"/instances/{machine_id}")) == (500, "no")
    assert world.state(machine_id)[0] == "active"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("DELETE", "/instances/{vm}", None, 204),
        ("POST", "/instances/{vm}/halt", None, 204),
        ("PATCH", "/instances/{vm}", {"label": "changed"}, 202),
        ("POST", "/instances", CREATE, 202),
        ("POST", "/vpcs", {"region": "ord"}, 201),
    ],
)
def test_an_ignored_call_answers_well_and_does_nothing(
    method: str, path: str, body: dict[str, object] | None, status: int
) -> None:
    world = VultrWorld()
    machine_id = world.running_vm()
    before = (world.vm(machine_id), world.cloud.book.objects())
    world.cloud.faults.add(Fault(method=method, path="/.*", effect="ignore", times=1))

    answer = world.call(method, path.format(vm=machine_id), body)

    assert answer.status == status
    assert (world.vm(machine_id), world.cloud.book.objects()) == before
    assert world.get("/vpcs")["vpcs"] == []


def test_faults_have_windows_counts_and_skips() -> None:
    world = VultrWorld()
    world.cloud.faults.add(Fault(path="/account", skip=1, times=2, status=500, from_seconds=START + 10))

    def statuses(count: int) -> list[int]:
        return [world.call("GET", "/account").status for _ in range(count)]

    assert statuses(2) == [200, 200]
    world.wait(10)
    assert statuses(5) == [200, 500, 500, 200, 200]
    assert world.cloud.faults.acted() == [2]


def test_a_window_ends() -> None:
    world = VultrWorld()
    world.cloud.faults.add(Fault(path="/account", status=429, retry_after=10, until_seconds=START + 90))

    assert world.call("GET", "/account").headers["Retry-After"] == "10"
    world.wait(90)
    assert world.call("GET", "/account").status == 200


def test_the_first_matching_fault_acts() -> None:
    world = VultrWorld()
    world.cloud.faults.add(Fault(path="/a.*", status=500, times=1), Fault(path="/account", status=503))

    assert [world.call("GET", "/account").status for _ in range(2)] == [500, 503]
    assert world.call("GET", "/regions").status == 200
    world.cloud.faults.clear()
    assert world.call("GET", "/account").status == 200


def test_luck_is_seeded() -> None:
    def outcomes(seed: int) -> list[int]:
        world = VultrWorld(seed=seed)
        world.cloud.faults.add(Fault(path="/account", probability=0.3, status=500))
        return [world.call("GET", "/account").status for _ in range(200)]

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)
    assert 30 < outcomes(1).count(500) < 90


@pytest.mark.parametrize("body", ["", "{}", '{"instances": null}', "<html>"])
def test_the_body_can_be_replaced(body: str) -> None:
    world = VultrWorld()
    world.cloud.faults.add(Fault(method="GET", path="/instances", body=body))

    answer = world.call("GET", "/instances")

    assert (answer.status, answer.body) == (200, body.encode())


def test_a_region_can_be_dark_while_others_work() -> None:
    world = VultrWorld()
    dark, bright = world.running_vm(region="fra"), world.running_vm(region="ord")
    vpc = world.create_vpc("fra")
    world.cloud.faults.add(outage(world.now, world.now + 1200, region="fra", timeout_seconds=10))

    for method, path, body, query in (
        ("GET", f"/instances/{dark}", None, {}),
        ("DELETE", f"/instances/{dark}", None, {}),
        ("GET", "/instances", None, {"region": "fra"}),
        ("POST", "/instances", {**CREATE, "region": "fra"}, {}),
        ("DELETE", f"/vpcs/{vpc}", None, {}),
        ("GET", "/regions/fra/availability", None, {}),
    ):
        with pytest.raises(ConnectionCut) as cut:
            world.call(method, path, body, **query)
        assert (cut.value.executed, cut.value.elapsed_seconds) == (False, 10)
    assert world.state(bright)[0] == "active"
    assert world.get("/instances", region="ord")["meta"]["total"] == 1
    world.wait(1200)
    assert world.call("DELETE", f"/instances/{dark}").status == 204


def test_everything_can_be_dark() -> None:
    world = VultrWorld()
    world.cloud.faults.add(outage(None, None))

    with pytest.raises(ConnectionCut):
        world.call("GET", "/regions")
    assert world.cloud.calls[-1].status == 0


def test_faults_can_look_at_the_query_the_body_and_the_client() -> None:
    world = VultrWorld()
    world.cloud.faults.add(
        Fault(path="/instances", query="region=fra", status=401, error="Invalid API token."),
        Fault(method="POST", request_body='"label": "unlucky', status=500, execute=False),
        Fault(client="192.0.2.9", status=403),
    )

    assert world.call("GET", "/instances", region="fra").status == 401
    assert world.call("GET", "/instances", region="ord").status == 200
    assert world.call("POST", "/instances", {**CREATE, "label": "unlucky-1"}).status == 500
    assert world.call("POST", "/instances", CREATE).status == 202
    assert world.call("GET", "/account", client="192.0.2.9").status == 403


def test_scripted_texts_are_reworded_too() -> None:
    world = VultrWorld(steady(reworded=True))
    world.cloud.faults.add(Fault(path="/account", status=500, error="Server is currently locked"))

    status, text = error_of(world.call("GET", "/account"))

    assert status == 500
    assert "locked" not in text
