"""What the agent on a machine has told: one small row per lease, apart from the lease's own, written at each report.

The row is evidence and never a decision. `check_leases` reads it when a limit may have been reached; the route that
takes reports writes it. The token is kept as a hash, belongs to one attempt's machine and is dead when that ends.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from pydantic import Field

from gpulease.domain.model import Instant, Model
from gpulease.domain.policy import Signal

REPORT_EVERY_SECONDS = 60
REPORT_SOON_SECONDS = 15
"""While a decision about a quiet machine is near: a use that begins now must be known before, and a machine that is to
be paused must not wait a minute to hear of it."""
SOON = timedelta(minutes=3)
MISSED_REPORTS = 2
"""So many missed reports in a row: shown as unreachable."""


class AgentRecord(Model):
    """`version` counts writes of this row (0 = not yet stored) and is raised by the store alone."""

    lease_id: str
    attempt: int
    """Whose machine may report; reports of another attempt's token are refused."""
    token_sha256: str
    version: int = 0
    first_report_at: Instant | None = None
    """Of this attempt; cleared when the machine is started again, so that an old report proves no readiness."""
    last_report_at: Instant | None = None
    activity_at: dict[Signal, Instant] = Field(default_factory=dict)
    """By our clock, when each signal was last seen on the machine. A report says how many seconds ago that was, so
    neither the machine's clock nor the time between two reports matters."""
    quiet_reports: int = 0
    """Reports in a row, up to the last one, since any signal was last seen."""
    boot_id: str = ""
    gpus: int | None = None
    """As counted on the machine; None = not told."""
    gpu_models: tuple[str, ...] = ()
    gpu_percent: tuple[int, ...] = ()
    """How much each one computed at the last look."""
    gpu_memory_mib: tuple[int, ...] = ()
    gpu_memory_used_mib: tuple[int, ...] = ()
    host_keys: tuple[str, ...] = ()
    """The SSH host key for known_hosts, public. One: see `agent_protocol.pinned`."""
    mounted: tuple[str, ...] = ()
    """Paths of the cache that are mounted."""
    problems: tuple[str, ...] = ()
    """What did not work on the machine, for people; at most ten lines."""
    start_script: str = ""
    """"", "running", "done" or "failed"."""
    start_script_exit: int | None = None
    flush_wanted_at: Instant | None = None
    """Since when the agent is asked to save and unmount the cache, told in the answer to its next report."""
    flush_until: Instant | None = None
    """How long it may take at most."""
    saving_at: Instant | None = None
    """When it last said that it is at it still."""
    flushed_at: Instant | None = None
    """When it said that this is done."""
    agent_version: str = ""
    kept_attempt: int = 0
    """Whose stopped machine is kept while new ones are tried; 0 = none is."""
    kept_token_sha256: str = ""
    """Of that machine's token. It proves nothing for the new ones; when none of them came to anything, or the machine
    is started again, it is the row's own again."""


def for_new_machine(known: AgentRecord | None, fresh: AgentRecord, kept_attempt: int) -> AgentRecord:
    """The row of a machine that is asked for. The token of one that is kept beside it is not lost: else nobody would
    measure that one when it comes back. `kept_attempt`: 0 = none is kept."""
    version = known.version if known is not None else 0
    kept = ""
    if known is not None and kept_attempt:
        tokens = {known.kept_attempt: known.kept_token_sha256, known.attempt: known.token_sha256}
        kept = tokens.get(kept_attempt, "")
    return fresh.model_copy(
        update={"version": version, "kept_attempt": kept_attempt if kept else 0, "kept_token_sha256": kept}
    )


def for_start(known: AgentRecord, attempt: int) -> AgentRecord:
    """The row of a stopped machine that is started: what it told before proves nothing after (C44)."""
    if known.attempt == attempt:
        return AgentRecord(
            lease_id=known.lease_id,
            attempt=attempt,
            token_sha256=known.token_sha256,
            version=known.version,
            agent_version=known.agent_version,
            host_keys=known.host_keys,
        )
    if known.kept_attempt != attempt:
        return known
    return AgentRecord(
        lease_id=known.lease_id, attempt=attempt, token_sha256=known.kept_token_sha256, version=known.version
    )


def is_silent(agent: AgentRecord, now: datetime, missed: int = MISSED_REPORTS) -> bool:
    """Whether an agent that has reported has missed so many reports in a row."""
    if agent.last_report_at is None:
        return False
    return (now - agent.last_report_at).total_seconds() > (missed + 0.5) * REPORT_EVERY_SECONDS


def reported(agent: AgentRecord, now: datetime, seen_seconds_ago: Mapping[Signal, float]) -> AgentRecord:
    """The row after a report that says how long ago each signal was last seen; one that is not named was never seen.

    Times only move forward, and never beyond now: a report that comes late or twice takes nothing back.
    """
    activity = dict(agent.activity_at)
    for signal, seconds in seen_seconds_ago.items():
        at = now - timedelta(seconds=max(0.0, seconds))
        if signal not in activity or activity[signal] < at:
            activity[signal] = at
    since = agent.last_report_at or agent.first_report_at or now - timedelta(seconds=REPORT_EVERY_SECONDS)
    active = any(at > since for at in activity.values())
    return agent.model_copy(
        update={
            "activity_at": activity,
            "quiet_reports": 0 if active else agent.quiet_reports + 1,
            "first_report_at": agent.first_report_at or now,
            "last_report_at": now,
        }
    )


def last_activity(agent: AgentRecord, signals: tuple[Signal, ...]) -> datetime | None:
    """When any of these signals was last seen; None = never."""
    return max((at for signal, at in agent.activity_at.items() if signal in signals), default=None)


def report_every_seconds(agent: AgentRecord, due_at: datetime | None, now: datetime) -> int:
    """When the next report should come. `due_at`: when the clock would decide something about this machine."""
    near = due_at is not None and due_at - now <= SOON
    return REPORT_SOON_SECONDS if near and agent.quiet_reports else REPORT_EVERY_SECONDS
