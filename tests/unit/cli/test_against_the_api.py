"""The command line and the real API understand each other (the other tests use a script of it)."""

import json
from collections.abc import Iterator
from pathlib import Path

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


def test_a_lease_is_made_seen_and_given_back(cli: Cli, world: World) -> None:
    made = json.loads(cli.run("up", "--gpu", "a100", "--name", "train", "--no-wait", "--json").out)

    assert made["spec"]["gpu"] == ["a100"]
    assert json.loads(cli.run("show", "train", "--json").out)["id"] == made["id"]
    assert made["id"] in cli.run("ls").out
    assert "train was requested" in cli.run("events", "train").out
    assert cli.run("down", "train", "--no-wait").code == 0
    assert json.loads(cli.run("show", made["id"], "--json").out)["state"] == "releasing"
    assert [entry[0] for entry in world.workflows.started] == ["provision", "release"]


def test_ages_are_counted_on_the_clock_of_the_api(cli: Cli, world: World) -> None:
    cli.run("up", "--gpu", "A100", "--name", "train", "--no-wait")
    world.clock.advance(5400)

    assert "requested for 1h30m" in cli.run("show", "train").out


def test_every_option_is_understood_by_the_api(cli: Cli) -> None:
    result = cli.run(
        *("up", "--gpu", "A100,H100", "--gpu-count", "1", "--min-gpu-memory", "40", "--min-vcpus", "8"),
        *("--min-memory", "64.5", "--min-disk", "200", "--provider", "vultr", "--region", "ewr", "--region", "ams"),
        *("--plan", "vcg-a100-12c", "--kind", "vm", "--spot", "any", "--max-price", "2.50"),
        *("--private-network", "preferred", "--ssh-key", "ssh-ed25519 AAAA me", "--image", "os:2284"),
        *("--label", "team=vision", "--max-duration", "2h", "--max-attempts", "3", "--dry-run", "--json"),
    )

    assert result.code == 0, result.err
    assert [offer["region"] for offer in json.loads(result.out)["offers"]] == ["ams", "ewr"]


def test_every_filter_of_offers_is_understood_by_the_api(cli: Cli) -> None:
    result = cli.run(
        *("offers", "--gpu", "A100,H100", "--gpu-count", "1", "--min-gpu-memory", "40", "--min-vcpus", "8"),
        *("--min-memory", "64.5", "--min-disk", "200", "--provider", "vultr", "--region", "ewr", "--region", "ams"),
        *("--plan", "vcg-a100-12c", "--kind", "vm", "--spot", "any", "--max-price", "2.50"),
        *("--private-network", "preferred", "--json"),
    )

    assert result.code == 0, result.err
    assert json.loads(result.out)["total"] == 2


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--gpu", "NOSUCHGPU"], 2, "--gpu: 'NOSUCHGPU' is no known GPU model; known: A100, A16, H100, L40S"),
        (["--region", "moon"], 2, "--region: 'moon' is no known region of vultr; known: ams, ewr"),
        (["--provider", "acme"], 2, "--provider: 'acme' is no known provider; configured: vultr"),
        (
            ["--gpu", "A100", "--max-price", "0.3"],
            1,
            "no offer matches; --max-price: without this limit 2 offers match",
        ),
        (["--name", "-x"], 2, "--name: must be letters, digits"),
        (["--image", "fedora"], 2, "--image: an image is os:<number>"),
    ],
)
def test_what_the_api_refuses_is_one_line_with_the_option(cli: Cli, words: list[str], code: int, error: str) -> None:
    result = cli.run("up", *words)

    assert result.code == code
    assert result.error.startswith(error)
    assert len(result.err.splitlines()) == 1
    assert cli.run("ls").out.startswith("No leases")


def test_the_same_key_gives_the_same_lease_and_another_request_with_it_is_refused(cli: Cli) -> None:
    words = ("up", "--no-wait", "--json", "--idempotency-key", "k")

    first, again = cli.run(*words, "--gpu", "A100"), cli.run(*words, "--gpu", "A100")
    other = cli.run(*words, "--gpu", "A16")

    assert json.loads(first.out)["id"] == json.loads(again.out)["id"]
    assert other.code == 5
    assert "Idempotency-Key" in other.error


def test_names_and_ids_that_do_not_exist_are_not_found(cli: Cli) -> None:
    for word in ("nosuch", "l-aaaaaaaaaaaz", "x" * 64, "a/b"):
        assert cli.run("show", word).code == 4


def test_a_catalogue_that_is_not_loaded_yet_is_told_at_once(cli: Cli, world: World) -> None:
    world.offers.snapshots = []

    result = cli.run("offers")

    assert result.code == 7
    assert "the catalogue of offers is not loaded yet" in result.error
    assert cli.clock.slept == 0
