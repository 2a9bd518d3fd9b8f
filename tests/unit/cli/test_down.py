"""`gpulease down` gives back what was named, nothing else, and waits for the proof."""

import json

import pytest

from tests.support.cli_world import Cli, interrupt
from tests.support.fake_api import INSTANCE, FakeApi, Fault, lease, released

A, B = "l-aaaaaaaaaaaa", "l-bbbbbbbbbbbb"


def paths(api: FakeApi) -> list[str]:
    return [item.path for item in api.of("DELETE")]


def test_it_waits_until_the_absence_is_proven_and_shows_what_is_billed_until_then(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.after_release[A] = [lease(state="releasing", waiting_for="the machine to be gone")] * 3

    result = cli.run("down", "train")

    assert result.code == 0
    assert result.out == "train is released; it cost $0.04\n"
    billed = "still billed until proven gone: instance vultr/ewr 203.0.113.7 ($2.397/h)"
    assert any(billed in line and line.startswith("train: releasing") for line in result.err.splitlines())
    assert result.err.splitlines()[-1].startswith("train: released")


def test_no_wait_says_what_is_still_billed(cli: Cli, api: FakeApi) -> None:
    api.add(lease())

    result = cli.run("down", "train", "--no-wait")

    assert result.code == 0
    assert result.out.startswith("train is releasing; still billed until proven gone: instance")


def test_nothing_is_given_back_when_one_of_the_names_is_wrong(cli: Cli, api: FakeApi) -> None:
    api.add(lease())

    assert cli.run("down", "train", "nosuch").code == 4
    assert paths(api) == []


def test_an_ambiguous_name_gives_nothing_back(cli: Cli, api: FakeApi) -> None:
    api.add(lease(A))
    api.add(lease(B))

    result = cli.run("down", "train")

    assert result.code == 2
    assert paths(api) == []


def test_several_are_asked_for_before_any_is_waited_for_and_each_once(cli: Cli, api: FakeApi) -> None:
    api.add(lease(A))
    api.add(lease(B, "serve"))

    result = cli.run("down", "train", "serve", A, "--json")

    assert paths(api) == [f"/v1/leases/{A}", f"/v1/leases/{B}"]
    assert [view["state"] for view in json.loads(result.out)["leases"]] == ["released", "released"]


def test_all_gives_back_all_that_live(cli: Cli, api: FakeApi) -> None:
    api.add(lease(A))
    api.add(released(lease(B, "old")))

    assert cli.run("down", "--all", "--yes").code == 0
    assert paths(api) == [f"/v1/leases/{A}"]


def test_all_with_nobody_to_ask_needs_yes(cli: Cli, api: FakeApi) -> None:
    result = cli.run("down", "--all")

    assert (result.code, result.error) == (2, "--all: needs --yes where nobody can be asked")
    assert api.seen == []


def test_all_without_leases_is_done(cli: Cli) -> None:
    result = cli.run("down", "--all", "--yes")

    assert (result.code, result.out) == (0, "No leases; there is nothing to give back.\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "lease: nothing is named; name a lease, or --all"),
        (["train", "--all"], "--all: contradicts naming leases; give one of the two"),
        (["train", "--no-wait", "--timeout", "5m"], "--timeout: contradicts --no-wait; give one of the two"),
    ],
)
def test_contradictions_are_refused_before_anything_is_sent(
    cli: Cli, api: FakeApi, words: list[str], error: str
) -> None:
    result = cli.run("down", *words)

    assert (result.code, result.error) == (2, error)
    assert api.seen == []


def test_on_a_terminal_the_user_is_asked_and_no_means_no(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    cli.typed = "n\n"

    result = cli.run("down", "train")

    assert result.code == 1
    assert "Give back train? Everything on the disks is lost." in result.err
    assert paths(api) == []


def test_an_id_that_is_released_already_is_fine(cli: Cli, api: FakeApi) -> None:
    api.add(released(lease()))

    result = cli.run("down", A)

    assert result.code == 0
    assert paths(api) == []


def test_a_time_out_is_exit_6_and_giving_back_goes_on(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.after_release[A] = [lease(state="releasing", resources=[INSTANCE])] * 100

    result = cli.run("down", "train", "--timeout", "30s")

    assert result.code == 6
    assert "train is releasing" in result.error


def test_ctrl_c_stops_the_waiting_only(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.after_release[A] = [lease(state="releasing")] * 100
    cli.clock.on_sleep = [interrupt]

    result = cli.run("down", "train")

    assert result.code == 130
    assert "giving back goes on" in result.err


def test_a_refusal_of_the_api_is_told(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.faults = [Fault("DELETE", 403, {"title": "Forbidden", "detail": "not yours", "code": "not_yours"})]

    result = cli.run("down", "train")

    assert (result.code, result.error) == (5, "Forbidden: not yours")


SAVING = {"requested_at": "2026-01-05T12:02:00Z", "deadline": "2026-01-05T12:03:30Z"}
SAVING["at_most_until"] = "2026-01-05T12:17:00Z"


def test_that_the_cache_is_saved_first_is_told_with_the_way_around_it(cli: Cli, api: FakeApi) -> None:
    waits = "its cache to be saved (until 12:17 UTC at most)"
    api.add(lease(cache_saving=SAVING))
    api.after_release[A] = [lease(state="releasing", waiting_for=waits, cache_saving=SAVING)]

    result = cli.run("down", "train")

    assert result.code == 0
    (told,) = [line for line in result.err.splitlines() if "saved first" in line]
    assert told.startswith("train: its cache is saved first, until ") and "billed" in told
    assert "`gpulease down train --now`" in told
    assert any(f"waiting for {waits}" in line for line in result.err.splitlines())
    assert [item.query for item in api.of("DELETE")] == [{}]


def test_now_is_passed_on_and_nothing_is_said_of_saving(cli: Cli, api: FakeApi) -> None:
    api.add(lease())

    result = cli.run("down", "train", "--now")

    assert result.code == 0
    assert "saved first" not in result.err
    assert [item.query for item in api.of("DELETE")] == [{"now": ["true"]}]


def test_now_helps_a_lease_that_is_saving_already(cli: Cli, api: FakeApi) -> None:
    api.add(lease(state="releasing", cache_saving=SAVING))

    assert cli.run("down", A, "--now").code == 0
    assert [item.query for item in api.of("DELETE")] == [{"now": ["true"]}]
