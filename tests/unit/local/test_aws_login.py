"""What `gpulease local --provider aws` says before it serves, when the user's AWS credentials do not do."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpulease_local import server
from gpulease_local.aws_login import log_in, regions_of
from gpulease_local.options import AwsSetup, Options, ServerRefused, check, folder_name
from gpulease_local.server import LocalServer
from gpulease_sim.aws import AwsCloud
from gpulease_sim.aws.server import serve as serve_cloud

from tests.support.aws_world import options as aws_options
from tests.support.aws_world import steady

NOW = 1_767_600_000.0
SSO = """
[profile research]
sso_start_url = https://example.awsapps.com/start
sso_region = us-east-1
sso_account_id = 123456789012
sso_role_name = gpulease
region = us-west-2
"""


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsCloud]:
    """A stand-in that is reached as the real AWS is: by botocore's own rules."""
    cloud = AwsCloud(lambda: NOW, 1, steady())
    with serve_cloud(cloud) as served:
        monkeypatch.setenv("AWS_ENDPOINT_URL", served.url)
        yield cloud


def _without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: str = "") -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(config)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))


def _refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str], **setup: str) -> str:
    """What the command prints; one line, status 2, and no folder is left locked."""
    folder = tmp_path / "data"
    given = AwsSetup(**{"regions": "us-east-1", **setup})
    status = server.main(provider="aws", port=0, data_dir=folder, aws=given, env={}, out=io.StringIO())
    said = capsys.readouterr().err
    assert (status, len(said.splitlines())) == (2, 1), said
    LocalServer(Options(port=0, data_dir=folder), {}).close()
    return said


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _without_credentials(monkeypatch, tmp_path)

    assert "AWS: no credentials: run `aws configure`" in _refusal(tmp_path, capsys)


def test_signing_in_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _without_credentials(monkeypatch, tmp_path, SSO)

    said = _refusal(tmp_path, capsys, profile="research")

    assert "signing in of profile research is needed: `aws sso login --profile research`" in said


def test_a_profile_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "(nobody) could not be found" in _refusal(tmp_path, capsys, profile="nobody")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("ExpiredToken", "are expired: `aws sso login`, or get new ones"),
        ("InvalidClientTokenId", "AWS does not know the credentials in us-east-1 (InvalidClientTokenId)"),
        ("SignatureDoesNotMatch", "AWS does not know the credentials"),
        ("RequestExpired", "is its clock right?"),
    ],
)
def test_credentials_that_are_refused(
    account: AwsCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, told: str
) -> None:
    account.settings = replace(account.settings, access_keys=frozenset({"another"}), refused_code=code)

    assert told in _refusal(tmp_path, capsys)


def test_a_region_that_is_not_enabled(account: AwsCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = _refusal(tmp_path, capsys, regions="us-east-1,eu-south-2")

    assert "region eu-south-2 is not enabled for this account" in said


def test_a_region_that_aws_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "AWS has no region 'us-east-11'; did you mean us-east-1?" in _refusal(tmp_path, capsys, regions="us-east-11")


def test_no_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _without_credentials(monkeypatch, tmp_path)

    assert "give --aws-regions" in _refusal(tmp_path, capsys, regions="")


def test_the_region_of_the_profile_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _without_credentials(monkeypatch, tmp_path, SSO)

    assert regions_of(AwsSetup(profile="research")) == ("us-west-2",)


def test_an_account_that_cannot_be_reached_is_watched_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    said: list[str] = []

    log_in(aws_options(None, regions=("us-east-1",)), said.append)

    assert len(said) == 2 and "AWS cannot be reached now" in said[0]


def test_real_machines_are_named_as_such(account: AwsCloud, tmp_path: Path) -> None:
    options = Options(provider="aws", port=0, data_dir=tmp_path, aws=AwsSetup("us-east-1, us-west-2"))
    started = LocalServer(options, {})
    words, real = started.sides.each[0].words, started.sides.real
    started.close()

    assert words == f"AWS: REAL machines, real money (account {account.settings.account_id}; us-east-1, us-west-2)"
    assert real


def test_settings_come_from_the_environment_and_options_override_them() -> None:
    env = {"GPULEASE_AWS_REGIONS": "eu-west-1", "GPULEASE_AWS_IMAGE": "ami-1", "GPULEASE_AWS_PROFILE": "p"}

    assert AwsSetup(profile="mine").completed(env) == AwsSetup(regions="eu-west-1", image="ami-1", profile="mine")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(provider="vultr,simulated"), "cannot be mixed"),
        (Options(provider="simulated-aws,aws"), "cannot be mixed"),
        (Options(provider="vultr, vultr"), "each provider once"),
        (Options(provider=" ,"), "no provider is named"),
        (Options(provider="aws", time_scale=2.0), "real time"),
        (Options(provider="aws", aws=AwsSetup(url="https://ec2.example")), "only a simulator on this computer"),
        (Options(provider="aws,vultr", aws=AwsSetup(url="http://127.0.0.1:1")), "give it alone"),
        (Options(provider="aws,vultr", vultr_url="http://127.0.0.1:1/v2"), "give it alone"),
    ],
)
def test_what_makes_no_sense_together_is_refused(options: Options, why: str) -> None:
    with pytest.raises(ServerRefused, match=why):
        check(options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(provider="aws", aws=AwsSetup("us-east-1", url="http://127.0.0.1:9")), "no simulated AWS answers"),
        (Options(provider="simulated-aws", aws=AwsSetup("mars-1")), "has no region 'mars-1'"),
        (Options(provider="aws", aws=AwsSetup("us-east-1", subnets="us-east-1a=vpc-1")), "--aws-subnets"),
        (Options(provider="aws", aws=AwsSetup("us-east-1", subnets="eu-west-1a=subnet-1")), "none of the regions"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line(tmp_path: Path, options: Options, why: str) -> None:
    with pytest.raises(ServerRefused, match=why):
        LocalServer(replace(options, port=0, data_dir=tmp_path), {})


def test_all_real_providers_have_one_ledger_and_what_is_served_has_its_own() -> None:
    names = {folder_name(Options(provider=text)) for text in ("vultr", "aws", "vultr,aws", "aws,vultr")}
    served = Options(provider="aws", aws=AwsSetup(url="http://127.0.0.1:8790"))

    assert names == {"real"}
    assert folder_name(served) == "aws-at-127.0.0.1-8790"
    assert folder_name(Options(provider="simulated-aws,simulated")) == "simulated+simulated-aws"
