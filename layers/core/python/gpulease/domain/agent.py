"""What the agent on a machine has told: one small row per lease, apart from the lease's own, written at each report.

The row is evidence and never a decision. `check_leases` reads it when a limit may have been reached; the route that
takes reports writes it. The token is kept as a hash, belongs to one attempt's machine and is dead when that ends.
"""

from datetime import datetime

from gpulease.domain.model import Instant, Model

REPORT_EVERY_SECONDS = 60
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
    last_activity_at: Instant | None = None
    """Our clock, when a report said that something used the machine."""
    activity: tuple[str, ...] = ()
    """Signals (`domain/policy.Signal`) of the last report; empty = quiet."""
    quiet_reports: int = 0
    """In a row, up to the last one."""
    boot_id: str = ""
    gpus: int | None = None
    """As counted on the machine; None = not told."""
    gpu_models: tuple[str, ...] = ()
    host_keys: tuple[str, ...] = ()
    """SSH host keys, public, for known_hosts."""
    mounted: tuple[str, ...] = ()
    """Paths of the cache that are mounted."""
    problems: tuple[str, ...] = ()
    """What did not work on the machine, for people; at most ten lines."""
    start_script: str = ""
    """"", "running", "done" or "failed"."""
    flush_wanted_at: Instant | None = None
    """Since when the agent is asked to save and unmount the cache, told in the answer to its next report."""
    flushed_at: Instant | None = None
    """When it said that this is done."""
    agent_version: str = ""


def is_silent(agent: AgentRecord, now: datetime, missed: int = MISSED_REPORTS) -> bool:
    """Whether an agent that has reported has missed so many reports in a row."""
    if agent.last_report_at is None:
        return False
    return (now - agent.last_report_at).total_seconds() > (missed + 0.5) * REPORT_EVERY_SECONDS
