"""Base of the domain's value types: immutable, strict about unknown fields, stored and sent as JSON."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer

STORED = {"stored": True}
"""Validation context of rows: what was right when it was asked for is read back whatever is asked for today, since a
lease that cannot be read could never be released."""


class Model(BaseModel):
    """A frozen value. Change = `model_copy(update=…)`, which gives a new one."""

    # Built at first use: most functions use few of the models, and parts are built with the whole.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _aware_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time without a zone; give an offset or Z")
    return value.astimezone(UTC)


Instant = Annotated[datetime, AfterValidator(_aware_utc)]
"""An aware time in UTC."""

Usd = Annotated[Decimal, PlainSerializer(str, return_type=str, when_used="json")]
"""US dollars, exact. A string in JSON."""
