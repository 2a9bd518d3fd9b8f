"""`pause`, `resume` and `up --resume`: what is told, what is asked, and how each ends."""

from typing import Any

import pytest

from tests.support.cli_world import Cli
from tests.support.fake_api import FakeApi, Fault, lease

PAUSE = {
    "mode": "stop",
    "reason": "user",
    "detail": "",
    "requested_at": "2026-01-05T12:02:00Z",
    "paused_at": "2026-01-05T12:03:00Z",
    "release_at": "2026-01-12T12:03:00Z",
    "billed": [{"what": "instance at aws/us-east-1", "price_per_hour_usd": "0.011"}],
    "price_per_hour_usd": "0.011",
    "resume_failed": None,
}
PLAN = {
    "dry_run": True,
    "possible": True,
    "code": "",
    "mode": "stop",
    "running_price_per_hour_usd": "2.397",
    "paused_price_per_hour_usd": "0.011",
    "billed_while_paused": [{"what": "disk of the stopped machine", "price_per_hour_usd": "0.011"}],
    "release_after_seconds": 604800,
    "text": "the machine is stopped and kept with its disks (running $2.397/h, paused $0.011/h)",
}


def pausing(**more: Any) -> dict[str, Any]:
    return lease(state="pausing", pause=PAUSE | {"paused_at": None}, **more)


def paused(**more: Any) -> dict[str, Any]:
    return lease(state="paused", pause=PAUSE | more, price_per_hour_usd="0.011")


def test_pause_waits_until_it_is_paused_and_tells_what_it_costs_still(cli: Cli, api: FakeApi) -> None:
    api.add(lease(), pausing(), pausing(), paused())

    result = cli.run("pause", "train")

    assert result.code == 0, result.err
    assert "train is paused" in result.out
    assert "instance at aws/us-east-1 $0.011/h" in result.out
    assert "stays until 2026-01-12" in result.out and "gpulease resume train" in result.out
    assert [seen.path for seen in api.seen if seen.method == "POST"] == ["/v1/leases/l-aaaaaaaaaaaa/pause"]


def test_what_was_told_when_the_machine_was_rented_is_not_told_again(cli: Cli, api: FakeApi) -> None:
    old, new = "bare metal can take up to 55 minutes", "its disk is slow"
    api.add(lease(notices=[old]), pausing(notices=[old]), pausing(notices=[old]), paused() | {"notices": [old, new]})

    told = cli.run("pause", "train").err

    assert old not in told and new in told


def test_a_dry_run_changes_nothing_and_says_both_prices(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.plan = PLAN

    result = cli.run("pause", "train", "--dry-run")

    assert result.code == 0
    assert "running $2.397/h, paused $0.011/h" in result.out
    assert "given back after 7d" in result.out and "Nothing was paused" in result.err
    assert [dict(seen.query) for seen in api.seen if seen.method == "POST"] == [{"dry_run": ["true"]}]


def test_a_dry_run_of_a_pause_that_is_not_possible_ends_with_1(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.plan = PLAN | {"possible": False, "code": "nothing_to_keep", "text": "a pause would keep nothing"}

    result = cli.run("pause", "train", "--dry-run")

    assert (result.code, "keep nothing" in result.out) == (1, True)


def test_on_a_terminal_the_prices_are_shown_before_it_is_asked(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.plan = PLAN
    cli.typed = "n\n"

    result = cli.run("pause", "train")

    assert (result.code, "Nothing was paused" in result.err) == (1, True)
    assert "paused $0.011/h" in result.err
    assert all(seen.query for seen in api.seen if seen.method == "POST"), "nothing but the dry run"


def test_a_pause_that_is_refused_ends_with_5_and_the_reason(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    problem = {"status": 409, "code": "nothing_to_keep", "detail": "vultr bills a stopped machine in full"}
    api.faults.append(Fault("POST", 409, problem))

    result = cli.run("pause", "train")

    assert (result.code, "bills a stopped machine in full" in result.err) == (5, True)


def test_a_pause_that_ends_running_again_is_not_as_asked(cli: Cli, api: FakeApi) -> None:
    api.add(lease(), pausing(), lease(warnings=["it cannot be paused: UnsupportedOperation"]))

    result = cli.run("pause", "train")

    assert result.code == 1
    assert "cannot be paused" in result.err


def test_resume_waits_until_it_runs_and_tells_the_new_address(cli: Cli, api: FakeApi) -> None:
    running = lease(address="203.0.113.99", ssh="ssh root@203.0.113.99")
    api.add(paused(), lease(state="resuming", pause=PAUSE), running)

    result = cli.run("resume", "train", "--on-no-capacity", "replace", "--try-for", "10m")

    assert result.code == 0, result.err
    assert "ssh root@203.0.113.99" in result.out
    (post,) = [seen for seen in api.seen if seen.method == "POST"]
    assert dict(post.query) == {"on_no_capacity": ["replace"], "wait_seconds": ["600"]}


def test_a_resume_in_vain_ends_with_1_and_says_that_nothing_was_deleted(cli: Cli, api: FakeApi) -> None:
    api.add(paused(), lease(state="resuming", pause=PAUSE), paused(resume_failed="no_capacity"))

    result = cli.run("resume", "train")

    assert result.code == 1
    assert "no_capacity" in result.err and "nothing was deleted" in result.err


def test_show_tells_what_is_billed_and_until_when_it_stays(cli: Cli, api: FakeApi) -> None:
    api.add(paused(resume_failed="no_capacity"))

    out = cli.run("show", "train").out

    assert "the machine is stopped and kept (user)" in out
    assert "instance at aws/us-east-1 $0.011/h" in out
    assert "stays until" in out and "no_capacity" in out


@pytest.mark.parametrize("state", ["paused", "resuming", "running"])
def test_up_resume_takes_the_lease_that_is_there(cli: Cli, api: FakeApi, state: str) -> None:
    api.add(lease(state=state, pause=PAUSE), lease(state="resuming", pause=PAUSE), lease())

    result = cli.run("up", "--resume", "train", "--gpu", "A100", "--yes")

    assert result.code == 0, result.err
    assert [seen.path for seen in api.seen if seen.method == "POST"] == ["/v1/leases/l-aaaaaaaaaaaa/resume"]


@pytest.mark.parametrize("state", ["requested", "provisioning"])
def test_up_resume_waits_for_one_that_is_being_made_and_rents_no_second(cli: Cli, api: FakeApi, state: str) -> None:
    api.add(lease(state=state), lease(state=state), lease(state="provisioning"), lease())

    result = cli.run("up", "--resume", "train", "--gpu", "A100", "--yes")

    assert result.code == 0 and "train is running" in result.out
    assert [seen for seen in api.seen if seen.method == "POST"] == []


def test_up_resume_of_a_name_of_several_asks_which(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.add(lease("l-bbbbbbbbbbbb", state="provisioning"))

    result = cli.run("up", "--resume", "train", "--gpu", "A100", "--yes")

    assert result.code == 2 and "l-aaaaaaaaaaaa, l-bbbbbbbbbbbb" in result.error
    assert [seen for seen in api.seen if seen.method == "POST"] == []


def test_up_resume_rents_where_there_is_none(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease("l-bbbbbbbbbbbb", "other", "requested")])

    result = cli.run("up", "--resume", "other", "--gpu", "A100", "--yes", "--no-wait")

    assert result.code == 0, result.err
    (made,) = [seen for seen in api.seen if seen.method == "POST" and seen.path == "/v1/leases"]
    assert made.body is not None and made.body["name"] == "other"


def test_a_patience_that_cannot_be_had_is_refused_by_its_option(cli: Cli) -> None:
    assert cli.run("resume", "train", "--try-for", "2d").error == "--try-for: 2d00h is too long; give at most 24h"


def test_no_wait_contradicts_a_timeout(cli: Cli) -> None:
    for word in ("pause", "resume"):
        assert cli.run(word, "train", "--no-wait", "--timeout", "5m").code == 2
