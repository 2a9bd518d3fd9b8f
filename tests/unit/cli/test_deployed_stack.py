"""`configure`, `secrets` and signed requests, with AWS played by stubs."""

import stat
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.stub import ANY, Stubber
from gpulease_cli import profiles
from gpulease_cli.aws import Aws
from gpulease_cli.endpoint import discover
from gpulease_cli.errors import CliError
from gpulease_cli.sigv4 import Sigv4Signer

from tests.support.cli_world import Cli

OUTPUTS = {
    "ApiUrl": "https://abc123.execute-api.eu-central-1.amazonaws.com",
    "ApiAuthorization": "IAM",
    "SecretPrefix": "gpulease/mine",
}
PROFILE = profiles.Profile(
    url=OUTPUTS["ApiUrl"],
    authorization="IAM",
    stack="mine",
    region="eu-central-1",
    secret_prefix="gpulease/mine",  # noqa: S106 - a name
)


def stubbed(monkeypatch: pytest.MonkeyPatch, service: str) -> Stubber:
    """A client whose answers are scripted, given to whoever asks for one of that service."""
    make: Any = boto3.client
    client = make(service, region_name="eu-central-1")
    monkeypatch.setattr(Aws, "_client", lambda self, name: client)
    stubber = Stubber(client)
    stubber.activate()
    return stubber


def described(outputs: dict[str, str]) -> dict[str, Any]:
    """The answer of DescribeStacks."""
    listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    stack = {"StackName": "mine", "StackStatus": "CREATE_COMPLETE", "CreationTime": "2026-01-05T12:00:00Z"}
    return {"Stacks": [{**stack, "Outputs": listed}]}


@pytest.fixture
def at_home(cli: Cli, tmp_path: Path) -> Cli:
    """A command line with a home of its own and no address in its environment."""
    cli.env = {"GPULEASE_HOME": str(tmp_path / "home")}
    return cli


def test_configure_keeps_what_the_stack_says_of_itself(at_home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    stubbed(monkeypatch, "cloudformation").add_response("describe_stacks", described(OUTPUTS), {"StackName": "mine"})

    result = at_home.run("configure", "--stack", "mine", "--region", "eu-central-1")

    assert result.code == 0
    endpoint = discover(at_home.env)
    assert (endpoint.url, endpoint.profile, endpoint.is_signed) == (PROFILE.url, PROFILE, True)


def test_configure_leaves_other_stacks_as_they_are(at_home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path(at_home.env["GPULEASE_HOME"])
    profiles.write(home, "default", PROFILE)
    stubbed(monkeypatch, "cloudformation").add_response("describe_stacks", described(OUTPUTS))

    at_home.run("configure", "--stack", "mine", "--name", "test", "--region", "eu-west-1")

    assert profiles.read(home)["default"] == PROFILE
    assert profiles.read(home)["test"].region == "eu-west-1"
    assert discover({**at_home.env, "GPULEASE_PROFILE": "test"}).profile == profiles.read(home)["test"]


@pytest.mark.parametrize(
    ("code", "message", "said", "exit_code"),
    [
        ("ValidationError", "Stack with id mine does not exist", "no stack 'mine' in eu-central-1", 4),
        ("ExpiredToken", "x", "credentials have expired; log in again", 5),
        ("InvalidClientTokenId", "x", "does not accept the credentials", 5),
        ("AccessDenied", "x", "do not allow cloudformation:DescribeStacks in eu-central-1", 5),
        ("Throttling", "slow down", "AWS answered Throttling: slow down", 5),
    ],
)
def test_what_aws_refuses_is_told_in_one_line(
    at_home: Cli, monkeypatch: pytest.MonkeyPatch, code: str, message: str, said: str, exit_code: int
) -> None:
    stubbed(monkeypatch, "cloudformation").add_client_error("describe_stacks", code, message)

    result = at_home.run("configure", "--stack", "mine", "--region", "eu-central-1")

    assert said in result.error
    assert result.code == exit_code


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (NoCredentialsError(), "no AWS credentials found"),
        (EndpointConnectionError(endpoint_url="https://cloudformation.mars-1.amazonaws.com"), "is the region right?"),
    ],
)
def test_what_never_reached_aws_is_told_in_one_line(
    at_home: Cli, monkeypatch: pytest.MonkeyPatch, failure: Exception, said: str
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(Aws, "_client", fail)

    assert said in at_home.run("configure", "--stack", "mine", "--region", "mars-1").error


def test_a_stack_of_something_else_is_refused(at_home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    stubbed(monkeypatch, "cloudformation").add_response("describe_stacks", described({"Bucket": "x"}))

    result = at_home.run("configure", "--stack", "mine", "--region", "eu-central-1")

    assert "has no output ApiUrl" in result.error
    assert not profiles.path_in(Path(at_home.env["GPULEASE_HOME"])).exists()


def test_nothing_is_guessed_while_a_stack_is_configured_and_a_local_server_runs(tmp_path: Path) -> None:
    profiles.write(tmp_path, "default", PROFILE)
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "api.json").write_text('{"url": "http://127.0.0.1:8765", "token": "t"}')
    env = {"GPULEASE_HOME": str(tmp_path)}

    with pytest.raises(CliError, match=r"GPULEASE_PROFILE=default or GPULEASE_PROFILE=local"):
        discover(env)
    assert discover({**env, "GPULEASE_PROFILE": "local"}).is_local
    assert discover({**env, "GPULEASE_PROFILE": "default"}).url == PROFILE.url


def test_a_profile_that_is_not_configured_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="'there' is not configured; known: local"):
        discover({"GPULEASE_HOME": str(tmp_path), "GPULEASE_PROFILE": "there"})


@pytest.mark.parametrize(
    "content",
    ["[default", 'default = "x"', '[default]\nurl = "https://h"', "[default]\nurl = 1", '[default]\nuri = ""'],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    profiles.path_in(tmp_path).write_text(content)

    with pytest.raises(CliError) as caught:
        discover({"GPULEASE_HOME": str(tmp_path)})

    assert caught.value.field == str(profiles.path_in(tmp_path))


def test_a_key_for_this_computer_is_readable_by_its_user_only(at_home: Cli) -> None:
    at_home.typed = ""
    at_home.monkeypatch.setattr("click.prompt", lambda *_, **options: " SECRET \n" if options["hide_input"] else "")

    result = at_home.run("secrets", "set", "vultr")

    file = Path(at_home.env["GPULEASE_HOME"]) / "keys" / "vultr"
    assert result.code == 0
    assert "SECRET" not in result.out + result.err
    assert file.read_text() == "SECRET\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_key_of_a_stack_goes_to_secrets_manager(at_home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.write(Path(at_home.env["GPULEASE_HOME"]), "default", PROFILE)
    stubber = stubbed(monkeypatch, "secretsmanager")
    stubber.add_client_error("put_secret_value", "ResourceNotFoundException", "no such secret")
    made = {"Name": "gpulease/mine/vultr", "SecretString": "SECRET", "Description": ANY}
    stubber.add_response("create_secret", {"Name": "gpulease/mine/vultr"}, made)
    at_home.typed = ""
    monkeypatch.setattr("click.prompt", lambda *_, **options: "SECRET")

    result = at_home.run("secrets", "set", "vultr")

    assert "stored as gpulease/mine/vultr in Secrets Manager" in result.out
    assert not (Path(at_home.env["GPULEASE_HOME"]) / "keys").exists()
    stubber.assert_no_pending_responses()


def test_a_key_is_in_no_error(at_home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.write(Path(at_home.env["GPULEASE_HOME"]), "default", PROFILE)
    stubbed(monkeypatch, "secretsmanager")  # with no answer ready, the stub's own complaint repeats all parameters
    at_home.typed = ""
    monkeypatch.setattr("click.prompt", lambda *_, **options: "SECRET")

    result = at_home.run("secrets", "set", "vultr")

    assert result.code == 5
    assert "SECRET" not in result.out + result.err


@pytest.mark.parametrize("key", ["", "two\nlines", "\x00", "x" * 5000])
def test_what_is_no_key_is_not_stored(at_home: Cli, key: str) -> None:
    at_home.typed = ""
    at_home.monkeypatch.setattr("click.prompt", lambda *_, **options: key)

    result = at_home.run("secrets", "set", "vultr")

    assert result.error == "key: must be one line of printable characters; nothing was stored"
    assert not (Path(at_home.env["GPULEASE_HOME"]) / "keys").exists()


@pytest.mark.parametrize("account", ["../vultr", "Vultr", "a/b", ""])
def test_an_account_that_is_no_name_is_refused(at_home: Cli, account: str) -> None:
    assert at_home.run("secrets", "set", account).code == 2


def test_a_signature_covers_the_body_and_names_region_and_service() -> None:
    sign = Sigv4Signer("eu-central-1")
    url = f"{PROFILE.url}/v1/leases?limit=1"

    one = sign("POST", url, {"Content-type": "application/json", "User-agent": "x"}, b"{}")
    other = sign("POST", url, {"Content-type": "application/json", "User-agent": "x"}, b"[]")

    assert "/eu-central-1/execute-api/aws4_request" in one["Authorization"]
    assert "SignedHeaders=content-type;host;x-amz-date" in one["Authorization"]
    assert one["Authorization"] != other["Authorization"]


def test_missing_credentials_are_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("botocore.session.Session.get_credentials", lambda self: None)

    with pytest.raises(CliError, match="no AWS credentials found"):
        Sigv4Signer("eu-central-1")("GET", PROFILE.url, {}, None)


def test_a_profile_of_aws_that_is_gone_is_named() -> None:
    with pytest.raises(CliError, match="nowhere"):
        Sigv4Signer("eu-central-1", "nowhere")("GET", PROFILE.url, {}, None)
