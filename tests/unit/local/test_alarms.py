"""Alarms on one computer: into the log, and one line to whoever looks at the terminal."""

from gpulease_local.deps import LogAlarms

from tests.support.api_world import KeptLog


def test_an_alarm_is_logged_and_shown_on_one_line() -> None:
    log, shown = KeptLog(), list[str]()

    LogAlarms(log, shown.append).alarm("SweepIncomplete", "vultr/ewr is not verified\nsince 10:00", {"region": "ewr"})

    assert log.events("error") == ["alarm"]
    assert shown == ["ALARM SweepIncomplete: vultr/ewr is not verified since 10:00"]


def test_without_a_terminal_it_is_logged() -> None:
    log = KeptLog()

    LogAlarms(log).alarm("SweepIncomplete", "text", {})

    assert log.events("error") == ["alarm"]
