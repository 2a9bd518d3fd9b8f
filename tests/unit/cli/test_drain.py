"""`gpulease drain`, against the API over a whole stack in virtual time."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpulease.domain.lease import LeaseState

from tests.support.case_world import REGION
from tests.support.cli_world import Cli, WaitingClock, interrupt, real_api
from tests.support.fake_api import FakeApi
from tests.support.sweep_world import SweepWorld

ME = "local:me"


class PassingClock(WaitingClock):
    """Waiting lets the stack's time pass."""

    world: SweepWorld

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.world.run_for(seconds)


@pytest.fixture
def world() -> Iterator[SweepWorld]:
    made = SweepWorld()
    deps = made.stack.stack.deps
    object.__setattr__(deps, "policy", replace(deps.policy, admins=frozenset({ME})))
    yield made
    made.close()


@pytest.fixture
def cli(
    world: SweepWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cli]:
    stack = world.stack

    with real_api(
        lambda event: stack._timed(lambda: stack.stack.functions.call("ApiFunction", event))[0],
        stack.stack.deps.clock.now,
        lambda error: stack.log.error("request_failed", reason=str(error)),
    ) as url:
        clock = PassingClock()
        clock.world = world
        yield Cli(FakeApi(url), tmp_path, capsys, monkeypatch, clock=clock)
    assert stack.log.errors == []


def running(world: SweepWorld) -> str:
    lease_id = world.up()
    world.until(lease_id, LeaseState.RUNNING, within=300)
    return lease_id


def test_it_ends_when_nothing_is_billed_any_more(cli: Cli, world: SweepWorld) -> None:
    lease_id = running(world)

    result = cli.run("drain", "--yes")

    assert result.code == 0
    assert result.out == "Nothing is billed any more: the stack may be deleted.\n"
    assert "1 lease is open" in result.err
    assert world.lease(lease_id).state is LeaseState.RELEASED


def test_what_is_still_billed_is_named_where_the_time_is_over(cli: Cli, world: SweepWorld) -> None:
    world.machine(stuck="destruction")
    machine = world.machine_of(running(world)).provider_id

    result = cli.run("drain", "--yes", "--timeout", "2m")

    assert result.code == 6
    assert any(line.startswith("still billed: instance vultr/") and machine in line for line in result.out.splitlines())
    assert result.out.splitlines()[-1].startswith("Not done: 1 lease is open, 1 thing is still billed (")


def test_no_wait_and_status_say_how_far_it_is(cli: Cli, world: SweepWorld) -> None:
    running(world)

    begun = cli.run("drain", "--yes", "--no-wait", "--json")
    world.run_for(120)
    status = cli.run("drain", "--status")

    assert (begun.code, json.loads(begun.out)["done"]) == (1, False)
    assert (status.code, status.out) == (0, "Nothing is billed any more: the stack may be deleted.\n")


def test_status_alone_changes_nothing(cli: Cli, world: SweepWorld) -> None:
    lease_id = running(world)

    result = cli.run("drain", "--status")

    assert result.code == 1
    assert result.out.splitlines()[-1] == "New leases are taken: the deployment is not being drained."
    assert world.lease(lease_id).state is LeaseState.RUNNING


def test_up_is_refused_meanwhile_and_taken_again_afterwards(cli: Cli, world: SweepWorld) -> None:
    cli.run("drain", "--yes")

    refused = cli.run("up", "--region", REGION, "--no-wait")
    off = cli.run("drain", "--off")
    taken = cli.run("up", "--region", REGION, "--no-wait")

    assert refused.code == 5
    assert "the deployment is being drained" in refused.err
    assert off.out == "New leases are taken again.\n"
    assert taken.code == 0


def test_a_cache_is_named_with_its_price_and_how_to_remove_it(cli: Cli, world: SweepWorld) -> None:
    body = {"name": "models", "provider": "vultr", "region": REGION, "size_gb": 50}
    world.stack.api("POST", "/v1/caches", body, owner=ME)
    world.run_for(120)

    result = cli.run("drain", "--yes")

    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[0].startswith("still billed: cache models of ")
    assert lines[0].endswith("remove it with `gpulease cache rm models`")
    assert lines[-1] == "Apart from caches nothing is billed any more. Deleting the stack does not remove them."


def test_a_terminal_is_asked_and_no_changes_nothing(cli: Cli, world: SweepWorld) -> None:
    lease_id = running(world)
    cli.typed = "n\n"

    result = cli.run("drain")

    assert result.code == 1
    assert "1 lease of everybody" in result.err + result.out
    assert world.lease(lease_id).state is LeaseState.RUNNING


def test_an_interruption_ends_the_waiting_only(cli: Cli, world: SweepWorld) -> None:
    running(world)
    cli.clock.on_sleep.append(interrupt)

    result = cli.run("drain", "--yes")

    assert result.code == 130
    assert "giving back goes on" in result.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["drain"], "needs --yes where nobody can be asked: it ends everybody's leases"),
        (["drain", "--off", "--status"], "--off: contradicts --status; give one of the two"),
        (["drain", "--off", "--wait"], "--off: there is nothing to wait for"),
        (["drain", "--yes", "--no-wait", "--timeout", "1m"], "--timeout: contradicts --no-wait; give one of the two"),
    ],
)
def test_what_contradicts_itself_is_refused(cli: Cli, words: list[str], error: str) -> None:
    result = cli.run(*words)

    assert (result.code, result.error) == (2, error)


def test_only_an_admin_may(cli: Cli, world: SweepWorld) -> None:
    deps = world.stack.stack.deps
    object.__setattr__(deps, "policy", replace(deps.policy, admins=frozenset()))

    result = cli.run("drain", "--yes")

    assert result.code == 5
    assert "only an admin" in result.err
