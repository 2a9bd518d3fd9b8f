"""The one JSON object that `gpulease simulate` prints."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Report:
    """All but the wall-clock figures are the seed's alone."""

    leases: int
    seed: int
    faults: str
    provider: str = "vultr"
    agents: bool = False
    """Whether machines had agents that report."""
    refused: int = 0
    released: int = 0
    running_ok: int = 0
    orphans: int = 0
    """Billed at the provider, and held by nothing in the ledger that gives it back."""
    duplicates: int = 0
    """Created a second time for one intent."""
    stuck: int = 0
    """Should have ended by now and has not."""
    closed_while_billed: int = 0
    wrong_reason: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    """Broken invariants by rule (`invariants.py`, `verdict.py`)."""
    max_unowned_seconds: float = 0.0
    """Longest time that anything billed was not owned in the ledger, not counting times in which the sweep was kept
    from looking (its schedule lost, the provider dark, the account told to wait, the sweep itself cut off)."""
    max_unowned_seconds_in_all: float = 0.0
    """The same, those times included."""
    unowned_limit_seconds: float = 0.0
    max_overlap_seconds: float = 0.0
    """Longest time that a lease had two machines billed, the one on its way out included."""
    max_calls_of_a_lease: int = 0
    misfortunes: dict[str, int] = field(default_factory=dict)
    """What went wrong on purpose (`--faults all`), by kind."""
    strangers_untouched: int = 0
    foundlings: int = 0
    """Things with our marker and without a lease that were put there, found by the sweep, and given back."""
    reasons: dict[str, int] = field(default_factory=dict)
    machines_created: int = 0
    caches: int = 0
    """Made by users, used by leases one after the other, alive when all leases had ended, then removed."""
    leases_with_cache: int = 0
    pauses: int = 0
    """Times that a lease was paused on its owner's word."""
    resumes: int = 0
    spot: int = 0
    """Leases that ran on spot machines."""
    provider_calls: int = 0
    transitions: int = 0
    alarms: int = 0
    cost_book_usd: str = "0"
    cost_ledger_usd: str = "0"
    virtual_hours: float = 0.0
    wall_seconds: float = 0.0
    leases_per_second: float = 0.0
    digest: str = ""
    suspects: list[str] = field(default_factory=list)
    """What to look into when a count above is not 0."""

    @property
    def ok(self) -> bool:
        """Whether the promise held."""
        broken = (self.orphans, self.duplicates, self.stuck, self.closed_while_billed, self.wrong_reason)
        return not any(broken) and not self.violations

    def as_json(self) -> str:
        """One line-broken JSON object."""
        return json.dumps(asdict(self), indent=2)


def describe(report: Report) -> list[str]:
    """The report for people."""
    values: dict[str, Any] = asdict(report)
    return [f"{name:27} {value}" for name, value in values.items() if value not in ([], {})]
