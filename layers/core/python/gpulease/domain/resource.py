"""Resources: each billable thing at a provider, from the intent to the proof of its absence."""

from enum import StrEnum

from gpulease.domain.model import Instant, Model, Usd

CREATED = "created"
"""Status of a resource that a create call or a search told us of and no read by id has shown yet."""


class ResourceKind(StrEnum):
    INSTANCE = "instance"
    NETWORK = "network"
    VOLUME = "volume"
    ADDRESS = "address"
    SPOT_REQUEST = "spot_request"
    SNAPSHOT = "snapshot"


class ResourceState(StrEnum):
    INTENDED = "intended"
    HELD = "held"
    RELEASING = "releasing"
    RELEASED = "released"


class BillingRule(StrEnum):
    FREE = "free"
    STARTED_HOUR = "started_hour"
    """Every started hour in full, at least one (Vultr servers)."""
    PER_SECOND = "per_second"
    """At least a minute each time it runs (EC2, EBS)."""


class Rate(Model):
    """From `since` on the resource costs so much, until the next rate or its end."""

    since: Instant
    usd_per_hour: Usd


class ReleaseProgress(Model):
    """How far giving back has come. Kept in the ledger, so any worker can go on."""

    requested_at: Instant
    looks: int = 0
    """Turns since the beginning or the first accepted delete; the pause grows with them."""
    tries: int = 0
    """Delete calls sent."""
    accepted: int = 0
    """Of these, answered 2xx. Accepted is not gone."""
    repeats: int = 0
    """Delete calls sent after one that may have been carried out."""
    last_taken_at: Instant | None = None
    """When a delete was sent that may have been carried out (accepted, or its answer lost), or the last one since."""
    absences: int = 0
    """Times in a row that it was read as absent, by id and by marker."""
    first_absence_at: Instant | None = None
    last_absence_at: Instant | None = None
    next_try_at: Instant
    not_before: Instant | None = None
    """Of a machine whose agent has time to save the cache: when its turn comes, or came."""
    slot_at: Instant | None = None
    """Its place in the account's queue, while it waits for its turn."""
    last_error: str = ""
    alarmed_at: Instant | None = None


class Resource(Model):
    """One billable thing. `version` as on the lease. The marker travels inside the create call."""

    id: str
    lease_id: str
    attempt: int
    kind: ResourceKind
    provider: str
    account: str
    account_identity: str = ""
    """Which account of the provider the key opened when this was asked for. What another one lacks is no proof."""
    region: str
    zone: str = ""
    marker: str
    state: ResourceState
    version: int = 0
    plan: str = ""
    subkind: str = ""
    """Provider's own sort where ids of different sorts live in different routes (Vultr: vm, bare_metal)."""
    intended_at: Instant
    create_sent_at: Instant | None = None
    provider_id: str = ""
    held_at: Instant | None = None
    billed_from: Instant | None = None
    """The provider's own creation time where it tells one."""
    released_at: Instant | None = None
    release_note: str = ""
    """gone, never appeared, refused, lost."""
    billing: BillingRule = BillingRule.FREE
    rates: tuple[Rate, ...] = ()
    address: str = ""
    status: str = ""
    """The provider's own state words when last seen."""
    attached_to: str = ""
    """Networks and volumes: resource id of the machine it was seen attached to."""
    size_gb: int = 0
    """Of volumes."""
    absences: int = 0
    """While held: times in a row that it was read as absent."""
    stopped_at: Instant | None = None
    """Of machines: since when it is known to be stopped; None = it runs, as far as is known."""
    release: ReleaseProgress | None = None


def marker_for(deployment: str, resource_id: str) -> str:
    """`gpulease:<deployment>:<resource id>`; how we know our own things at a provider."""
    return f"gpulease:{deployment}:{resource_id}"


def resource_id(lease_id: str, kind: ResourceKind, attempt: int) -> str:
    """Deterministic, so that twins of one step write the same row and only one of them wins."""
    return f"{lease_id}.{kind.value}.{attempt}"
