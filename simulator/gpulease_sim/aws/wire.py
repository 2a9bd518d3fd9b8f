"""The EC2 query protocol: flat parameters in, XML out, and errors.

Own code so that thousands of calls per second can be answered; what is not answered here goes to moto as it came.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.sax.saxutils import escape as _escape

from gpulease_sim.answers import SimResponse

_ZERO = re.compile(r"\.0(?=\.|$)")
NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


class ApiError(Exception):
    """A refusal; `values` fill the message that belongs to the code (see `texts`)."""

    def __init__(self, code: str, *, status: int = 400, text: str = "", **values: str) -> None:
        super().__init__(code)
        self.code = code
        self.status = status
        self.text = text
        self.values = values


class PassedOn(Exception):
    """moto's own refusal, handed on as it is."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body!r}")
        self.status = status
        self.body = body


class Params(dict[str, str]):
    """The flat parameters of one call."""

    def listed(self, name: str) -> list[str]:
        """`name.1`, `name.2`, … in order."""
        found: list[str] = []
        while (key := f"{name}.{len(found) + 1}") in self:
            found.append(self[key])
        return found

    def groups(self, name: str) -> list["Params"]:
        """The structures `name.1.…`, `name.2.…` in order."""
        by_index: dict[int, Params] = {}
        start = len(name) + 1
        for key, value in self.items():
            if key.startswith(name + "."):
                index, _, rest = key[start:].partition(".")
                by_index.setdefault(int(index), Params())[rest] = value
        return [by_index[index] for index in sorted(by_index)]

    def tags(self, resource_type: str) -> dict[str, str]:
        """Tags that the call gives to new objects of that type."""
        tags: dict[str, str] = {}
        for each in self.groups("TagSpecification"):
            if each.get("ResourceType") == resource_type:
                tags |= {tag["Key"]: tag.get("Value", "") for tag in each.groups("Tag")}
        return tags

    def flag(self, name: str) -> bool:
        """A boolean; absent is false."""
        return self.get(name, "").lower() == "true"


def from_one(params: Params) -> Params:
    """Lists whose items are counted from 0 (libcloud sends `Tag.0.Key`; EC2 does not mind), counted from 1."""
    zero = {key[: found.start()] for key in params if (found := _ZERO.search(key))}
    if not zero:
        return params
    return Params((_from_one(key, zero), value) for key, value in params.items())


def _from_one(key: str, zero: set[str]) -> str:
    for prefix in zero:
        if key.startswith(prefix + "."):
            index, dot, rest = key[len(prefix) + 1 :].partition(".")
            return f"{prefix}.{int(index) + 1}{dot}{rest}"
    return key


@dataclass(slots=True)
class Call:
    """One request that passed authentication."""

    service: str
    region: str
    action: str
    params: Params
    body: bytes
    headers: Mapping[str, str]
    now: float
    executed: bool = field(default=False)


def escape(value: object) -> str:
    """Text for XML; booleans as EC2 writes them."""
    if value is True or value is False:
        return "true" if value else "false"
    text = str(value)
    return _escape(text) if "&" in text or "<" in text or ">" in text else text


def element(name: str, value: object) -> str:
    """One element; nothing for None."""
    return "" if value is None else f"<{name}>{escape(value)}</{name}>"


def items(name: str, contents: Iterable[str]) -> str:
    """A list; each content becomes an `item`."""
    inner = "".join(f"<item>{each}</item>" for each in contents)
    return f"<{name}>{inner}</{name}>" if inner else f"<{name}/>"


def tag_set(tags: Mapping[str, str]) -> str:
    """A tagSet; nothing where there are no tags."""
    return items("tagSet", (element("key", k) + element("value", v) for k, v in tags.items())) if tags else ""


def moment(seconds: float) -> str:
    """A time as EC2 writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def answer(action: str, inner: str, request_id: str) -> SimResponse:
    """A positive answer."""
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{NAMESPACE}">'
        f"<requestId>{request_id}</requestId>{inner}</{action}Response>"
    )
    return SimResponse(200, {"Content-Type": "text/xml;charset=UTF-8"}, body.encode())


def refusal(service: str, status: int, code: str, text: str, request_id: str) -> SimResponse:
    """A negative answer in the service's own form."""
    if service == "ssm":
        import json

        payload = json.dumps({"__type": code, "message": text}).encode()
        return SimResponse(status, {"Content-Type": "application/x-amz-json-1.1"}, payload)
    if service == "sts":
        body = (
            '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
            f"<Code>{code}</Code><Message>{escape(text)}</Message></Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
    else:
        body = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{code}</Code>'
            f"<Message>{escape(text)}</Message></Error></Errors><RequestID>{request_id}</RequestID></Response>"
        )
    return SimResponse(status, {"Content-Type": "text/xml;charset=UTF-8"}, body.encode())


Getter = Callable[[str], list[str] | str | None]


def wanted(params: Params, known: Callable[[str], bool]) -> list[tuple[str, list[re.Pattern[str]]]]:
    """The call's filters; raises InvalidParameterValue for a name that EC2 does not know."""
    found = []
    for each in params.groups("Filter"):
        name = each.get("Name", "")
        if not known(name):
            raise ApiError("InvalidParameterValue", text=f"The filter '{name}' is invalid")
        found.append((name, [_pattern(value) for value in each.listed("Value")]))
    return found


def _pattern(value: str) -> re.Pattern[str]:
    return re.compile(re.escape(value).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def matches(filters: list[tuple[str, list[re.Pattern[str]]]], get: Getter) -> bool:
    """Whether an object meets all filters; `get` gives one or several texts of it, or None."""
    for name, patterns in filters:
        value = get(name)
        values = [value] if isinstance(value, str) else value or []
        if not any(pattern.fullmatch(text) for pattern in patterns for text in values):
            return False
    return True
