"""C65, C66, C67: windows of a policy through `check_leases` in virtual time, with ticks that are late or lost and a
control plane in another zone. The same as pure rules: tests/unit/domain/test_windows.py."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from gpulease.domain.lease import LeaseState, Reason

from tests.cases.conftest import NewCloud
from tests.support.cloud_world import ONE_AWS, CloudWorld

S = LeaseState
MINUTE, HOUR = 60.0, 3600.0
NEW_YORK, CENTRAL = "America/New_York", "America/Chicago"
Ticks = Callable[[datetime], bool]


@pytest.fixture
def reworded() -> bool:
    """Nothing here depends on what a provider says: once is enough."""
    return False


def at(text: str, zone: str = "UTC") -> datetime:
    """`2026-01-09 06:05` of that zone."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


class Schedule:
    """A machine at AWS under windows, and which ticks of `check_leases` come."""

    def __init__(self, new_cloud: NewCloud, begins: datetime, *windows: dict[str, str]) -> None:
        self.comes: Ticks = lambda now: True
        self.cloud: CloudWorld = new_cloud(start=begins.timestamp(), wrap_schedule=self._wrap)
        policy = {"windows": list(windows), "idle": {"enabled": False}}
        self.lease_id = self.cloud.running(**ONE_AWS, policy=policy)

    def until(self, moment: datetime) -> None:
        """Let time pass until then."""
        self.cloud.stack.engine.run_until(moment.timestamp())

    def state(self) -> LeaseState:
        """Of the lease, now."""
        return self.cloud.lease(self.lease_id).state

    def decided(self, state: LeaseState) -> list[datetime]:
        """When the clock decided so, each time."""
        found: list[datetime] = []
        before: LeaseState | None = None
        for seconds, whose, now in self.cloud.states:
            if whose == self.lease_id:
                if now is state and before is not state:
                    found.append(datetime.fromtimestamp(self.cloud.t0 + seconds, UTC).replace(microsecond=0))
                before = now
        return found

    def _wrap(self, function: str, fire: Callable[[], None]) -> Callable[[], None]:
        if function != "CheckLeasesFunction":
            return fire
        return lambda: fire() if self.comes(datetime.fromtimestamp(self.cloud_time(), UTC)) else None

    def cloud_time(self) -> float:
        """Now, also for ticks."""
        return self.cloud.stack.clock.time()


@pytest.fixture
def in_melbourne(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The control plane's own zone."""
    monkeypatch.setenv("TZ", "Australia/Melbourne")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def off(start: str, end: str | None, zone: str) -> dict[str, Any]:
    """A window in which it is kept off."""
    return {"keep": "off", "start": start, "timezone": zone, **({"end": end} if end else {})}


@pytest.mark.usefixtures("in_melbourne")
def test_c65_day_and_hour_are_those_of_the_schedules_own_zone(new_cloud: NewCloud) -> None:
    """On from Monday to Friday, 06:00 to 22:00 of US/Central; Friday 06:05 there is Saturday in Melbourne."""
    office = off("0 22 * * 1-5", "0 6 * * 1-5", CENTRAL)
    plan = Schedule(new_cloud, at("2026-01-08 20:00", CENTRAL), office)

    seen = {}
    for moment in (
        "2026-01-08 21:55",
        "2026-01-08 22:05",
        "2026-01-09 05:55",
        "2026-01-09 06:05",
        "2026-01-09 21:55",
        "2026-01-09 22:05",
        "2026-01-11 23:00",
        "2026-01-12 06:05",
    ):
        plan.until(at(moment, CENTRAL))
        seen[moment] = str(plan.state())

    on, off_ = "running", "paused"
    assert list(seen.values()) == [on, off_, off_, on, on, off_, off_, on], seen
    assert plan.cloud.lease(plan.lease_id).reason is None
    plan.cloud.assert_right_at_the_end()


def every_five_minutes(now: datetime) -> bool:
    return now.minute % 5 == 0 and now.second == 0


@pytest.mark.parametrize(
    ("stop", "lost", "stopped"),
    [
        ("59 23 * * *", None, "2026-01-13 00:00"),
        ("59 23 * * *", "2026-01-13 00:00", "2026-01-13 00:05"),
        ("0 0 * * *", None, "2026-01-13 00:00"),
        ("0 0 * * *", "2026-01-13 00:00", "2026-01-13 00:05"),
    ],
    ids=["between-two-ticks", "tick-lost", "at-midnight", "at-midnight-and-lost"],
)
def test_c66_a_stop_just_before_midnight_is_made_at_the_first_tick_after_it(
    new_cloud: NewCloud, stop: str, lost: str | None, stopped: str
) -> None:
    plan = Schedule(new_cloud, at("2026-01-12 22:00", CENTRAL), off(stop, None, CENTRAL))
    without = at(lost, CENTRAL) if lost else None
    plan.comes = lambda now: every_five_minutes(now) and now != without

    plan.until(at("2026-01-12 23:58", CENTRAL))
    assert plan.state() is S.RUNNING
    plan.until(at("2026-01-13 12:00", CENTRAL))

    assert plan.decided(S.PAUSING) == [at(stopped, CENTRAL)]
    assert plan.state() is S.PAUSED, "without a start time it stays off"
    pause = plan.cloud.lease(plan.lease_id).pause
    assert pause is not None and pause.reason is Reason.WINDOW
    plan.cloud.assert_right_at_the_end()


def test_c66_ticks_that_are_lost_for_hours_are_made_up_for(new_cloud: NewCloud) -> None:
    plan = Schedule(new_cloud, at("2026-01-12 22:00", CENTRAL), off("59 23 * * *", None, CENTRAL))
    gap = (at("2026-01-12 23:30", CENTRAL), at("2026-01-13 03:00", CENTRAL))
    plan.comes = lambda now: not gap[0] <= now < gap[1]

    plan.until(at("2026-01-13 04:00", CENTRAL))

    assert plan.decided(S.PAUSING) == [gap[1]]
    plan.cloud.assert_right_at_the_end()


def test_c67_a_stop_time_that_does_not_exist_is_made_once_after_the_gap(new_cloud: NewCloud) -> None:
    plan = Schedule(new_cloud, at("2026-03-07 12:00", NEW_YORK), off("30 2 * * *", "0 9 * * *", NEW_YORK))

    plan.until(at("2026-03-08 12:00", NEW_YORK))

    [stopped], [resumed] = plan.decided(S.PAUSING), plan.decided(S.RESUMING)
    assert stopped == at("2026-03-08 03:00", NEW_YORK) == datetime(2026, 3, 8, 7, 0, tzinfo=UTC)
    assert resumed == at("2026-03-08 09:00", NEW_YORK), "the same wall-clock hour as the day before"
    plan.until(at("2026-03-09 02:35", NEW_YORK))
    assert plan.decided(S.PAUSING)[1:] == [at("2026-03-09 02:30", NEW_YORK)]
    plan.cloud.assert_right_at_the_end()


def test_c67_times_that_exist_twice_stop_and_start_once(new_cloud: NewCloud) -> None:
    plan = Schedule(new_cloud, at("2026-10-31 12:00", NEW_YORK), off("30 1 * * *", "45 1 * * *", NEW_YORK))
    shown = plan.cloud.view(plan.lease_id)

    plan.until(at("2026-11-01 12:00", NEW_YORK))

    assert plan.decided(S.PAUSING) == [datetime(2026, 11, 1, 5, 30, tzinfo=UTC)], "the first 01:30, in EDT"
    assert plan.decided(S.RESUMING) == [datetime(2026, 11, 1, 5, 45, tzinfo=UTC)]
    assert plan.state() is S.RUNNING
    assert "2026-11-01 01:30 -04:00 (America/New_York)" in str(shown), "with its offset"
    after = plan.cloud.view(plan.lease_id)
    assert "2026-11-02 01:30 -05:00 (America/New_York)" in str(after)
    plan.cloud.assert_right_at_the_end()


def test_c65_a_window_that_keeps_warm_brings_an_idle_machine_back(new_cloud: NewCloud) -> None:
    """Resume by a window: what its user paused stays paused."""
    warm = {"keep": "warm", "start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "timezone": CENTRAL}
    night = off("0 20 * * *", "0 7 * * *", CENTRAL)
    plan = Schedule(new_cloud, at("2026-01-12 18:30", CENTRAL), warm, night)
    plan.until(at("2026-01-12 20:05", CENTRAL))
    assert plan.state() is S.PAUSED

    plan.until(at("2026-01-13 07:05", CENTRAL))
    assert plan.state() is S.RUNNING
    plan.cloud.post(f"/v1/leases/{plan.lease_id}/pause")
    plan.until(at("2026-01-14 12:00", CENTRAL))

    assert plan.state() is S.PAUSED, "its user's word"
    plan.cloud.assert_right_at_the_end()
