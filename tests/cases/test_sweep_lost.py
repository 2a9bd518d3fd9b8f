"""C16, C49, C53, C73, C78: what the ledger holds and the provider does not show; places that cannot be looked at."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from gpulease.domain.gate import Pause, pause_key, pause_text
from gpulease.domain.lease import LeaseState, Reason, execution_name
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.domain.sweep import SweepState
from gpulease.errors import LedgerUnavailable
from gpulease.steps import sweep
from gpulease_sim.vultr import Fault

from tests.support.case_world import ONE_METAL, ONE_VM, R_SECONDS, REGION, VM_PLAN
from tests.support.sweep_world import CHECK, NOBODYS, SWEEP, SweepWorld, marker, plant

RUNNING, RELEASED = LeaseState.RUNNING, LeaseState.RELEASED
WITH_NETWORK: dict[str, Any] = {**ONE_VM, "private_network": "required", "network_scope": "lease"}


@pytest.fixture
def world(reworded: bool) -> Iterator[SweepWorld]:
    made = SweepWorld(reworded=reworded)
    yield made
    made.close()


def _running(world: SweepWorld, **request: Any) -> str:
    lease_id = world.up(**request)
    world.until(lease_id, RUNNING, within=3000)
    return lease_id


def _in(region: str) -> dict[str, Any]:
    return {"regions": [region], "plans": [VM_PLAN], "plan_kinds": ["vm"]}


@pytest.mark.parametrize("missing", [(400, "invalid instance ID"), (404, "gone fishing")])
@pytest.mark.parametrize("request_", [WITH_NETWORK, ONE_METAL], ids=["vm-with-network", "bare-metal"])
def test_c16_a_machine_deleted_by_hand_is_shown_as_ended_and_its_network_goes(
    world: SweepWorld, missing: tuple[int, str], request_: dict[str, Any]
) -> None:
    world.set(not_found={"instance": missing, "bare_metal": missing})
    lease_id = _running(world, **request_)
    world.run_for(400 - world.now % R_SECONDS)
    deleted = world.now
    world.cloud.remove_by_hand(world.machine_of(lease_id).provider_id)

    ended = world.until(lease_id, LeaseState.RELEASING, within=2 * R_SECONDS)
    world.until(lease_id, RELEASED, within=200)

    assert ended <= deleted + 2 * R_SECONDS
    lease = world.lease(lease_id)
    assert lease.reason is Reason.LOST
    assert "outside of gpulease" in lease.reason_detail
    [told] = world.events(lease_id, "resource_lost")
    assert told.facts["provider_id"] == world.machine_of(lease_id).provider_id
    assert world.billed() == []
    assert not world.calls("DELETE", f"/.*/{told.facts['provider_id']}"), "what is gone is looked at, not deleted"
    world.assert_right_at_the_end()


def test_a_network_deleted_by_hand_beside_its_machine_leaves_a_warning(world: SweepWorld) -> None:
    lease_id = _running(world, **WITH_NETWORK)
    [network] = world.record(lease_id).of_kind(ResourceKind.NETWORK)
    headers = {"Authorization": "Bearer theirs"}
    world.cloud.handle(
        "POST",
        f"/instances/{world.machine_of(lease_id).provider_id}/vpcs/detach",
        {},
        {**headers, "Content-Type": "application/json"},
        json.dumps({"vpc_id": network.provider_id}).encode(),
    )
    world.run_for(60)
    answer = world.cloud.handle("DELETE", f"/vpcs/{network.provider_id}", {}, headers, b"")
    assert answer.status == 204, answer

    world.run_for(2 * R_SECONDS)

    assert world.lease(lease_id).state is RUNNING
    assert "was deleted outside of gpulease" in world.lease(lease_id).warnings[0]
    [row] = world.record(lease_id).of_kind(ResourceKind.NETWORK)
    assert (row.state, row.release_note) == (ResourceState.RELEASED, "lost")


def test_a_shared_network_deleted_by_hand_is_told_to_all_who_use_it_and_made_anew_for_the_next(
    world: SweepWorld,
) -> None:
    shared = {**ONE_VM, "private_network": "preferred", "network_scope": "owner"}
    leases = [_running(world, **shared) for _ in range(2)]
    [network] = world.billed("vpc")
    headers = {"Authorization": "Bearer theirs", "Content-Type": "application/json"}
    body = json.dumps({"vpc_id": network.id}).encode()
    for each in leases:
        path = f"/instances/{world.machine_of(each).provider_id}/vpcs/detach"
        world.cloud.handle("POST", path, {}, headers, body)
    world.run_for(150)
    answer = world.cloud.handle("DELETE", f"/vpcs/{network.id}", {}, headers, b"")
    assert answer.status == 204, answer

    world.run_for(2 * R_SECONDS)

    for each in leases:
        assert world.lease(each).state is RUNNING
        assert "was deleted outside of gpulease" in world.lease(each).warnings[0]
        assert len(world.events(each, "resource_lost")) == 1
    third = _running(world, **shared)
    [anew] = world.billed("vpc")
    assert anew.id != network.id
    assert world.lease(third).warnings == ()


def test_a_list_that_is_empty_by_mistake_ends_nothing(world: SweepWorld) -> None:
    leases = [_running(world) for _ in range(2)]
    empty = '{"instances": [], "meta": {"total": 0, "links": {"next": "", "prev": ""}}}'
    world.cloud.faults.add(Fault(method="GET", path="/instances", execute=False, body=empty, status=200))

    world.run_for(6 * R_SECONDS)

    assert [world.lease(each).state for each in leases] == [RUNNING, RUNNING]
    assert not world.calls("DELETE")
    world.cloud.faults.clear()
    world.assert_right_at_the_end()


def test_c49_half_a_ledger_concludes_nothing(world: SweepWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """35 machines; the 33rd works. The ledger's second page fails: everything after it looks unowned."""
    leases = [world.up() for _ in range(35)]
    for each in leases:
        world.until(each, RUNNING, within=300)
    assert world.ledger is not None
    read = world.ledger.open_resources

    def half(**where: Any) -> Iterator[Resource]:
        for number, row in enumerate(read(**where)):
            if number == 30:
                raise LedgerUnavailable("the second page")
            yield row

    monkeypatch.setattr(world.ledger, "open_resources", half)
    world.run_for(3 * R_SECONDS)
    assert not world.calls("DELETE")
    assert world.state_of().unowned == ()
    monkeypatch.setattr(world.ledger, "open_resources", read)
    world.run_for(2 * R_SECONDS)

    assert not world.calls("DELETE")
    assert (world.state_of().unowned, world.state_of().incomplete_runs) == ((), 0)
    assert {world.lease(each).state for each in leases} == {RUNNING}


def test_c53_one_region_cannot_be_listed(world: SweepWorld) -> None:
    regions = ("ewr", "ord", "fra")
    leases = {region: [_running(world, **_in(region)) for _ in range(2)] for region in regions}
    world.run_for(400 - world.now % R_SECONDS)
    begins = world.stack.clock.time()
    broken = world.now

    def fault(after: float, until: float, **answer: Any) -> Fault:
        return Fault(
            method="GET",
            path="/instances",
            region="ord",
            query="region=",
            execute=False,
            from_seconds=begins + after,
            until_seconds=begins + until,
            **answer,
        )

    world.cloud.faults.add(
        fault(0, 300, status=401, error="Invalid API token."),
        fault(300, 600, status=503, html=True),
        fault(600, 2400, status=200, body=""),
    )
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])

    world.at(broken + 2 * R_SECONDS)
    assert not world.alarms("SweepIncomplete")
    assert world.state_of("ord").incomplete_runs == 2
    world.at(broken + 2 * R_SECONDS + 60)
    world.gone_at(orphan)
    world.at(broken + 3 * R_SECONDS)
    [alarm] = world.alarms("SweepIncomplete")
    assert (alarm["region"], alarm["runs"]) == ("ord", 3)
    assert alarm["not_verified_since"] == f"{world.state_of('ord').last_complete_at:%Y-%m-%d %H:%M} UTC"
    assert [facts["account"] for facts in world.alarms("ProviderAuthFailed")] == ["vultr"]
    assert all(world.lease(each).state is RUNNING for of in leases.values() for each in of)

    world.at(broken + 2400 + R_SECONDS)
    assert world.state_of("ord").incomplete_runs == 0
    assert len(world.alarms("SweepIncomplete")) == 1
    assert {each.region for each in world.billed()} == set(regions)
    assert [call.path for call in world.calls("DELETE")] == [f"/instances/{orphan}"]
    world.assert_right_at_the_end()


def test_c53_what_vanishes_while_nobody_can_look_is_noticed_afterwards(world: SweepWorld) -> None:
    lease_id = _running(world)
    world.run_for(400 - world.now % R_SECONDS)
    begins = world.stack.clock.time()
    world.cloud.faults.add(
        Fault(method="GET", path="/instances", execute=False, status=503, until_seconds=begins + 2000)
    )
    world.cloud.remove_by_hand(world.machine_of(lease_id).provider_id)

    world.run_for(2000)
    assert world.lease(lease_id).state is RUNNING
    world.run_for(2 * R_SECONDS + 60)

    assert world.lease(lease_id).reason is Reason.LOST
    world.assert_right_at_the_end()


@pytest.mark.parametrize("at", [5, 40, 64, 75, 90])
def test_c73_an_execution_stopped_from_outside_leaves_a_machine_that_is_tracked_or_none(
    world: SweepWorld, at: float
) -> None:
    lease_id = world.up(**WITH_NETWORK)
    world.at(at)

    world.stack.engine.stop("provision", execution_name(lease_id, "provision", 1))
    stopped = world.now
    world.at(stopped + 2 * R_SECONDS)

    assert world.lease(lease_id).state is RUNNING
    world.assert_right_at_the_end()


@pytest.mark.parametrize("off", [{SWEEP}, {SWEEP, CHECK}], ids=["sweep", "all-schedules"])
def test_c78_schedules_that_stand_still_for_two_hours_hide_nothing_and_are_told(
    world: SweepWorld, off: set[str]
) -> None:
    deleted = _running(world)
    world.run_for(400 - world.now % R_SECONDS)
    world.off |= off
    becoming = world.up(**ONE_METAL)
    world.run_for(600)
    world.cloud.remove_by_hand(world.machine_of(deleted).provider_id)
    orphan = plant(world, [marker(f"{NOBODYS}.instance.1")])
    world.run_for(6600)
    assert world.lease(becoming).state is RUNNING, "a workflow needs no schedule"
    assert world.lease(deleted).state is RUNNING
    world.off.clear()
    back = world.now

    world.at(back + 2 * R_SECONDS + 60)

    assert world.lease(deleted).reason is Reason.LOST
    world.gone_at(orphan)
    [alarm] = world.alarms("SweepIncomplete")
    assert alarm["reason"] == "schedule_stopped"
    world.assert_right_at_the_end()


def test_c78_no_event_is_needed_to_notice(world: SweepWorld) -> None:
    deleted = _running(world)
    world.run_for(400 - world.now % R_SECONDS)
    happened = world.now
    world.cloud.remove_by_hand(world.machine_of(deleted).provider_id)
    becoming = world.up()

    world.at(happened + 2 * R_SECONDS)

    assert world.lease(deleted).reason is Reason.LOST
    assert world.lease(becoming).state is RUNNING
    assert world.machine_of(becoming).region == REGION
    world.assert_right_at_the_end()


class _ForgetfulOf:
    """Sweeps' memory that answers with a fault for one region, as a throttled partition does."""

    def __init__(self, inner: Any, region: str) -> None:
        self._inner, self._region = inner, region

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def save(self, state: SweepState) -> SweepState:
        if state.region == self._region:
            raise LedgerUnavailable("throttled")
        return cast(SweepState, self._inner.save(state))


@pytest.mark.parametrize("refused", ["fra", "ewr"])
def test_a_place_that_cannot_be_written_down_stops_no_other_and_fails_the_run(world: SweepWorld, refused: str) -> None:
    looked = ({"fra", "ewr"} - {refused}).pop()
    for region in ("fra", "ewr"):
        _running(world, name=f"in-{region}", **_in(region))
    world.run_for(R_SECONDS)
    world.off.add(SWEEP)
    world.run_for(R_SECONDS)
    deps = world.stack.stack.deps
    before = {region: world.state_of(region) for region in ("fra", "ewr")}

    with pytest.raises(LedgerUnavailable):
        sweep.run(replace(deps, sweeps=_ForgetfulOf(deps.sweeps, refused)))

    assert world.state_of(refused) == before[refused]
    assert world.state_of(looked).last_complete_at == deps.clock.now()
    world.off.discard(SWEEP)
    world.assert_right_at_the_end()


class _Waits:
    """`ports.Waits` of a function, in virtual time."""

    most_seconds = 90.0

    def __init__(self, world: SweepWorld) -> None:
        self._pass = world.run_for
        self.waited: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self._pass(seconds)


@pytest.mark.parametrize(("pause", "looked"), [(20, True), (110, False)])
def test_a_sweep_waits_for_an_account_that_was_told_to_wait_some_seconds(
    world: SweepWorld, pause: int, looked: bool
) -> None:
    _running(world)
    world.off |= {SWEEP, CHECK}
    world.run_for(R_SECONDS)
    deps, begins = world.stack.stack.deps, world.stack.stack.deps.clock.now()
    told = Pause(begins, begins + timedelta(seconds=pause))
    deps.shared.publish(pause_key("vultr"), pause_text(told), begins)
    waits = _Waits(world)

    report = sweep.run(replace(deps, waits=waits))

    assert (report.complete, report.incomplete) == ((1, 0) if looked else (0, 1))
    assert waits.waited == ([pause] if looked else [])
    assert (world.state_of().last_complete_at == begins) is looked
    world.off.clear()
    world.assert_right_at_the_end()
