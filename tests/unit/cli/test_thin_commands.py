"""`local`, `simulate` and `simulator` check their options and hand over."""

from pathlib import Path
from typing import Any

import pytest
from gpulease_local.server import AwsSetup

from tests.support.cli_world import Cli


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def main(**options: Any) -> int:
        calls.append(options)
        return 0

    monkeypatch.setattr("gpulease_local.server.main", main)
    monkeypatch.setattr("gpulease_local.simulate.main", main)
    return calls


def test_local_hands_over_its_defaults(cli: Cli, called: list[dict[str, Any]]) -> None:
    cli.env["GPULEASE_HOME"] = str(cli.home / "g")

    assert cli.run("local").code == 0
    assert called == [
        {
            "provider": "simulated",
            "port": 8765,
            "data_dir": cli.home / "g" / "local",
            "time_scale": 1.0,
            "vultr_url": None,
            "seed": 0,
            "template": None,
            "agent_url": None,
            "aws": AwsSetup(),
            "env": cli.env,
        }
    ]


def test_local_hands_over_what_is_for_aws(cli: Cli, called: list[dict[str, Any]]) -> None:
    words = ["--provider", "aws,vultr", "--aws-regions", "us-east-1,eu-west-1", "--aws-profile", "research"]

    assert cli.run("local", *words, "--aws-image", "ami-1").code == 0
    assert called[0]["provider"] == "aws,vultr"
    assert called[0]["aws"] == AwsSetup(regions="us-east-1,eu-west-1", profile="research", image="ami-1")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--provider", "vultr", "--time-scale", "60"], "--time-scale: contradicts --provider vultr"),
        (["--provider", "vultr", "--seed", "1"], "--seed: contradicts --provider vultr"),
        (["--vultr-url", "http://127.0.0.1:1"], "--vultr-url: contradicts --provider simulated"),
        (["--provider", "vultr", "--vultr-url", "127.0.0.1"], "--vultr-url: '127.0.0.1' is not an address"),
        (["--port", "70000"], "--port: 70000 is out of range; give 0 to 65535"),
        (["--time-scale", "0"], "--time-scale: 0 is not possible"),
        (["--template", "none.yaml"], "--template: none.yaml is not there"),
        (["--data-dir", "a-file"], "--data-dir: a-file is not a folder"),
        (["--provider", "moon"], "--provider: 'moon' is not one of"),
        (["--provider", ""], "--provider: '' is not one of"),
        (["--provider", "vultr,vultr"], "--provider: names one twice"),
        (["--provider", "vultr,simulated-aws"], "--provider: real and simulated providers cannot be mixed"),
        (["--provider", "aws", "--time-scale", "60"], "--time-scale: contradicts --provider aws"),
        (["--provider", "vultr", "--aws-regions", "us-east-1"], "--aws-regions: contradicts --provider vultr"),
        (["--provider", "simulated-aws", "--aws-url", "http://127.0.0.1:1"], "--aws-url: contradicts"),
        (["--provider", "aws", "--aws-url", "127.0.0.1"], "--aws-url: '127.0.0.1' is not an address"),
    ],
)
def test_local_refuses_what_cannot_be(cli: Cli, called: list[dict[str, Any]], words: list[str], error: str) -> None:
    (cli.home / "a-file").touch()

    result = cli.run("local", *words)

    assert result.code == 2
    assert result.error.startswith(error)
    assert called == []


def test_simulate_hands_over(cli: Cli, called: list[dict[str, Any]]) -> None:
    assert cli.run("simulate", "--leases", "50", "--seed", "11", "--faults", "none", "--json").code == 0
    assert called == [
        {"leases": 50, "seed": 11, "faults": "none", "json_output": True, "provider": "vultr", "agents": False}
    ]


def test_simulate_needs_a_lease(cli: Cli, called: list[dict[str, Any]]) -> None:
    assert cli.run("simulate", "--leases", "0").error == "--leases: 0 is out of range; give 1 to 1000000"
    assert called == []


def test_simulator_hands_over(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr("gpulease_sim.vultr.__main__.main", calls.append)

    assert cli.run("simulator", "vultr", "--port", "0", "--state", str(Path("s.db"))).code == 0
    assert calls == [["--port", "0", "--time-scale", "1.0", "--seed", "0", "--state", "s.db"]]


@pytest.mark.parametrize("other", [["--crash-points"], ["--pairs", "3"], ["--scenario", "idle-week"]])
def test_agents_are_an_option_of_whole_lives(cli: Cli, called: list[dict[str, Any]], other: list[str]) -> None:
    assert cli.run("simulate", "--agents", *other).error.startswith("--agents: is of --scenario lives")
    assert called == []
