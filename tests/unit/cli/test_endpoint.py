"""The address and token come from options, then the environment, then the local file."""

import json
from pathlib import Path

import pytest
from gpulease_cli.endpoint import discover
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode


def local_file(home: Path, url: str = "http://127.0.0.1:8765", token: str = "local") -> dict[str, str]:  # noqa: S107
    path = home / "local" / "api.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"url": url, "token": token}))
    return {"GPULEASE_HOME": str(home)}


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    env = local_file(tmp_path)
    both = {**env, "GPULEASE_ENDPOINT": "https://env.test", "GPULEASE_TOKEN": "env"}

    by_file, by_env = discover(env), discover(both)
    by_option = discover(both, url="https://option.test/", token="option")  # noqa: S106

    assert (by_file.url, by_file.token) == ("http://127.0.0.1:8765", "local")
    assert (by_env.url, by_env.token) == ("https://env.test", "env")
    assert (by_option.url, by_option.token) == ("https://option.test", "option")


def test_the_local_token_is_not_sent_to_another_address(tmp_path: Path) -> None:
    env = local_file(tmp_path)

    assert discover(env, url="https://elsewhere.test").token == ""
    assert discover(env, url="http://127.0.0.1:8765").token == "local"  # noqa: S105


def test_without_any_address_the_error_says_what_was_tried_and_how_to_start(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"--endpoint, GPULEASE_ENDPOINT, .*api\.json.*gpulease local") as caught:
        discover({"GPULEASE_HOME": str(tmp_path)})

    assert caught.value.code is ExitCode.UNREACHABLE


@pytest.mark.parametrize("content", ["{", "[]", '{"url": "x", "token": "y"}', '{"url": "http://h"}'])
def test_a_broken_local_file_is_named(tmp_path: Path, content: str) -> None:
    env = local_file(tmp_path)
    (tmp_path / "local" / "api.json").write_text(content)

    with pytest.raises(CliError, match="cannot be read") as caught:
        discover(env)

    assert "api.json" in caught.value.line()


@pytest.mark.parametrize("url", ["localhost:8765", "ftp://host", "http://", "http://host:99999", "http://[half"])
def test_what_is_no_address_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(CliError, match="is not an address"):
        discover({"GPULEASE_HOME": str(tmp_path)}, url=url)


def test_a_token_over_plain_http_to_another_machine_is_noticed(tmp_path: Path) -> None:
    env = {"GPULEASE_HOME": str(tmp_path), "GPULEASE_TOKEN": "secret"}

    assert discover(env, url="http://elsewhere.test").sends_token_in_the_clear
    assert not discover(env, url="https://elsewhere.test").sends_token_in_the_clear
    assert not discover(env, url="http://127.0.0.1:1").sends_token_in_the_clear


def test_the_token_is_not_in_the_repr(tmp_path: Path) -> None:
    assert "secret" not in repr(discover({"GPULEASE_HOME": str(tmp_path)}, url="http://h.test", token="secret"))  # noqa: S106
