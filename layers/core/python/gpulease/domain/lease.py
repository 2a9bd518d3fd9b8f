"""Leases: the states, which may follow which, and the record of what was tried. See docs/states.md."""

from datetime import datetime
from enum import StrEnum

from gpulease.domain.cache_spec import CacheSpec
from gpulease.domain.model import Instant, Model
from gpulease.domain.offer import Offer
from gpulease.domain.policy import Capacity, LeasePolicy
from gpulease.domain.spec import LeaseSpec


class LeaseState(StrEnum):
    REQUESTED = "requested"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    RELEASING = "releasing"
    RELEASED = "released"


_S = LeaseState
NEXT_STATES: dict[LeaseState, frozenset[LeaseState]] = {
    _S.REQUESTED: frozenset({_S.PROVISIONING, _S.RELEASING}),
    _S.PROVISIONING: frozenset({_S.RUNNING, _S.RELEASING}),
    _S.RUNNING: frozenset({_S.PAUSING, _S.RELEASING}),
    _S.PAUSING: frozenset({_S.PAUSED, _S.RUNNING, _S.RELEASING}),
    _S.PAUSED: frozenset({_S.RESUMING, _S.RELEASING}),
    # Back to pausing: what was started and did not become ready is stopped again.
    _S.RESUMING: frozenset({_S.RUNNING, _S.PAUSED, _S.PAUSING, _S.RELEASING}),
    _S.RELEASING: frozenset({_S.RELEASED}),
    # A machine that appears after its lease was closed opens the lease again: `released` while billed must not be.
    _S.RELEASED: frozenset({_S.RELEASING}),
}


IN_PROVISION = frozenset({_S.PROVISIONING, _S.RESUMING})
"""States in which the steps of `provision` may work: a resume that needs a new machine goes through them too."""


class Reason(StrEnum):
    """Why a lease or an attempt ended. Machine-readable; shown to the user as it is."""

    USER = "user"
    IDLE = "idle"
    EXPIRED = "expired"
    BUDGET = "budget"
    NO_CAPACITY = "no_capacity"
    QUOTA_EXCEEDED = "quota_exceeded"
    NOT_READY_IN_TIME = "not_ready_in_time"
    BOOT_FAILED = "boot_failed"
    GPU_CHECK_FAILED = "gpu_check_failed"
    INTERRUPTED = "interrupted"
    PRICE_CHANGED = "price_changed"
    AUTH_FAILED = "auth_failed"
    REJECTED = "rejected"
    LOST = "lost"
    UNREACHABLE = "unreachable"
    """Its agent has been silent for longer than its limit."""
    WINDOW = "window"
    """Of pauses: a window of the policy keeps it off."""
    STOPPED = "stopped"
    """Of pauses: its machine was shut down from inside, or stopped at the provider."""
    CACHE_BUSY = "cache_busy"
    CACHE_FAILED = "cache_failed"
    """The cache could not be attached in time."""
    UNUSED = "unused"
    """Of shared networks: their last machine is gone."""
    PRIVATE_NETWORK_FAILED = "private_network_failed"
    # Of attempts only: see domain/selection.py for what follows each.
    NEVER_APPEARED = "never_appeared"
    THROTTLED = "throttled"
    NETWORK_UNSUPPORTED = "network_unsupported"


class LeaseKind(StrEnum):
    MACHINE = "machine"
    NETWORK = "network"
    """Not asked for by anybody: holds a network that several leases share (domain/shared_network.py)."""
    CACHE = "cache"
    """Holds a cache: a volume that outlives the leases which use it (domain/cache.py)."""


class Attachment(Model):
    """How far an attempt's machine has come in joining a private network."""

    holder_id: str = ""
    """Of a shared network: the record that holds it. Written before it is joined, so that leaving always finds it."""
    passed: bool = False
    """The create call carries the network."""
    tries: int = 0
    refusals: int = 0
    """Attach calls refused in a way that the adapter could not read as "try again"."""
    accepted_at: Instant | None = None
    """Of the last call, while it may still take effect."""
    ever_accepted: bool = False
    """Or its answer was lost: it may be in the network, whatever was seen since."""
    attached_at: Instant | None = None
    dropped: bool = False
    """The lease goes on without it."""
    left: bool = False
    """The shared network no longer counts this machine."""


class VolumeAttachment(Model):
    """How far an attempt's machine has come in getting its cache's volume."""

    holder_id: str
    """The cache's record. Written before it is claimed, so that leaving always finds it."""
    deadline: Instant | None = None
    """Until when it must be attached; then the attempt fails."""
    tries: int = 0
    refusals: int = 0
    next_try_at: Instant | None = None
    accepted_at: Instant | None = None
    """Of the last call, while it may still take effect."""
    ever_accepted: bool = False
    """Or its answer was lost: it may be attached, whatever was seen since."""
    attached_at: Instant | None = None
    detach_tries: int = 0
    free_looks: int = 0
    """Times in a row that it was read as free since the machine was proven gone."""
    alarmed_at: Instant | None = None
    """When people were told that it does not come free."""
    left: bool = False
    """The cache no longer counts this machine as its user."""
    hand_over_at: Instant | None = None
    """Since when a stopped machine is to hand it over to a new one: whether it still has it is seen, not known."""
    detach_asked_at: Instant | None = None
    """Of the last detach call, which may still take effect."""
    dropped: bool = False
    """The cache is gone; the machine goes on without it."""


class PauseMode(StrEnum):
    """What a pause does; see `domain/pause.py`."""

    STOP = "stop"
    """The machine is stopped and kept; its compute is no longer billed."""
    KEEP_CACHE = "keep_cache"
    """The machine is given back and the cache is kept: where a stopped machine is billed in full (law 11)."""


class Flush(Model):
    """The time that an agent has to save and unmount the cache before its machine is stopped or given back. See
    `domain/flush.py`."""

    attempt: int
    """Whose machine."""
    requested_at: Instant
    deadline: Instant
    """Moved on while the agent says that it still saves."""
    latest: Instant
    """Where it is never moved beyond."""
    ended_at: Instant | None = None
    """None = it is waited for, until the deadline."""
    ended: str = ""
    """"saved", "silent", "late" or "skipped"."""


class PauseProgress(Model):
    """How far a pause has come, and what it was for. Stays while the lease is paused."""

    mode: PauseMode
    reason: Reason
    detail: str = ""
    requested_at: Instant
    tries: int = 0
    last_asked_at: Instant | None = None
    next_try_at: Instant | None = None
    last_error: str = ""
    alarmed_at: Instant | None = None
    resume_failed: Reason | None = None
    """Why the last resume came to nothing; None = there was none."""
    resume_failed_at: Instant | None = None


class ResumeMode(StrEnum):
    START = "start"
    """The stopped machine."""
    NEW = "new"
    """A new machine, chosen and made as the first one was, with the lease's cache."""


class ResumeProgress(Model):
    mode: ResumeMode
    requested_at: Instant
    give_up_at: Instant
    """Until when a start that is refused for lack of capacity is tried again."""
    on_no_capacity: Capacity = Capacity.WAIT
    tries: int = 0
    last_asked_at: Instant | None = None
    next_try_at: Instant | None = None
    started_at: Instant | None = None
    """When a start was accepted, or the machine was seen starting."""
    refused_for: str = ""
    """Reason of the last call's refusal; empty after a call whose answer is not known: the machine may start."""
    last_error: str = ""
    attempts_before: int = 0
    """Attempts of the lease when it began: only those after it count for its limits."""


class Attempt(Model):
    """One try of one offer.

    `reason` is set as soon as it failed, `ended_at` when its resources are marked for giving back. The last one without
    `ended_at` is the current one. `asked` is False where the provider's live stock or price ruled the offer out, so
    that nothing was asked for.
    """

    number: int
    offer: Offer
    started_at: Instant
    ready_deadline: Instant
    asked: bool = True
    create_slot_at: Instant | None = None
    """When its create call may be sent: its place in the account's queue."""
    network_deadline: Instant | None = None
    attachment: Attachment | None = None
    volume: VolumeAttachment | None = None
    resumed_at: Instant | None = None
    """When its stopped machine was last asked to start again."""
    shown_ready_at: Instant | None = None
    """When all but its agent's word was first there: the provider shows it as ready, network and volume are joined."""
    ended_at: Instant | None = None
    reason: Reason | None = None
    detail: str = ""

    @property
    def open(self) -> bool:
        return self.ended_at is None

    @property
    def begun_at(self) -> datetime:
        """From when the provider has had time for it: waiting for its turn is not held against the offer."""
        return self.resumed_at or self.create_slot_at or self.started_at


class Lease(Model):
    """One user's claim on one machine; or, by its kind, what holds a network shared by several leases.

    `epoch` is raised by every new decision and fences off older workflows; `version` counts writes of this row (0 = not
    yet stored) and is raised by the ledger alone.
    """

    id: str
    owner: str
    name: str
    spec: LeaseSpec
    state: LeaseState
    epoch: int
    version: int = 0
    created_at: Instant
    updated_at: Instant
    running_at: Instant | None = None
    released_at: Instant | None = None
    release_requested_at: Instant | None = None
    attempts: tuple[Attempt, ...] = ()
    reason: Reason | None = None
    reason_detail: str = ""
    waiting_for: str = ""
    """What the lease is waiting for now, as a short sentence for people."""
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    next_check_at: Instant | None = None
    """When `check_leases` must look at it; None = never (released)."""
    restarts: int = 0
    """Workflows started again for this epoch; part of the execution name."""
    request_digest: str = ""
    """SHA-256 of the request that made it: an idempotency key used again with another body is refused."""
    start_script_bytes: int = 0
    start_script_sha256: str = ""
    kind: LeaseKind = LeaseKind.MACHINE
    generation: int = 0
    """Of a shared network: how many its owner has had in this account and region, this one included."""
    members: tuple[str, ...] = ()
    """Of a shared network or a cache: resource ids of the machines that use it. A cache has one at most."""
    policy: LeasePolicy | None = None
    """As changed since the request; None = as in the spec."""
    ready_at: Instant | None = None
    """When it last became `running`; `running_at` is the first time. Idleness counts from here at the earliest."""
    touched_at: Instant | None = None
    """When its owner last said that it is in use."""
    keep_until: Instant | None = None
    """Until when idleness does not count, by the owner's word."""
    pause: PauseProgress | None = None
    """While pausing or paused."""
    paused_at: Instant | None = None
    """When it last became `paused`; None = it is not."""
    flush: Flush | None = None
    """Of the last pause or release that let the agent save the cache first."""
    resume: ResumeProgress | None = None
    """While resuming."""
    resume_after: Instant | None = None
    """While paused: a resume that found no capacity is not tried again by itself before this."""
    budget_warned_at: Instant | None = None
    cache_id: str = ""
    """Of a machine's lease: the record of the cache that it uses."""
    cache: CacheSpec | None = None
    """Of a cache's record: what it is."""
    used_at: Instant | None = None
    """Of a cache: when a machine last used it."""
    expiry_warned_at: Instant | None = None
    """Of a cache: when its owner was told that it will end unused."""

    @property
    def rules(self) -> LeasePolicy:
        """The policy as it is now. Until it is changed, a duration that was asked for beside it is part of it."""
        if self.policy is not None:
            return self.policy
        asked, beside = self.spec.policy, self.spec.max_duration_seconds
        if asked.max_duration_seconds is not None or beside is None:
            return asked
        return asked.model_copy(update={"max_duration_seconds": beside})

    @property
    def attempt(self) -> Attempt | None:
        """The current attempt, or None. Mostly the last; the one of a stopped machine may have vain tries after it."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.open), None)


def execution_name(lease_id: str, machine: str, epoch: int, suffix: str = "") -> str:
    """`<lease_id>-<machine>-<epoch>[-<suffix>]`: at most 80 characters. A doubled start is refused by the service."""
    return f"{lease_id}-{machine}-{epoch}" + (f"-{suffix}" if suffix else "")
