"""The stack of this repository's template in virtual time: a whole lease costs milliseconds."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from gpulease.domain.lease import Lease, LeaseState
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_offers import SqliteOfferStore
from gpulease.ports import Policy
from gpulease_local.asl import VirtualClock, load_definition
from gpulease_local.asl.model import Task
from gpulease_local.books import all_records, compare, is_users
from gpulease_local.deps import Account, FixedSecrets, LineLog, LogAlarms
from gpulease_local.sim_transport import SimTransport
from gpulease_local.stack import Stack, World, with_wall_timeouts
from gpulease_local.template import read_template
from gpulease_local.world import DepsClock, OpenPorts, SeededIds, timed, virtual_sleep
from gpulease_sim.vultr import VultrCloud

START = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def cloud(clock: VirtualClock) -> VultrCloud:
    return VultrCloud(clock.time, seed=3)


@pytest.fixture
def lines() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def stack(clock: VirtualClock, cloud: VultrCloud, lines: io.StringIO, pytestconfig: pytest.Config) -> Iterator[Stack]:
    log = LineLog(lines, DepsClock(clock).now)
    ledger = SqliteLedger()
    world = World(
        clock=clock,
        sleep=virtual_sleep(clock),
        accounts={"vultr": Account("vultr", SimTransport(cloud, passed=virtual_sleep(clock)))},
        ledger=ledger,
        offers=SqliteOfferStore(ledger.file),
        ids=SeededIds(3),
        secrets=FixedSecrets(),
        probe=OpenPorts(cloud.ssh_open),
        notifier=LogAlarms(log),
        log=log,
        policy=Policy(deployment="test0"),
        wrap_invoke=timed(clock),
    )
    stack = Stack(read_template(pytestconfig.rootpath / "template.yaml"), world)
    stack.load()
    yield stack
    stack.close()


def _api(stack: Stack, method: str, path: str, body: str = "") -> dict[str, object]:
    answer = stack.functions.call(
        "ApiFunction",
        {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"content-type": "application/json"},
            "requestContext": {
                "http": {"method": method, "path": path, "sourceIp": "127.0.0.1", "protocol": "HTTP/1.1"},
                "requestId": "r",
                "stage": "$default",
                "authorizer": {"lambda": {"principalId": "local:kim"}},
            },
            "body": body,
            "isBase64Encoded": False,
        },
    )
    assert answer["statusCode"] in (200, 202), answer
    return answer  # type: ignore[no-any-return]


def _lease(stack: Stack) -> Lease:
    (lease,) = (record.lease for record in all_records(stack.deps.ledger) if is_users(record.lease))
    return lease


def test_a_lease_lives_its_whole_life_in_virtual_time(stack: Stack, cloud: VultrCloud, clock: VirtualClock) -> None:
    clock.begin_call()
    stack.fill_price_lists()
    clock.end_call()
    stack.start_schedules()

    _api(stack, "POST", "/v1/leases", '{"name": "one", "plan_kinds": ["vm"], "private_network": "preferred"}')
    stack.engine.run_until(START + 1200)
    between = _lease(stack)
    _api(stack, "DELETE", f"/v1/leases/{between.id}")
    stack.engine.run_until(START + 3600)

    assert (between.state, _lease(stack).state) == (LeaseState.RUNNING, LeaseState.RELEASED)
    found = compare(cloud.book_objects(), all_records(stack.deps.ledger), "test0", stack.deps.clock.now())
    assert found.clean, found.findings
    assert found.bills[0].book_usd == found.bills[0].ledger_usd > 0


def test_a_schedule_that_fails_is_logged_and_comes_again(stack: Stack, lines: io.StringIO) -> None:
    stack.start_schedules()
    ledger = stack.deps.ledger
    assert isinstance(ledger, SqliteLedger)
    ledger.close()

    stack.engine.run_until(START + 130)

    failed = [json.loads(line) for line in lines.getvalue().splitlines() if "function_failed" in line]
    assert [(line["function"], line["error"]) for line in failed] == [("CheckLeasesFunction", "LedgerUnavailable")] * 3


def test_where_time_runs_fast_a_task_keeps_its_time_of_the_computer() -> None:
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": "F", "Payload": {}},
        "TimeoutSeconds": 60,
        "End": True,
    }
    machine = load_definition({"StartAt": "T", "States": {"T": task}}, name="m")

    fast, real = with_wall_timeouts(machine, 100.0).states["T"], with_wall_timeouts(machine, 1.0).states["T"]

    assert isinstance(fast, Task)
    assert isinstance(real, Task)
    assert (fast.timeout_seconds, real.timeout_seconds) == (6000, 60)
