"""Who the caller is, from either authorizer, and who is an admin."""

from typing import Any

import pytest
from gpulease.api.caller import caller_of

USER = "arn:aws:iam::111122223333:user/alice"
ROLE = "arn:aws:iam::111122223333:role/GpuAdmins"
SSO_ROLE = "arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/eu-west-1/AWSReservedSSO_Admin_0123abcd"


def iam(arn: str) -> dict[str, Any]:
    """A request that was signed."""
    return {"requestContext": {"authorizer": {"iam": {"userArn": arn, "accountId": "111122223333"}}}}


def jwt(subject: str) -> dict[str, Any]:
    """A request with a token."""
    return {"requestContext": {"authorizer": {"jwt": {"claims": {"sub": subject, "iss": "https://x"}, "scopes": None}}}}


@pytest.mark.parametrize(("event", "owner"), [(iam(USER), USER), (jwt("auth0|42"), "auth0|42")])
def test_the_owner_is_the_signer_or_the_subject_of_the_token(event: dict[str, Any], owner: str) -> None:
    caller = caller_of(event, frozenset())

    assert caller.owner == owner
    assert not caller.admin
    assert caller.may_see(owner)
    assert not caller.may_see("somebody else")


@pytest.mark.parametrize(
    ("event", "admin"),
    [
        (iam(USER), USER),
        (jwt("auth0|42"), "auth0|42"),
        (iam("arn:aws:sts::111122223333:assumed-role/GpuAdmins/bob@example.org"), ROLE),
        (iam("arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Admin_0123abcd/bob"), SSO_ROLE),
        (iam("arn:aws-cn:sts::111122223333:assumed-role/A/b"), "arn:aws-cn:iam::111122223333:role/A"),
    ],
)
def test_an_admin_is_named_or_has_assumed_a_role_that_is(event: dict[str, Any], admin: str) -> None:
    caller = caller_of(event, frozenset({"somebody", admin}))

    assert caller.admin
    assert caller.may_see("somebody else")


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (iam("arn:aws:sts::999988887777:assumed-role/GpuAdmins/bob"), "another account"),
        (iam("arn:aws-cn:sts::111122223333:assumed-role/GpuAdmins/bob"), "another partition"),
        (iam("arn:aws:sts::111122223333:assumed-role/GpuAdmins2/bob"), "another role"),
        (iam("arn:aws:sts::111122223333:assumed-role/Admins/bob"), "the end of a role's name"),
        (iam("arn:aws:sts::111122223333:assumed-role/x/GpuAdmins"), "a session of that name"),
        (iam("arn:aws:sts::111122223333:assumed-role/x/y/GpuAdmins"), "a form that there is not"),
        (iam("arn:aws:sts::111122223333:assumed-role/.*/bob"), "a pattern"),
        (iam("arn:aws:iam::111122223333:user/GpuAdmins"), "a user of that name"),
        (iam("arn:aws:sts::111122223333:federated-user/GpuAdmins"), "a federated user of that name"),
        (iam(ROLE.upper()), "another case"),
        (jwt("arn:aws:sts::111122223333:assumed-role/GpuAdmins/bob"), "a token that says so"),
    ],
)
def test_nobody_else_is_an_admin(event: dict[str, Any], why: str) -> None:
    assert not caller_of(event, frozenset({USER, ROLE, SSO_ROLE})).admin, why
