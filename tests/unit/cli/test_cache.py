"""`gpulease cache` against the real API: prices before, questions before losses, exit codes a script can use."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpulease.domain.cache import taken
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import Change
from gpulease.domain.transitions import cancel
from gpulease_cli.errors import CliError
from gpulease_cli.request import build, cache_use, from_file, from_options

from tests.support.api_world import START, World
from tests.support.cli_world import Cli, api_over
from tests.support.fake_api import FakeApi

MODELS = ("cache", "create", "models", "--provider", "vultr", "--region", "ewr", "--size", "50")


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


def only_cache(world: World) -> str:
    (machine, _, identity, _) = world.workflows.started[0]
    assert machine == "cache"
    return str(identity)


def move(world: World, *states: LeaseState, **update: object) -> None:
    """What the workflow would write."""
    for state in states:
        lease = world.ledger.load(only_cache(world)).lease
        changed = lease.model_copy(update={"state": state, "running_at": START, **update})
        world.ledger.commit(Change(lease.id, lease=changed))


def available(cli: Cli, world: World) -> None:
    cli.run(*MODELS, "--no-wait")
    move(world, LeaseState.PROVISIONING, LeaseState.RUNNING)


def test_it_waits_until_the_cache_can_be_used(cli: Cli, world: World) -> None:
    cli.clock.on_sleep = [lambda: None, lambda: move(world, LeaseState.PROVISIONING, LeaseState.RUNNING)]

    result = cli.run(*MODELS)

    assert (result.code, result.out) == (0, "models is available: 50 GB at vultr/ewr, $0.00 a month\n")


def test_one_that_cannot_be_made_ends_with_its_reason(cli: Cli, world: World) -> None:
    def refuse() -> None:
        record = world.ledger.load(only_cache(world))
        world.ledger.commit(cancel(record, now=START, reason=Reason.QUOTA_EXCEEDED, detail="ten blocks are the limit"))

    cli.clock.on_sleep = [refuse]

    result = cli.run(*MODELS)

    assert result.code == 1
    assert result.error == "models could not be made (quota_exceeded: ten blocks are the limit)"


def test_the_price_is_asked_for_before_anything_is_made(cli: Cli, world: World) -> None:
    cli.typed = "n\n"

    result = cli.run(*MODELS)

    assert result.code == 1 and "Make models: 50 GB at vultr/ewr, $5.00 a month?" in result.err
    assert world.workflows.started == []


def test_a_dry_run_only_says_what_it_would_cost(cli: Cli, world: World) -> None:
    result = cli.run(*MODELS, "--dry-run")

    assert result.out == "models would be 50 GB at vultr/ewr, $5.00 a month; nothing was made\n"
    assert json.loads(cli.run(*MODELS, "--dry-run", "--json").out)["price_per_month_usd"] == "5.00"
    assert world.workflows.started == []


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--region", "mars"), 2, "--region: no block storage in 'mars'"),
        (("--provider", "aws"), 2, "--provider: 'aws' is no configured provider"),
        (("--throughput", "1001"), 2, "--throughput: 125 to 1000 MiB/s, not 1001"),
        (("--expire-after", "soon"), 2, "--expire-after: 'soon' is no time"),
        (("--bucket-region", "x"), 2, "--bucket: is missing"),
    ],
)
def test_what_is_wrong_is_called_by_its_option(cli: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    result = cli.run(*MODELS, *words)

    assert result.code == code and result.error.startswith(told)


def test_speed_is_bought_by_an_option_and_shown(cli: Cli) -> None:
    planned = cli.run(*MODELS, "--throughput", "400", "--dry-run")
    cli.run(*MODELS, "--throughput", "400", "--no-wait")

    assert planned.out == "models would be 50 GB with 400 MiB/s at vultr/ewr, $16.00 a month; nothing was made\n"
    assert "50 GB with 400 MiB/s at vultr/ewr" in cli.run("cache", "show", "models").out


def test_without_any_place_nothing_is_asked(cli: Cli) -> None:
    assert cli.run("cache", "create", "models").error.startswith("--provider: is missing")


def test_what_is_in_an_object_store_alone_is_not_said_to_cost_nothing(cli: Cli) -> None:
    made = cli.run("cache", "create", "hf", "--bucket", "my-models")

    assert made.out == "hf is available: s3:my-models, billed by your store\n"
    assert "warning: without --bucket-secret nothing opens the store" in made.err
    assert "billed by your store" in cli.run("cache", "show", "hf").out
    assert "$0.00" not in cli.run("cache", "ls").out.splitlines()[1]


@pytest.mark.parametrize(
    ("option", "value"), [("--bucket-endpoint", "ftp://x"), ("--bucket-region", "a b"), ("--bucket-secret", "a/b")]
)
def test_the_option_of_the_store_that_is_wrong_is_named(cli: Cli, option: str, value: str) -> None:
    result = cli.run("cache", "create", "hf", "--bucket", "my-models", option, value)

    assert result.code == 2 and result.error.startswith(f"{option}: must be ") and value in result.error


def test_an_object_store_alone_is_a_cache(cli: Cli) -> None:
    result = cli.run(
        *("cache", "create", "hf", "--bucket", "my-models/hf", "--bucket-endpoint", "https://s3.example.org"),
        *("--bucket-region", "eu", "--bucket-secret", "models-s3", "--expire-after", "never", "--json"),
    )

    assert result.code == 0, result.err
    made = json.loads(result.out)
    assert made["state"] == "available" and made["expire_after_seconds"] is None
    assert made["object_store"] == {
        "endpoint": "https://s3.example.org",
        "region": "eu",
        "bucket": "my-models",
        "prefix": "hf",
        "credentials": "models-s3",
    }
    assert "s3:my-models/hf" in cli.run("cache", "ls").out


def test_the_list_says_who_uses_it_and_when_it_is_removed(cli: Cli, world: World) -> None:
    available(cli, world)
    free = cli.run("cache", "ls").out
    lease = json.loads(cli.run("up", "--gpu", "A100", "--name", "train", "--no-wait", "--json").out)["id"]
    row = world.ledger.load(only_cache(world)).lease
    world.ledger.commit(Change(row.id, lease=taken(row, f"{lease}.instance.1", START)))

    used = cli.run("cache", "ls").out

    assert "models" in free and "available" in free and "14d00h" in free and "Total: $0.00 a month" in free
    assert "in_use" in used and "train" in used and "14d00h" not in used
    assert f"train ({lease})" in cli.run("cache", "show", "models").out
    assert json.loads(cli.run("cache", "ls", "--json").out)["caches"][0]["used_by"]["name"] == "train"
    refused = cli.run("cache", "rm", "models", "--yes")
    assert refused.code == 5 and "in use by train" in refused.error


def test_removing_tells_what_is_lost_and_asks(cli: Cli, world: World) -> None:
    available(cli, world)
    cli.typed = "n\n"

    result = cli.run("cache", "rm", "models")

    assert result.code == 1 and "50 GB at vultr/ewr" in result.err and "Everything on the volumes is lost" in result.err
    assert world.ledger.load(only_cache(world)).lease.state is LeaseState.RUNNING


def test_nothing_is_removed_where_nobody_can_be_asked(cli: Cli, world: World) -> None:
    available(cli, world)

    assert cli.run("cache", "rm", "models").code == 2
    assert cli.run("cache", "rm", "models", "nosuch", "--yes").code == 4
    assert world.ledger.load(only_cache(world)).lease.state is LeaseState.RUNNING


def test_removing_waits_until_it_is_proven_gone(cli: Cli, world: World) -> None:
    available(cli, world)
    cli.clock.on_sleep = [lambda: None, lambda: move(world, LeaseState.RELEASED, released_at=START, next_check_at=None)]

    result = cli.run("cache", "rm", "models", "--yes")

    assert (result.code, result.out) == (0, "models is removed; it cost $0.00\n")
    assert cli.run("cache", "show", "models").code == 4


def test_waiting_ends_and_removing_goes_on(cli: Cli, world: World) -> None:
    available(cli, world)

    result = cli.run("cache", "rm", "models", "--yes", "--timeout", "1m")

    assert result.code == 6 and "models is removing" in result.error


def test_the_expiry_is_changed(cli: Cli, world: World) -> None:
    available(cli, world)

    told = cli.run("cache", "expire", "models", "30d").out
    assert told.startswith("models is removed after 30d00h unused: at 2026-02-0") and "unless it is used before" in told
    world.clock.advance(7200)
    assert "unused for so long" in cli.run("cache", "expire", "models", "1h").out
    assert cli.run("cache", "expire", "models", "never").out == "models is removed by your word only\n"


# --- up --cache ---


def test_up_names_a_cache(cli: Cli, world: World) -> None:
    available(cli, world)

    result = cli.run(
        *("up", "--gpu", "A100", "--no-wait", "--json", "--cache-docker"),
        *("--cache", "models:/root/.cache/huggingface,/root/.cache/pip"),
    )

    assert result.code == 0, result.err
    mounts = ["/root/.cache/huggingface", "/root/.cache/pip"]
    assert json.loads(result.out)["spec"]["cache"] == {"name": "models", "mounts": mounts, "docker": True}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--cache", "models"), "--cache: 'models' keeps nothing"),
        (("--cache", ":/a"), "--cache: ':/a' names no cache"),
        (("--cache-docker",), "--cache-docker: says nothing without --cache"),
        (("--cache", "models:relative"), "--cache:"),
        (("--cache", "nosuch:/a/b"), "--cache: there is no cache nosuch"),
    ],
)
def test_a_cache_that_makes_no_sense_is_refused(cli: Cli, words: tuple[str, ...], told: str) -> None:
    result = cli.run("up", "--gpu", "A100", "--no-wait", *words)

    assert result.code == 2 and result.error.startswith(told)


def test_a_file_may_say_it_either_way(tmp_path: Path) -> None:
    file = tmp_path / "lease.yaml"
    file.write_text("gpu: A100\ncache: models:/root/.cache\n")
    short = build(from_file(str(file)), from_options({})).body["cache"]
    file.write_text("gpu: A100\ncache: {name: models, mounts: [/root/.cache]}\n")

    assert short == build(from_file(str(file)), from_options({})).body["cache"] == cache_use("models:/root/.cache")
    with pytest.raises(CliError, match="names no cache"):
        cache_use(":")
