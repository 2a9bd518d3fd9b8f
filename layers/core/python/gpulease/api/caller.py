"""Who is calling: the one place that reads the authorizer's part of a request.

The gateway (or the local front) has checked the signature or token before; without its word there is no caller.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from gpulease.api.problems import Problem

_IAM = ("iam", "userArn")
_PLACES = (
    _IAM,
    ("jwt", "claims", "sub"),
    ("claims", "sub"),
    ("lambda", "principalId"),
)
"""Where HTTP APIs (payload format 2.0) put the caller: IAM, JWT, and a Lambda authorizer as the local front plays it.
https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html"""


@dataclass(frozen=True, slots=True)
class Caller:
    owner: str
    admin: bool = False

    def may_see(self, owner: str) -> bool:
        return self.admin or owner == self.owner


def _assumes_one_of(identity: str, admins: frozenset[str]) -> bool:
    """Whether an assumed role's identity belongs to a role among `admins`. The identity leaves the role's path out, and
    role names are unique within an account whatever their path.
    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"""
    assumed = re.fullmatch(r"arn:([\w-]+):sts::(\d{12}):assumed-role/([^/]+)/[^/]+", identity)
    if assumed is None:
        return False
    partition, account, role = assumed.groups()
    named = re.compile(rf"arn:{partition}:iam::{account}:role/(?:[^*]*/)?{re.escape(role)}")
    return any(named.fullmatch(admin) for admin in admins)


def caller_of(event: Mapping[str, Any], admins: frozenset[str]) -> Caller:
    """The authorised caller of this request. Raises a 401 problem when the authorizer named nobody."""
    context = event.get("requestContext")
    authorizer = context.get("authorizer") if isinstance(context, Mapping) else None
    for place in _PLACES:
        found: Any = authorizer
        for key in place:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, str) and found:
            return Caller(found, found in admins or (place == _IAM and _assumes_one_of(found, admins)))
    raise Problem(
        HTTPStatus.UNAUTHORIZED,
        "not_authenticated",
        "the request carries no identity; sign it (SigV4) or send a bearer token",
        # RFC 9110 wants a challenge with every 401.
        headers={"WWW-Authenticate": "Bearer"},
    )
