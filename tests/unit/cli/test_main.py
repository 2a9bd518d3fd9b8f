"""Whatever ends a command, it is one line and the right exit code; and starting is cheap."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.main import cli as root
from gpulease_cli.main import main

from tests.support.cli_world import Cli
from tests.support.fake_api import FakeApi, Fault

REPOSITORY = Path(__file__).parents[3]


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", code],
        env={"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["version", "--version", "--help"])
def test_cheap_commands_import_nothing_heavy(command: str) -> None:
    heavy = ["boto3", "botocore", "requests", "pydantic", "yaml", "rich", "gpulease", "gpulease_local", "gpulease_sim"]
    code = (
        f"import sys; from gpulease_cli.main import main; code = main([{command!r}]);"
        f"print('loaded:', *[name for name in {heavy!r} if name in sys.modules]); sys.exit(code)"
    )

    done = run_python(code)

    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_looking_at_leases_needs_neither_the_core_nor_pydantic() -> None:
    code = (
        "import sys, gpulease_cli.commands.ls, gpulease_cli.commands.show, gpulease_cli.commands.down;"
        "print(*[name for name in ('boto3', 'pydantic', 'requests', 'gpulease', 'rich') if name in sys.modules])"
    )

    assert run_python(code).stdout.strip() == ""


def test_an_api_that_does_not_run_is_one_line_with_what_was_tried_and_how_to_start_it(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    cli.env["GPULEASE_ENDPOINT"] = url

    result = cli.run("ls")

    assert result.code == 3
    assert result.error == (
        f"endpoint: {url} (from GPULEASE_ENDPOINT) gave no answer: connection refused; start it with `gpulease local`"
    )


def test_a_wrong_token_says_how_to_give_the_right_one(cli: Cli) -> None:
    result = cli.run("ls", "--token", "wrong")

    assert result.code == 5
    assert result.error.startswith("token: the token is not right; give the right one with --token")


@pytest.mark.parametrize(
    ("status", "code"), [(400, 2), (401, 5), (403, 5), (404, 4), (409, 5), (422, 2), (500, 7), (501, 7), (302, 5)]
)
def test_each_answer_of_the_api_has_its_exit_code(cli: Cli, api: FakeApi, status: int, code: int) -> None:
    api.faults = [Fault("GET", status, {"title": "No", "detail": "because"})]

    result = cli.run("ls")

    assert result.code == code
    assert "because" in result.error


def test_an_unexpected_fault_is_one_line_with_a_hint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what\nis this")

    monkeypatch.setattr("gpulease_cli.client.Client._once", broken)

    result = cli.run("ls")

    assert result.code == 7
    assert re.fullmatch(r"unexpected KeyError: .*; GPULEASE_DEBUG=1 shows where", result.error)
    assert len(result.err.splitlines()) == 1


def test_debug_shows_where(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulease_cli.client.Client._once", lambda *_: 1 / 0)
    cli.env["GPULEASE_DEBUG"] = "1"

    assert "Traceback" in cli.run("ls").err


def test_an_unknown_command_is_one_line_with_a_suggestion(cli: Cli) -> None:
    assert cli.run("don").error == "there is no command 'don'; did you mean down?"
    assert cli.run("zzzzzz").error.startswith("there is no command 'zzzzzz'; known: offers, up, ls")


def test_endpoint_and_token_can_stand_before_or_after_the_command(cli: Cli, api: FakeApi) -> None:
    token = cli.env.pop("GPULEASE_TOKEN")
    cli.env["GPULEASE_ENDPOINT"] = "http://127.0.0.1:1"

    before = cli.run("--endpoint", api.url, "--token", token, "ls")
    after = cli.run("ls", "--endpoint", api.url, "--token", token)

    assert before.code == after.code == 0


def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = "import sys; from gpulease_cli.main import main; sys.exit(main(['--help']))"
    script = f'{sys.executable} -c "{code}" | true; exit ${{PIPESTATUS[0]}}'

    done = subprocess.run(  # noqa: S603
        ["bash", "-c", script],  # noqa: S607
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_us(cli: Cli, shell: str) -> None:
    result = cli.run("completion", shell)

    assert result.code == 0
    assert f"_GPULEASE_COMPLETE={shell}_complete" in result.out


@pytest.mark.parametrize("name", list(root.list_commands(click.Context(root))))
def test_every_command_has_help_with_an_example(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")

    result = cli.run(name, "--help")

    assert result.code == 0
    assert re.search(rf"^  .*gpulease {name}\b", result.out, re.MULTILINE)


def test_the_documentation_has_every_exit_code_and_command() -> None:
    text = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")

    for code in ExitCode:
        assert re.search(rf"^\| {code.value} \|", text, re.MULTILINE)
    for name in root.list_commands(click.Context(root)):
        assert f"gpulease {name}" in text


def test_colours_are_left_out_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulease_cli.tables import Column, print_table
    from rich.console import Console

    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(force_terminal=True, width=40)
    with console.capture() as capture:
        print_table(console, [Column("STATE", 0)], [["running"]])

    assert "\x1b[3" not in capture.get()


def test_main_gives_plain_exit_codes() -> None:
    assert main(["version"]) == 0
    assert main(["nosuch"]) == 2
