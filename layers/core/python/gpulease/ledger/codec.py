"""How rows are written and read back, the same for every store.

Invariants: a row is the JSON of its model, and no row is stored that could not be read again (a lease that cannot be
read could never be released). Times that are compared as text have one form: UTC, six decimals, `Z`. Cursors are
opaque to callers and say only where a listing goes on, never whose rows it may read.
"""

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from gpulease.domain.event import Event
from gpulease.domain.lease import Lease
from gpulease.domain.model import STORED, Model
from gpulease.domain.resource import Resource
from gpulease.errors import InputInvalid, LedgerUnavailable
from gpulease.ports import Change

M = TypeVar("M", bound=Model)
Versioned = TypeVar("Versioned", Lease, Resource)

MAX_ROWS = 100
"""Of one change: what one DynamoDB transaction carries."""
MAX_ROW_BYTES = 390_000
"""Of one row's JSON; DynamoDB takes 400 KB (409,600 bytes) with names and keys."""
MAX_KEY_BYTES = 900
"""Of an id, owner or region: DynamoDB takes 1,024 bytes in a sort key, prefix and time included."""
_MAX_CURSOR_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Row(Generic[M]):
    """A model as it will read after the write, and its JSON."""

    model: M
    doc: str


@dataclass(frozen=True, slots=True)
class Rows:
    """A change, checked and encoded. Lease and resources already carry the version they will be stored with."""

    lease_id: str
    lease: Row[Lease] | None
    resources: tuple[Row[Resource], ...]
    events: tuple[Row[Event], ...]
    epoch: int | None
    script: bytes = b""

    @property
    def count(self) -> int:
        """Rows touched, the look at the lease's epoch included."""
        looks = 1 if self.lease is None and self.epoch is not None else 0
        return len(self.resources) + len(self.events) + (self.lease is not None) + looks + (1 if self.script else 0)


def time_text(value: datetime) -> str:
    """`2026-07-01T12:00:00.000000Z`: sorts as text in the order of time."""
    return value.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def is_key(text: str) -> bool:
    """Whether a store can have a row under this text at all."""
    try:
        return 0 < len(text.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:  # lone surrogates
        return False


def encode(model: M, field: str, *, max_bytes: int | None = MAX_ROW_BYTES) -> Row[M]:
    """The model's row. Raises InputInvalid(field) when it could not be read back or is too large to be stored."""
    kind = type(model)
    try:
        # `model_copy(update=…)` checks nothing, so a wrong value shows here and not when the row is needed.
        doc = model.model_dump_json(warnings="none")
        read_back = kind.model_validate_json(doc, context=STORED)
    except (ValidationError, PydanticSerializationError) as error:
        raise InputInvalid(f"a {kind.__name__.lower()} that cannot be stored: {error}", field=field) from error
    if max_bytes is not None and len(doc) > max_bytes // 4 and len(doc.encode()) > max_bytes:
        raise InputInvalid(f"a {kind.__name__.lower()} of more than {max_bytes} bytes", field=field)
    return Row(read_back, doc)


def decode(kind: type[M], doc: str) -> M:
    """The stored model. Raises LedgerUnavailable for a row that is none.

    Fields that only a newer version knows are passed over: in the middle of a deployment, and after a rollback, older
    functions read what newer ones wrote, and what they could not read they could not give back.
    """
    try:
        return kind.model_validate_json(doc, extra="ignore", context=STORED)
    except ValidationError as error:
        raise LedgerUnavailable(f"a stored {kind.__name__.lower()} cannot be read: {error}") from error


def rows_of(change: Change) -> Rows:
    """Check and encode a change. Raises InputInvalid: rows of another lease, a row twice, too many, unreadable."""
    if not is_key(change.lease_id):
        raise InputInvalid("not a lease id", field="lease_id")
    if change.lease is not None and change.lease.id != change.lease_id:
        raise InputInvalid(f"the row of another lease ({change.lease.id})", field="lease")
    for resource in change.resources:
        if resource.lease_id != change.lease_id:
            raise InputInvalid(f"a resource of another lease ({resource.id})", field="resources")
        for text in (resource.id, f"{resource.provider}#{resource.region}"):
            if not is_key(text):
                raise InputInvalid(f"too long for a key: {text[:60]!r}", field="resources")
    if len({resource.id for resource in change.resources}) != len(change.resources):
        raise InputInvalid("one resource twice", field="resources")
    rows = Rows(
        lease_id=change.lease_id,
        lease=None if change.lease is None else _lease_row(change.lease),
        resources=tuple(_next(resource, "resources") for resource in change.resources),
        events=_event_rows(change.lease_id, change.events),
        epoch=change.epoch,
    )
    return _not_too_many(rows)


def rows_of_new(lease: Lease, events: Iterable[Event], script: bytes) -> Rows:
    """Check and encode a new lease. Raises InputInvalid as `rows_of`, and for a lease that was stored before."""
    if not is_key(lease.id):
        raise InputInvalid("not a lease id", field="id")
    if lease.version != 0:
        raise InputInvalid("a new lease has version 0", field="version")
    if len(script) > MAX_ROW_BYTES:
        raise InputInvalid(f"a start script of more than {MAX_ROW_BYTES} bytes", field="start_script")
    return _not_too_many(Rows(lease.id, _lease_row(lease), (), _event_rows(lease.id, tuple(events)), None, script))


def _lease_row(lease: Lease) -> Row[Lease]:
    if not is_key(lease.owner):
        raise InputInvalid(f"an owner has 1 to {MAX_KEY_BYTES} bytes", field="owner")
    return _next(lease, "lease")


def _next(model: Versioned, field: str) -> Row[Versioned]:
    return encode(model.model_copy(update={"version": model.version + 1}), field)


def _event_rows(lease_id: str, events: tuple[Event, ...]) -> tuple[Row[Event], ...]:
    for event in events:
        if event.lease_id != lease_id:
            raise InputInvalid(f"an event of another lease ({event.lease_id})", field="events")
    return tuple(encode(event, "events") for event in events)


def _not_too_many(rows: Rows) -> Rows:
    if rows.count > MAX_ROWS:
        raise InputInvalid(f"{rows.count} rows in one change; at most {MAX_ROWS}")
    return rows


# --- cursors ----------------------------------------------------------------------------------------------------------

_EVENT_POSITION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z#[0-9a-f#]{1,80}\Z")
_LEASE_POSITION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z#[^\x00-\x1f]{1,900}\Z")


def event_cursor(lease_id: str, position: str) -> str:
    """Cursor that goes on after the event at this position (its `seq`)."""
    return _cursor(["e", lease_id, position])


def event_position(lease_id: str, cursor: str) -> str:
    """The position in an event cursor of this lease. Raises InputInvalid(field="cursor")."""
    return _position(["e", lease_id], cursor, _EVENT_POSITION)


def lease_cursor(owner: str | None, position: str) -> str:
    """Cursor that goes on after the lease at this position (`created_at#id`)."""
    return _cursor(["l", owner, position])


def lease_position(owner: str | None, cursor: str) -> str:
    """The position in a lease cursor of this owner. Raises InputInvalid(field="cursor")."""
    return _position(["l", owner], cursor, _LEASE_POSITION)


def check_limit(limit: int) -> None:
    """Raises InputInvalid(field="limit") for a page that cannot hold anything."""
    if limit < 1:
        raise InputInvalid("at least 1", field="limit")


def _cursor(parts: list[str | None]) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def _position(expected: list[str | None], cursor: str, form: re.Pattern[str]) -> str:
    try:
        if not 0 < len(cursor) <= _MAX_CURSOR_CHARS or not cursor.isascii():
            raise ValueError("length or alphabet")
        padded = cursor + "=" * (-len(cursor) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as error:
        raise InputInvalid("not a cursor of this listing", field="cursor") from error
    if (
        not isinstance(parts, list)
        or len(parts) != 3
        or parts[:2] != expected
        or not isinstance(parts[2], str)
        or not form.match(parts[2])
        or not is_key(parts[2])
    ):
        raise InputInvalid("not a cursor of this listing", field="cursor")
    return parts[2]
