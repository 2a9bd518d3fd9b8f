"""How settings become an AWS account: as whom, where, in which subnets."""

from typing import Any

import pytest
from gpulease.errors import InputInvalid
from gpulease.providers.aws.options import AwsOptions, parse_roles, parse_subnets
from gpulease.runtime import accounts
from gpulease.runtime.settings import parse

ROLE = "arn:aws:iam::123456789012:role/gpulease-research"


def settings(**values: Any) -> Any:
    return parse({"deployment": "test0000", "accounts": "vultr,aws,aws-research=aws", **values})


def test_an_account_is_ourselves_unless_a_role_is_named_for_it() -> None:
    given = settings(aws_regions="us-east-1, eu-west-1", aws_roles=f"aws-research={ROLE}|key=with=signs")

    own, other = (accounts._options(given, "aws", name) for name in ("aws", "aws-research"))

    assert isinstance(own, AwsOptions) and isinstance(other, AwsOptions)
    assert own.regions == ("us-east-1", "eu-west-1") and not own.role_arn
    assert (other.role_arn, other.external_id) == (ROLE, "key=with=signs")


def test_other_providers_are_told_nothing_of_aws() -> None:
    assert accounts._options(settings(aws_regions="us-east-1"), "vultr", "vultr") is None


def test_subnets_are_by_zone() -> None:
    assert parse_subnets("us-east-1a=subnet-0a, us-east-1b=subnet-0b") == {
        "us-east-1a": "subnet-0a",
        "us-east-1b": "subnet-0b",
    }
    assert parse_subnets("") == {} and parse_roles("") == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("aws_subnets", "us-east-1=subnet-0a"),
        ("aws_subnets", "us-east-1a=vpc-0a"),
        ("aws_subnets", "subnet-0a"),
        ("aws_roles", ROLE),
        ("aws_roles", "aws=gpulease-research"),
    ],
)
def test_a_setting_that_cannot_be_read_stops_the_function_at_its_first_call(name: str, text: str) -> None:
    with pytest.raises(InputInvalid, match=f"GPULEASE_{name.upper()}"):
        settings(**{name: text})
