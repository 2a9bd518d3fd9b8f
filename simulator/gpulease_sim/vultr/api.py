"""What every route shares: the call, the answer, the errors, the route table and paging.

The route table is a tree over path segments, built once, so that finding a handler costs a few dictionary lookups: the
simulation sends thousands of calls per second through it.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from gpulease_sim.vultr.account import Account

Json = dict[str, Any]
MAX_PER_PAGE = 500


class Reply(NamedTuple):
    """A handler's answer before it is encoded; no payload means an empty body."""

    status: int
    payload: Json | None = None


class ApiError(Exception):
    """A refusal; the text is looked up by `key` when the answer is written."""

    def __init__(self, status: int, key: str, **values: str) -> None:
        super().__init__(key)
        self.status = status
        self.key = key
        self.values = values


class NotFound(ApiError):
    """A missing object; status and text depend on the settings."""

    def __init__(self, key: str, status: int = 404) -> None:
        super().__init__(status, key)


@dataclass(slots=True)
class Call:
    """One request that passed authentication."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    now: float
    client: str
    key: str
    """The API key, empty where none was sent."""
    created: list[str] = field(default_factory=list)
    """Ids of objects that the call made."""

    def json(self) -> Json:
        """The body as an object; an empty body is an empty object."""
        if not self.body:
            return {}
        try:
            data = json.loads(self.body)
        except ValueError:
            raise ApiError(400, "bad_json") from None
        if not isinstance(data, dict):
            raise ApiError(400, "bad_json")
        return data


Handler = Callable[["Account", Call, list[str]], Reply]


@dataclass(slots=True)
class _Node:
    children: dict[str, "_Node"] = field(default_factory=dict)
    wildcard: "_Node | None" = None
    handlers: dict[str, Handler] = field(default_factory=dict)


class Routes:
    """Method and path to handler; `{}` in a path stands for an id."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Register one route."""
        node = self._root
        for segment in path.strip("/").split("/"):
            if segment == "{}":
                node.wildcard = node.wildcard or _Node()
                node = node.wildcard
            else:
                node = node.children.setdefault(segment, _Node())
        node.handlers[method] = handler

    def find(self, method: str, path: str) -> tuple[Handler, list[str]]:
        """The handler and the ids in the path; raises ApiError 404 or 405."""
        node: _Node | None = self._root
        ids: list[str] = []
        for segment in path.strip("/").split("/"):
            child = node.children.get(segment) if node else None
            if child is None and node is not None:
                child = node.wildcard
                ids.append(segment)
            node = child
        if node is None or not node.handlers:
            raise ApiError(404, "route")
        handler = node.handlers.get(method)
        if handler is None:
            raise ApiError(405, "method", methods=", ".join(sorted(node.handlers)))
        return handler, ids


class Listed(Protocol):
    """Something with an identity and a place in the order of creation."""

    @property
    def id(self) -> str:
        """The provider's id."""
        ...

    @property
    def number(self) -> int:
        """Counts up with creation."""
        ...


T = TypeVar("T", bound=Listed)


def page(account: "Account", call: Call, key: str, items: Iterable[T], wire: Callable[[T], Json]) -> Reply:
    """One page of `items` (oldest first) with total and cursors."""
    listed = list(items)
    limit = _per_page(call.query.get("per_page"), account.settings.default_per_page)
    start = _start(account, call.query.get("cursor"), listed)
    end = start + limit
    following = _cursor("next", account, listed, end) if end < len(listed) else ""
    previous = _cursor("prev", account, listed, max(0, start - limit)) if start > 0 and listed else ""
    meta = {"total": len(listed), "links": {"next": following, "prev": previous}}
    return Reply(200, {key: [wire(each) for each in listed[start:end]], "meta": meta})


def _per_page(given: str | None, default: int) -> int:
    if given is None:
        return default
    try:
        return min(MAX_PER_PAGE, max(1, int(given)))
    except ValueError:
        raise ApiError(400, "bad_field", name="per_page") from None


def _cursor(word: str, account: "Account", listed: list[T], index: int) -> str:
    target = listed[min(index, len(listed) - 1)]
    position = str(index) if account.settings.paging == "offset" else str(target.number)
    return base64.b64encode(f"{word}__{target.id}__{position}".encode()).decode()


def _start(account: "Account", cursor: str | None, listed: list[T]) -> int:
    if not cursor:
        return 0
    try:
        position = int(base64.b64decode(cursor, validate=True).decode().rsplit("__", 1)[1])
    except (binascii.Error, ValueError, IndexError):
        raise ApiError(400, "bad_cursor") from None
    if account.settings.paging == "offset":
        return min(position, len(listed))
    return next((index for index, each in enumerate(listed) if each.number >= position), len(listed))


def timestamp(seconds: float) -> str:
    """RFC 3339 with numeric offset, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def text_field(body: Json, name: str, default: str = "") -> str:
    """A text of the body; null counts as absent."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ApiError(400, "bad_field", name=name)
    return value


def int_field(body: Json, name: str, default: int = 0) -> int:
    """A whole number of the body, also as digits in a text (older clients send ids that way)."""
    value = body.get(name)
    if value is None or value == "":
        return default
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ApiError(400, "bad_field", name=name) from None


def texts_field(body: Json, name: str) -> tuple[str, ...] | None:
    """A list of texts; None where it is absent or null."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ApiError(400, "bad_field", name=name)
    return tuple(value)
