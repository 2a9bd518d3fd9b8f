"""The simulated account over HTTP on loopback, its control routes and its process."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError
from gpulease_sim.aws import AwsCloud, lost_answer
from gpulease_sim.aws.server import serve
from gpulease_sim.http_server import ServerHandle
from gpulease_sim.wall_clock import ScaledClock

from tests.support.ec2_world import REGION, code_of, steady

SCALE = 1000.0
QUICK = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10)


@pytest.fixture
def clock() -> ScaledClock:
    return ScaledClock.from_now(SCALE)


@pytest.fixture
def cloud(clock: ScaledClock) -> AwsCloud:
    return AwsCloud(clock, 1, steady())


@pytest.fixture
def server(cloud: AwsCloud, clock: ScaledClock) -> Iterator[ServerHandle]:
    with serve(cloud, clock=clock) as handle:
        yield handle


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        opened.trust_env = False
        yield opened


def at(url: str, service: str = "ec2") -> Any:
    open_client: Any = boto3.client
    return open_client(service, region_name=REGION, endpoint_url=url, config=QUICK)


def launch(ec2: Any, image: str, **more: Any) -> str:
    base = {"ImageId": image, "InstanceType": "g6.xlarge", "MinCount": 1, "MaxCount": 1}
    return str(ec2.run_instances(**base, **more)["Instances"][0]["InstanceId"])


def test_boto3_lives_a_whole_life_over_a_socket_with_its_own_waiters(server: ServerHandle, cloud: AwsCloud) -> None:
    ec2 = at(server.url)
    made = launch(ec2, cloud.image_id(REGION))
    delay = {"Delay": 0, "MaxAttempts": 2000}
    ec2.get_waiter("instance_running").wait(InstanceIds=[made], WaiterConfig=delay)
    ec2.get_waiter("instance_status_ok").wait(InstanceIds=[made], WaiterConfig=delay)
    ec2.stop_instances(InstanceIds=[made])
    ec2.get_waiter("instance_stopped").wait(InstanceIds=[made], WaiterConfig=delay)
    ec2.terminate_instances(InstanceIds=[made])
    ec2.get_waiter("instance_terminated").wait(InstanceIds=[made], WaiterConfig=delay)

    assert [each.kind for each in cloud.book.billed()] == []


def test_all_three_services_answer_at_one_address(server: ServerHandle, cloud: AwsCloud) -> None:
    path = next(iter(cloud.settings.image_parameters))

    assert at(server.url, "sts").get_caller_identity()["Account"] == cloud.settings.account_id
    assert at(server.url, "ssm").get_parameter(Name=path)["Parameter"]["Value"] == cloud.image_id(REGION)


def test_a_cut_connection_is_really_cut(server: ServerHandle, cloud: AwsCloud) -> None:
    ec2 = at(server.url)
    cloud.faults.add(lost_answer("RunInstances", delay_seconds=0))
    with pytest.raises(ConnectionClosedError):
        launch(ec2, cloud.image_id(REGION))

    assert len(cloud.book.billed()) == 2


def test_control_routes_set_and_tell(server: ServerHandle, cloud: AwsCloud, session: requests.Session) -> None:
    control = server.url + "/_control/"
    ec2 = at(server.url)
    made = launch(ec2, cloud.image_id(REGION), UserData="hello")
    (machine, volume) = session.get(control + "book").json()["objects"]
    assert (machine["id"], machine["kind"], volume["kind"]) == (made, "instance", "volume")
    assert abs(machine["created"] - session.get(control + "clock").json()["now"]) < 1e9
    session.post(control + "faults", json={"faults": [{"action": "StopInstances", "code": "InternalError"}]})
    assert code_of(ec2.stop_instances, InstanceIds=[made]) == "InternalError"
    session.post(control + "settings", json={"vcpu_limit": 0, "instance": {"running_seconds": 7}})
    assert cloud.settings.vcpu_limit == 0
    assert cloud.settings.instance.running_seconds == (7, 7)
    assert session.post(control + "remove", json={"id": made}).status_code == 200
    assert session.post(control + "reset", json={}).status_code == 200

    assert session.get(control + "book").json() == {"objects": []}


@pytest.mark.parametrize(
    ("route", "body", "status"),
    [
        ("settings", {"colour": "red"}, 400),
        ("settings", {"vcpu_limit": "many"}, 400),
        ("faults", {"faults": [{"colour": "red"}]}, 400),
        ("faults", {}, 400),
        ("remove", {"id": "i-1"}, 400),
        ("nothing", {}, 404),
    ],
)
def test_a_bad_control_call_is_refused(
    server: ServerHandle, session: requests.Session, route: str, body: dict[str, Any], status: int
) -> None:
    assert session.post(f"{server.url}/_control/{route}", json=body).status_code == status


def test_a_request_without_a_signature_is_refused(server: ServerHandle, session: requests.Session) -> None:
    answer = session.post(server.url, data={"Action": "DescribeInstances"})

    assert (answer.status_code, "AuthFailure" in answer.text) == (401, True)


def test_the_process_serves_and_ends_when_asked(pytestconfig: pytest.Config) -> None:
    command = [sys.executable, "-m", "gpulease_sim.aws", "--port", "0", "--time-scale", "100", "--seed", "3"]
    simulator = pytestconfig.rootpath / "simulator"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(simulator)) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert at(url).describe_instances()["Reservations"] == []
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
