"""`gpulease doctor` and `gpulease sweep`, against the API over a whole stack in virtual time."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpulease.domain.lease import LeaseState
from gpulease_sim.vultr import Fault

from tests.support.case_world import R_SECONDS
from tests.support.cli_world import Cli, real_api
from tests.support.fake_api import FakeApi
from tests.support.sweep_world import NOBODYS, SweepWorld, marker, plant


@pytest.fixture
def world() -> Iterator[SweepWorld]:
    made = SweepWorld()
    deps = made.stack.stack.deps
    object.__setattr__(deps, "policy", replace(deps.policy, admins=frozenset({"local:me"})))
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
        yield Cli(FakeApi(url), tmp_path, capsys, monkeypatch)
    assert stack.log.errors == []


def test_nothing_was_ever_asked_for(cli: Cli) -> None:
    assert cli.run("doctor").out == "Nothing was ever asked for; nothing is held.\n"


def test_doctor_shows_each_thing_its_price_and_what_becomes_of_it(cli: Cli, world: SweepWorld) -> None:
    lease_id = world.up(owner="local:me")
    world.until(lease_id, LeaseState.RUNNING, within=200)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])

    out = cli.run("doctor").out

    lines = out.splitlines()
    assert any(lease_id in line and line.startswith("held") and "$1.671" in line for line in lines)
    assert any(orphan in line and line.startswith("in nobody's hands") for line in lines)
    assert "vultr/ewr: compared just now" in lines
    assert "In nobody's hands: the sweep gives it back at its second sighting, within 10 minutes." in lines


def test_doctor_says_since_when_a_place_is_not_verified(cli: Cli, world: SweepWorld) -> None:
    lease_id = world.up(owner="local:me")
    world.until(lease_id, LeaseState.RUNNING, within=200)

    assert "vultr/ewr: not verified since the beginning" in cli.run("doctor", "--no-live").out
    world.run_for(R_SECONDS)
    assert "vultr/ewr: as the sweep of 2026-01-05" in cli.run("doctor", "--no-live").out
    world.cloud.faults.add(Fault(method="GET", path="/instances", execute=False, status=503))
    world.run_for(R_SECONDS)
    out = cli.run("doctor").out
    assert "vultr/ewr: not verified since 2026-01-05" in out
    assert "(sweeps that could not look: 1): vultr" in out


def test_json_is_what_the_api_said(cli: Cli) -> None:
    answer = json.loads(cli.run("doctor", "--json").out)

    assert [each["group"] for each in answer["groups"]] == ["held", "releasing", "unowned", "lost", "exempt"]


def test_sweep_acts_and_a_dry_run_does_not(cli: Cli, world: SweepWorld) -> None:
    lease_id = world.up(owner="local:me")
    world.until(lease_id, LeaseState.RUNNING, within=200)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    world.run_for(R_SECONDS + 120)

    dry = cli.run("sweep", "--dry-run")
    assert (dry.code, world.calls("DELETE")) == (0, [])
    assert "1 would be given back" in dry.out
    done = cli.run("sweep")

    assert f"{orphan} at vultr/ewr belongs to no open lease; it is being given back under {NOBODYS}" in done.out
    assert "1 of 1 places compared; 1 held; 1 given back; 0 ended" in done.out
    assert json.loads(cli.run("sweep", "--json").out)["skipped"] == 1
    world.run_for(60)
    world.gone_at(orphan)


def test_who_is_no_admin_is_told_what_to_use(cli: Cli, world: SweepWorld) -> None:
    deps = world.stack.stack.deps
    object.__setattr__(deps, "policy", replace(deps.policy, admins=frozenset()))

    refused = cli.run("sweep")

    assert refused.code == 5
    assert "only an admin can sweep" in refused.err
