"""The five leases of the demo: what each asks for, how the simulated provider misbehaves, and whether it did.

Invariant: a case proves itself from the provider's side (its calls and its book), so a demo in which nothing went wrong
does not pass for one that coped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceKind
from gpulease_cli.views import EventView
from gpulease_sim.vultr import BookObject, Fault, MachineRule, SeenCall, Settings

CANCEL_AFTER_SECONDS = 10.0
METAL_MINUTES = 42
ATTACH_FAILURES = 4
_METAL_ACTIVE_SECONDS = METAL_MINUTES * 60 - 60
_METAL_SSH_SECONDS = 60


@dataclass(frozen=True)
class Evidence:
    """What is known of one lease after the end. `calls` are those that name its machines."""

    record: LeaseRecord
    machines: Sequence[BookObject]
    calls: Sequence[SeenCall]
    events: Sequence[EventView]
    faults_acted: int


@dataclass(frozen=True)
class Case:
    """One lease. `happened` gives one sentence about what went wrong, or None when it did not go wrong as planned."""

    name: str
    story: str
    request: Mapping[str, Any]
    happened: Callable[[Evidence], str | None]
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Behaviour of this case's machines in the simulated cloud."""
    fault: Fault | None = None
    cheapest_vanishes: bool = False
    cancelled: bool = False

    def body(self) -> dict[str, Any]:
        """The request as the API wants it."""
        return {"name": self.name, **self.request}


def _attach(seen: Evidence) -> str | None:
    tries = [call for call in seen.calls if call.method == "POST" and call.path.endswith("/vpcs/attach")]
    refused = sum(call.status >= 400 for call in tries)
    attached = any(call.status < 300 for call in tries)
    return f"attach refused {refused} times, then done" if refused == ATTACH_FAILURES and attached else None


def _metal(seen: Evidence) -> str | None:
    lease = seen.record.lease
    if lease.running_at is None or (seen.record.of_kind(ResourceKind.NETWORK) and not lease.warnings):
        return None
    took = lease.running_at - lease.created_at
    if took < timedelta(minutes=METAL_MINUTES) or not lease.warnings:
        return None
    return f"ready after {took.total_seconds() / 60:.0f} min; no private network, told so"


def _out_of_stock(seen: Evidence) -> str | None:
    attempts = seen.record.lease.attempts
    refused = [attempt for attempt in attempts[:-1] if attempt.reason == "no_capacity"]
    taken = attempts[-1].offer if attempts else None
    if not refused or taken is None or not any(each.region == taken.region for each in seen.machines):
        return None
    return f"{refused[0].offer.region} refused, {taken.region} taken"


def _cancel(seen: Evidence) -> str | None:
    refused = [call for call in seen.calls if call.method == "DELETE" and call.status >= 400]
    texts = list(dict.fromkeys(event.text for event in seen.events if event.kind == "delete_refused"))
    words = {"currently active": "not active", "locked": "locked"}
    kinds = [short for word, short in words.items() if any(word in text.lower() for text in texts)]
    return f"destroy refused {len(refused)} times ({', then '.join(kinds)})" if len(kinds) == 2 else None


def _lost(seen: Evidence) -> str | None:
    if seen.faults_acted != 1 or len(seen.machines) != 1:
        return None
    return "answer of the create lost, the machine found by its marker"


CASES: tuple[Case, ...] = (
    Case(
        "network",
        "VM in a private network of its own whose attach fails four times",
        {"plans": ["vcg-a40-12c-60g-24vram"], "private_network": "required", "network_scope": "lease"},
        _attach,
        machine={"attach_failures": ATTACH_FAILURES},
    ),
    Case(
        "metal",
        f"bare metal without private networking that boots {METAL_MINUTES} minutes",
        {"plans": ["vbm-72c-480gb-gh200-gpu"], "private_network": "preferred", "network_scope": "lease"},
        _metal,
        machine={"active_seconds": _METAL_ACTIVE_SECONDS, "ssh_seconds": _METAL_SSH_SECONDS},
    ),
    Case(
        "cheapest",
        "the cheapest offer is out of stock",
        {"plans": ["vcg-l40s-16c-180g-48vram"]},
        _out_of_stock,
        cheapest_vanishes=True,
    ),
    Case(
        "cancel",
        f"given back {CANCEL_AFTER_SECONDS:g} s after its creation",
        {"plans": ["vcg-a16-2c-8g-2vram"]},
        _cancel,
        machine={"active_seconds": 25, "not_active_until_seconds": 30, "locked_until_seconds": 75},
        cancelled=True,
    ),
    Case(
        "lost",
        "the answer of the create is lost",
        {"plans": ["vcg-a100-1c-6g-4vram"]},
        _lost,
        fault=Fault(
            method="POST", path="/instances", request_body="gpulease-lost-", times=1, cut=True, delay_seconds=30
        ),
    ),
)


def settings_for(cases: Sequence[Case]) -> Settings:
    """The simulated account, with each case's machine misbehaving as planned."""
    rules = tuple(
        MachineRule(match=f"^gpulease-{case.name}-", change=dict(case.machine)) for case in cases if case.machine
    )
    return replace(Settings(), rules=rules, requests_per_second=None)


def faults_for(cases: Sequence[Case]) -> tuple[Fault, ...]:
    """The scripted faults of these cases."""
    return tuple(case.fault for case in cases if case.fault is not None)
