"""What an adapter saw at a provider, in vendor-neutral words."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gpulease.domain.resource import ResourceKind


class Condition(StrEnum):
    PENDING = "pending"
    READY = "ready"
    """As far as the provider can tell: powered on, not locked, has an address."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    DELETING = "deleting"
    FAILED = "failed"
    """Suspended or otherwise never going to be ready."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A resource that the provider showed us."""

    kind: ResourceKind
    provider_id: str
    region: str
    marker: str
    condition: Condition
    words: str
    """The provider's own state words, for people and logs."""
    subkind: str = ""
    plan: str = ""
    address: str = ""
    created_at: datetime | None = None
    price_per_hour_usd: str = ""
    network_ids: tuple[str, ...] = field(default=())
    """Provider ids of the private networks it is attached to, with an address assigned."""
    zone: str = ""
    spot: bool = False
    """Of machines: whether it is sold as interruptible, at that price."""
    attached_to: str = ""
    """Of volumes: provider id of the machine it is attached to or on its way to or from; empty = free for sure."""
    attached: bool = False
    """Of volumes: whether that attachment is complete."""
    size_gb: int = 0
    exempt: bool = False
    """Marked by people at the provider as not to be touched by the sweep (tag `gpulease:keep`)."""
    volume_ids: tuple[str, ...] | None = None
    """Of machines: provider ids of the volumes that hang at it; None = not told."""
    reason: str = ""
    """Where it failed, or fell back to stopped by itself: why, as a value of `lease.Reason`; empty = not told."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Read from a call that succeeded: the provider does not know this resource (any more, or not yet)."""

    how: str
    """`by_id` or `by_marker`, and the answer, for logs."""
    ended: bool = False
    """Shown by its id, as ended for good: not one that is too fresh to be seen."""
    reason: str = ""
    """Why it ended, as a value of `lease.Reason`; empty = not told."""
