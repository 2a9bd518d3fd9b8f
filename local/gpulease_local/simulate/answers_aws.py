"""Answers of AWS that are not itself: see `answers.Answers`. Codes come first, as in the real protocol: a code that
nobody knows must still end right."""

import random
from collections.abc import Callable
from typing import Any, NoReturn
from xml.etree import ElementTree

from gpulease_sim.aws import ConnectionCut, SimResponse

from gpulease_local.simulate.answers import LATE_LIST_SECONDS
from gpulease_local.simulate.effects import Do, Effect

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15"
_SETS = {
    "DescribeInstances": ("instancesSet", "instanceId"),
    "DescribeVolumes": ("volumeSet", "volumeId"),
    "DescribeSpotInstanceRequests": ("spotInstanceRequestSet", "spotInstanceRequestId"),
    "DescribeSecurityGroups": ("securityGroupInfo", "groupId"),
    "DescribeInstanceStatus": ("instanceStatusSet", "instanceId"),
}
_REFUSALS: tuple[tuple[int, str], ...] = (
    (400, "OperationDeclined"),
    (400, "IncorrectState"),
    (409, "ConflictingChange"),
    (412, "PreconditionOfSomeKind"),
    (500, "InternalError"),
    (503, "Unavailable"),
)
_DENIALS = {
    "DescribeInstances": "InvalidInstanceID.NotFound",
    "DescribeVolumes": "InvalidVolume.NotFound",
    "DescribeSecurityGroups": "InvalidGroup.NotFound",
    "DescribeSpotInstanceRequests": "InvalidSpotInstanceRequestID.NotFound",
}
"""Of reads by id: the thing exists all the same (reported of fresh machines)."""
_DETAILS = {
    "RunInstances": "<instancesSet><item><instanceId>i-{id}</instanceId><instanceState><code>0</code>"
    "<name>pending</name></instanceState></item></instancesSet>",
    "CreateVolume": "<volumeId>vol-{id}</volumeId><status>creating</status>",
    "CreateSecurityGroup": "<groupId>sg-{id}</groupId><return>true</return>",
}


class AwsAnswers:
    """`answers.Answers` of AWS. Time passes by what the answer says it took."""

    def __init__(self, now: Callable[[], float], created_at: Callable[[str], float | None]) -> None:
        self._now = now
        self._created_at = created_at

    def cut(self, seconds: float, text: str, *, sent: bool = True) -> NoReturn:
        """No answer; the client's own limit of time decides how it hears of it."""
        raise ConnectionCut(seconds, executed=False)

    def throttled(self, effect: Effect) -> SimResponse:
        return _refusal(effect, 503, "RequestLimitExceeded")

    def gateway(self, status: int = 502, seconds: float = 0.0) -> SimResponse:
        page = f"<html><head><title>{status}</title></head><body>gateway</body></html>".encode()
        return SimResponse(status, {"Content-Type": "text/html"}, page, seconds)

    def refused(self, effect: Effect, draw: random.Random) -> SimResponse:
        choices: tuple[tuple[int, str], ...] = _REFUSALS
        if effect.by_id and effect.action in _DENIALS:
            choices = (*_REFUSALS, (400, _DENIALS[effect.action]), (400, _DENIALS[effect.action]))
        return _refusal(effect, *draw.choice(choices))

    def ignored(self, effect: Effect, do: Do, draw: random.Random) -> SimResponse:
        """Answered as if it were done."""
        inner = _DETAILS.get(effect.action, "<return>true</return>").format(id=f"{draw.getrandbits(68):017x}")
        return _answer(effect, inner)

    def empty(self, answer: SimResponse) -> SimResponse:
        return answer._replace(status=200, body=b"")

    def wrong_shape(self, effect: Effect, answer: SimResponse, draw: random.Random) -> SimResponse:
        """Cut off in the middle, or well-formed and without what was asked for."""
        if draw.random() < 0.5:
            return answer._replace(body=answer.body[: len(answer.body) // 2])
        return _answer(effect, "<result/>")

    def late_list(self, effect: Effect, answer: SimResponse) -> SimResponse:
        """The list without what was created in the last minute; other answers as they are."""
        known = _SETS.get(effect.action)
        if known is None or answer.status != 200 or effect.by_id:
            return answer
        ElementTree.register_namespace("", _NAMESPACE)
        root = ElementTree.fromstring(answer.body)  # noqa: S314 - the simulator's own words
        for parent in root.iter(f"{{{_NAMESPACE}}}{known[0]}"):
            for item in list(parent):
                found = item.find(f"{{{_NAMESPACE}}}{known[1]}")
                if found is not None and self._is_fresh(str(found.text)):
                    parent.remove(item)
        return answer._replace(body=ElementTree.tostring(root, encoding="utf-8"))

    def _is_fresh(self, thing_id: str) -> bool:
        created = self._created_at(thing_id)
        return created is not None and self._now() - created < LATE_LIST_SECONDS


def _answer(effect: Effect, inner: str) -> SimResponse:
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><{effect.action}Response xmlns="{_NAMESPACE}">'
        f"<requestId>injected</requestId>{inner}</{effect.action}Response>"
    )
    return SimResponse(200, {"Content-Type": "text/xml;charset=UTF-8"}, body.encode())


def _refusal(effect: Effect, status: int, code: str) -> SimResponse:
    body: Any = (
        f'<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>{code}</Code>'
        "<Message>injected</Message></Error></Errors><RequestID>injected</RequestID></Response>"
    )
    return SimResponse(status, {"Content-Type": "text/xml;charset=UTF-8"}, body.encode())
