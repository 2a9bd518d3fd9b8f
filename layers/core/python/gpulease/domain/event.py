"""Events: the story of a lease, told to people and kept with it."""

from pydantic import Field

from gpulease.domain.model import Instant, Model

Fact = str | int | float | bool | None


class Event(Model):
    """One thing that happened. `kind` is a constant snake_case word; `text` is for people; facts never hold secrets."""

    lease_id: str
    at: Instant
    kind: str
    text: str
    level: str = "info"
    facts: dict[str, Fact] = Field(default_factory=dict)
    seq: str = ""
    """Orders events within one lease; given by the ledger when it stores the event."""
