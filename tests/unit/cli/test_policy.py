"""What happens to a lease by itself, said on the command line and understood by the real API."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_world import World
from tests.support.cli_world import Cli, api_over
from tests.support.fake_api import FakeApi


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def cli(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cli]:
    monkeypatch.chdir(tmp_path)
    with api_over(world) as url:
        yield Cli(FakeApi(url), tmp_path, capsys, monkeypatch)
    assert world.log.events("error") == []


def asked(cli: Cli, *options: str) -> dict[str, Any]:
    made = cli.run("up", "--gpu", "A100", "--name", "train", "--no-wait", "--json", *options)
    assert made.code == 0, made.err
    policy: dict[str, Any] = json.loads(made.out)["policy"]
    return policy


def test_the_default_is_on(cli: Cli) -> None:
    policy = asked(cli)

    assert policy["idle"] == {
        "enabled": True,
        "after_seconds": 1800,
        "signals": ["gpu", "ssh", "connections", "busy"],
        "then": "pause",
    }
    assert policy["paused"]["release_after_seconds"] == 7 * 86400


def test_options_of_up_become_the_policy(cli: Cli) -> None:
    policy = asked(
        cli,
        *("--idle", "45m", "--idle-then", "release", "--idle-signals", "gpu,busy"),
        *("--unreachable", "off", "--paused-for", "ever", "--budget", "40", "--on-no-capacity", "replace"),
        *("--keep-off", "0 22 * * 1-5/0 8 * * 1-5@Europe/Berlin", "--keep-warm", "*/5 9 * * */0 17 * * *"),
    )

    assert (policy["idle"]["after_seconds"], policy["idle"]["then"]) == (2700, "release")
    assert policy["idle"]["signals"] == ["gpu", "busy"]
    assert policy["unreachable"]["enabled"] is False
    assert policy["paused"]["release_after_seconds"] is None
    assert (policy["budget_usd"], policy["on_no_capacity"]) == ("40", "replace")
    assert policy["windows"] == [
        {"keep": "off", "start": "0 22 * * 1-5", "end": "0 8 * * 1-5", "timezone": "Europe/Berlin"},
        {"keep": "warm", "start": "*/5 9 * * *", "end": "0 17 * * *", "timezone": "UTC"},
    ]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--idle", "soon"), "--idle: 'soon' is not a duration; give one like 30m or 2h, or 'off'"),
        (("--idle", "5s"), "--idle: 5s is too small; give 1m00s or more"),
        (("--paused-for", "500d"), "--paused-for: 500d00h is too large; give 366d00h or less"),
        (("--idle-signals", "gpu,smoke"), "--idle-signals: "),
        (("--keep-off", "22-8"), "--keep-off: '22-8' is no window"),
        (("--keep-off", "0 99 * * */0 8 * * *"), "five cron fields"),
        (("--keep-off", "0 9 * * */0 8 * * *@Mars"), "no zone of the IANA database"),
        (("--budget", "0"), "--budget: '0' is no budget; give US dollars in all"),
        (("--budget", "-5"), "--budget: '-5' is no budget"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_option_and_nothing_is_rented(
    cli: Cli, world: World, options: tuple[str, ...], word: str
) -> None:
    result = cli.run("up", "--gpu", "A100", "--no-wait", *options)

    assert result.code == 2 and word in result.error
    assert world.workflows.started == []


def test_a_policy_is_changed_while_the_lease_lives_and_the_rest_stays(cli: Cli) -> None:
    asked(cli, "--budget", "40")

    changed = cli.run("policy", "train", "--idle", "2h", "--max-duration", "8h")
    shown = cli.run("policy", "train")

    assert changed.code == 0 and changed.out.startswith("train: requested; next: ")
    assert "pause after 2h00m" in shown.out and "$40" in shown.out and "8h00m" in shown.out


def test_windows_come_and_go(cli: Cli) -> None:
    asked(cli, "--keep-off", "0 22 * * *")
    assert json.loads(cli.run("policy", "train", "--json").out)["windows"][0]["end"] is None

    assert cli.run("policy", "train", "--no-windows").code == 0

    assert json.loads(cli.run("policy", "train", "--json").out)["windows"] == []
    assert cli.run("policy", "train", "--no-windows", "--keep-off", "0 1 * * *").code == 2


def test_a_window_of_one_kind_leaves_those_of_the_other(cli: Cli) -> None:
    """Who only adds when it is kept warm still wants it off at night."""
    asked(cli, "--keep-off", "0 22 * * */0 8 * * *")

    changed = cli.run("policy", "train", "--keep-warm", "0 8 * * */0 9 * * *")
    cli.run("policy", "train", "--keep-off", "0 23 * * */0 7 * * *")

    windows = json.loads(cli.run("policy", "train", "--json").out)["windows"]
    assert [(window["keep"], window["start"]) for window in windows] == [("off", "0 23 * * *"), ("warm", "0 8 * * *")]
    assert "keep off from '0 22 * * *'" in changed.out and "keep warm from '0 8 * * *'" in changed.out


def test_limits_of_time_and_money_are_taken_off_by_a_word(cli: Cli) -> None:
    asked(cli, "--budget", "40", "--max-duration", "8h")
    assert "8h00m" in cli.run("policy", "train").out

    assert cli.run("policy", "train", "--budget", "off", "--max-duration", "off").code == 0

    policy = json.loads(cli.run("policy", "train", "--json").out)
    assert (policy["budget_usd"], policy["max_duration_seconds"]) == (None, None)


def test_touch_and_keep_reach_the_lease(cli: Cli, world: World) -> None:
    asked(cli)

    assert cli.run("touch", "train").code == 0
    assert cli.run("keep", "train", "--for", "2h").code == 0

    lease = next(iter(world.ledger.leases_of(None).items))
    assert lease.touched_at == world.clock.now()
    assert lease.keep_until is not None and (lease.keep_until - world.clock.now()).total_seconds() == 7200


@pytest.mark.parametrize("time", ["900d", "10s"])
def test_a_time_that_cannot_be_kept_is_refused_by_its_option(cli: Cli, time: str) -> None:
    asked(cli)

    result = cli.run("keep", "train", "--for", time)

    assert result.code == 2
    assert result.error.startswith("--for: ") and result.error.endswith("is not possible; give 1m to 30d")


def test_what_is_on_its_way_out_is_told_so(cli: Cli) -> None:
    asked(cli)
    cli.run("down", "train", "--no-wait")

    result = cli.run("keep", "train", "--for", "2h")

    assert result.code == 5 and "releasing" in result.error


def test_a_lease_file_may_hold_a_policy(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lease.yaml").write_text("gpu: [A100]\nname: filed\npolicy: {idle: {after_seconds: 600}}\n")

    made = cli.run("up", "-f", "lease.yaml", "--no-wait", "--json")

    assert json.loads(made.out)["policy"]["idle"]["after_seconds"] == 600
