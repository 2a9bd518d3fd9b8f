"""`ls`, `show`, `events` and `offers` show what the API says, and change nothing."""

import json

import pytest
from gpulease_cli.tables import Column, print_table
from rich.console import Console

from tests.support.cli_world import Cli, interrupt
from tests.support.fake_api import INSTANCE, OFFER, FakeApi, lease, released

A, B, C = "l-aaaaaaaaaaaa", "l-bbbbbbbbbbbb", "l-cccccccccccc"


def test_ls_shows_what_can_still_cost_money_and_the_sum(cli: Cli, api: FakeApi) -> None:
    api.add(lease(A, "train"))
    api.add(lease(B, "serve", state="releasing", price_per_hour_usd="0.5", offer=None))
    api.add(released(lease(C, "old")))

    result = cli.run("ls")

    title, train, serve, total = result.out.splitlines()
    assert title.split() == ["NAME", "ID", "STATE", "GPU", "WHERE", "$/H", "COST", "AGE", "NEXT"]
    assert train.startswith(f"train  {A}  running    1 x A100  vultr/ewr  $2.397  $0.04  2m00s  runs until")
    assert serve.split()[:5] == ["serve", B, "releasing", "-", "-"]
    assert total == "Total: $2.897/h"


def test_ls_says_in_how_long_what_comes_next_happens(cli: Cli, api: FakeApi) -> None:
    plan = "paused (idle): nothing has used it for 30 minutes"
    api.add(lease(A, "train", next={"text": plan, "at": "2026-01-05T12:27:00Z"}))
    api.add(lease(B, "serve", next={"text": f"within a minute: {plan}", "at": "2026-01-05T12:02:00Z"}))

    _, train, serve, _ = cli.run("ls").out.splitlines()

    assert train.endswith(f"  in 25m00s: {plan}")
    assert serve.endswith(f"  within a minute: {plan}")


def test_ls_all_shows_released_ones_too(cli: Cli, api: FakeApi) -> None:
    api.add(released({**lease(C, "old"), "cost_so_far_usd": None}))

    result = cli.run("ls", "--all")

    assert "old" in result.out
    assert "30m00s" in result.out


def test_ls_without_leases_says_that_nothing_is_billed(cli: Cli) -> None:
    assert cli.run("ls").out == "No leases; nothing is billed. `--all` shows released ones.\n"


def test_ls_tells_of_caches_which_are_billed_without_any_lease(cli: Cli, api: FakeApi) -> None:
    api.caches = [{"name": "models", "price_per_month_usd": "20.00"}]
    alone = (cli.run("ls").out, cli.run("ls", "--all").out)
    api.caches.append({"name": "data", "price_per_month_usd": "5.50"})
    api.add(lease(A, "train"))

    beside = cli.run("ls").out

    assert alone[0] == ("No leases; 1 cache at $20.00 a month (`gpulease cache ls`). `--all` shows released ones.\n")
    assert alone[1] == "No leases; 1 cache at $20.00 a month (`gpulease cache ls`).\n"
    assert beside.splitlines()[-1] == "Total: $2.397/h; 2 caches at $25.50 a month (`gpulease cache ls`)"


def test_ls_as_json_is_all_pages_in_one_document(cli: Cli, api: FakeApi) -> None:
    api.page_size = 1
    api.add(lease(A, "train"))
    api.add(lease(B, "serve"))

    result = cli.run("ls", "--json")

    assert json.loads(result.out) == {"leases": [lease(A, "train"), lease(B, "serve")], "cursor": None}


def test_ls_watch_goes_on_until_interrupted(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    cli.clock.on_sleep = [lambda: None, interrupt]

    result = cli.run("ls", "--watch")

    assert result.code == 130
    assert result.out.count("Total:") == 2


def test_ls_watch_contradicts_json(cli: Cli) -> None:
    assert cli.run("ls", "--watch", "--json").error == "--json: contradicts --watch; give one of the two"


def shown(width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    columns = [Column("NAME", 0), Column("ID", 2), Column("$/H", 1, right=True), Column("NEXT", 3, least=8)]
    with console.capture() as capture:
        print_table(console, columns, [["train", A, "$2.40", "runs until it is given back"], ["x", B, "$12.00", "-"]])
    return capture.get().splitlines()


@pytest.mark.parametrize(
    ("width", "first"),
    [
        (100, f"train  {A}   $2.40  runs until it is given back"),
        (48, f"train  {A}   $2.40  runs until it..."),
        (32, f"train  {A}   $2.40"),
        (16, "train   $2.40"),
        (6, "train"),
    ],
)
def test_on_a_narrow_terminal_the_least_important_columns_go_first(width: int, first: str) -> None:
    lines = shown(width)

    assert lines[1] == first
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize("word", ["train", A])
def test_show_finds_a_lease_by_name_or_id(cli: Cli, api: FakeApi, word: str) -> None:
    api.add(lease())

    assert cli.run("show", word).out.startswith(f"train  {A}  running for 30s\n")
    assert json.loads(cli.run("show", word, "--json").out) == lease()


def test_show_tells_everything_that_matters(cli: Cli, api: FakeApi) -> None:
    attempts = [
        {"number": 1, "offer": "vultr/ams/p/on-demand", "price_per_hour_usd": "2", "reason": "no_capacity",
         "detail": "sold out", "started_at": "2026-01-05T12:00:00Z", "ended_at": "2026-01-05T12:00:04Z"},
    ]  # fmt: skip
    api.add(lease(attempts=attempts, notices=["a note"], warnings=["a warning"]))

    out = cli.run("show", "train").out

    for part in (
        "connect:     ssh root@203.0.113.7",
        "machine:     1 x A100 (80 GiB) at vultr/ewr, $2.397/h",
        "price:       $2.397/h, $0.04 so far",
        "asked for:   gpu A100; gpu_count 1; labels team=vision",
        "note:        a note",
        "warning:     a warning",
        "attempt 1: vultr/ams/p/on-demand at $2.00/h failed: no_capacity: sold out (4s)",
        "instance vultr/ewr 203.0.113.7 ($2.397/h): held, active/running/ok, billed, $0.04 so far",
    ):
        assert part in out


def test_show_counts_from_when_it_last_became_so(cli: Cli, api: FakeApi) -> None:
    api.add(lease(A, "train", ready_at="2026-01-05T12:01:50Z"))
    api.add(lease(B, "back", state="resuming", resume_requested_at="2026-01-05T12:01:58Z"))

    assert cli.run("show", "train").out.startswith(f"train  {A}  running for 10s\n")
    assert cli.run("show", "back").out.startswith(f"back  {B}  resuming for 2s\n")


def test_show_tells_until_when_it_is_kept_and_what_its_gpus_do(cli: Cli, api: FakeApi) -> None:
    agent = {"last_report_at": "2026-01-05T12:01:00Z", "gpus": 2, "gpu_percent": [97, 0]}
    agent |= {"gpu_memory_mib": [81920, 81920], "gpu_memory_used_mib": [70656, 1024]}
    api.add(lease(A, "train", keep_until="2026-01-05T14:00:00Z", agent=agent))
    api.add(lease(B, "other", keep_until="2026-01-05T12:00:00Z"))

    out = cli.run("show", "train").out

    assert "kept:        until 2026-01-05" in out and "used or not" in out
    assert "2 GPUs (busy 97 %, 0 %; 70 of 160 GiB in use)" in out
    assert "kept:" not in cli.run("show", "other").out


def test_show_tells_what_was_asked_for_as_one_would_ask_for_it(cli: Cli, api: FakeApi) -> None:
    cache = {"name": "models", "mounts": ["/root/.cache", "/data"], "docker": True}
    spec = {"gpu": ["A100"], "private_network": "none", "network_scope": "owner", "retry_not_ready": False}
    api.add(lease(A, "train", spec={**spec, "cache": cache}))

    assert "asked for:   gpu A100; cache models:/root/.cache,/data with Docker's data\n" in cli.run("show", "train").out


def test_offers_of_several_zones_are_told_apart(cli: Cli, api: FakeApi) -> None:
    aws = OFFER | {"provider": "aws", "region": "us-east-1"}
    api.offers = [aws | {"zone": "us-east-1a"}, aws | {"zone": "us-east-1b"}, OFFER | {"zone": ""}]

    places = [line.split()[5] for line in cli.run("offers").out.splitlines()[1:]]

    assert places == ["aws/us-east-1a", "aws/us-east-1b", "vultr/ewr"]


def test_an_unknown_lease_is_exit_4_with_a_suggestion(cli: Cli, api: FakeApi) -> None:
    api.add(lease())

    result = cli.run("show", "trian")

    assert (result.code, result.error) == (4, "lease: there is no lease 'trian'; did you mean train?")
    assert cli.run("show", B).code == 4


def test_a_name_of_several_live_leases_is_refused_with_their_ids(cli: Cli, api: FakeApi) -> None:
    api.add(lease(A))
    api.add(lease(B))
    api.add(released(lease(C)))

    result = cli.run("show", "train")

    assert result.code == 2
    assert result.error == f"lease: 2 leases are called 'train'; name one by its id: {A}, {B}"


def test_a_released_lease_can_be_looked_at_by_name_but_not_given_back(cli: Cli, api: FakeApi) -> None:
    api.add(released(lease()))

    assert cli.run("show", "train").code == 0
    assert cli.run("down", "train").code == 4
    assert api.of("DELETE") == []


@pytest.mark.parametrize("word", ["../../etc", "a b", "x" * 64, "l-AAAA", "%2e", "é"])
def test_odd_words_name_no_lease(cli: Cli, word: str) -> None:
    assert cli.run("show", word).code == 4


def event(number: int, level: str = "info") -> dict[str, object]:
    return {"at": "2026-01-05T12:00:00Z", "kind": "made", "level": level, "text": f"event {number}", "facts": {}}


def test_events_are_told_oldest_first_over_all_pages(cli: Cli, api: FakeApi) -> None:
    api.add(lease())
    api.page_size = 2
    api.events = [event(1), event(2), event(3, "warning")]

    lines = cli.run("events", "train").out.splitlines()

    assert [line.split("  ", 1)[1] for line in lines] == ["event 1", "event 2", "warning: event 3"]
    assert json.loads(cli.run("events", "train", "--json").out) == {"events": api.events, "cursor": None}


def test_following_events_shows_each_once_until_the_lease_is_released(cli: Cli, api: FakeApi) -> None:
    running = lease()
    api.add(running, running, running, running, released(running))
    api.page_size = 2
    api.events = [event(1)]
    cli.clock.on_sleep = [
        lambda: api.events.append(event(2)),
        lambda: api.events.extend([event(3), event(4), event(5)]),
    ]

    result = cli.run("events", A, "--follow", "--json")

    assert [json.loads(line)["text"] for line in result.out.splitlines()] == [f"event {i}" for i in range(1, 6)]
    assert result.code == 0


def test_offers_are_sorted_by_price_with_stock_and_age(cli: Cli, api: FakeApi) -> None:
    api.offers = [OFFER, {**OFFER, "region": "ams", "price_per_hour_usd": "0.47", "in_stock": True, "spot": True}]

    result = cli.run("offers", "--gpu", "A100", "--kind", "vm", "--max-price", "3")

    title, cheap, dear = result.out.splitlines()
    assert title.split()[-3:] == ["$/H", "SPOT", "STOCK"]
    assert cheap.split()[-3:] == ["$0.47", "spot", "yes"]
    assert dear.split()[-3:] == ["$2.397", "-", "?"]
    assert result.err == "Catalogue: vultr 1h00m old\n"
    query = {"gpu": ["A100"], "plan_kinds": ["vm"], "max_price_per_hour_usd": ["3"], "limit": ["1000"]}
    assert api.seen[0].query == query


def test_offers_as_json_are_the_answer_of_the_api(cli: Cli) -> None:
    assert json.loads(cli.run("offers", "--json").out)["offers"] == [OFFER]


def test_no_offers_is_said(cli: Cli, api: FakeApi) -> None:
    api.offers = []

    assert cli.run("offers").out == "No offer fits.\n"


def test_a_hostile_text_is_shown_on_one_line_without_its_escapes(cli: Cli, api: FakeApi) -> None:
    api.add(lease(resources=[{**INSTANCE, "status": "ok\x1b[2J\nbilled: no"}]))

    out = cli.run("show", "train").out

    assert "\x1b" not in out
    assert "ok [2J billed: no" in out
