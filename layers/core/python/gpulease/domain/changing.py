"""What the owner of a living lease may change of it: its policy, and that it is in use. Pure; raises ValueError where
the lease is on its way out.

Every change makes the lease due at once, so that the next check decides by the new rules.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpulease.domain.lease import Lease, LeaseKind, LeaseState
from gpulease.domain.model import STORED
from gpulease.domain.pause import BUDGET_NOTICE, without
from gpulease.domain.policy import LeasePolicy
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.transitions import event

LISTS = frozenset({"signals", "windows"})
"""Replaced whole; objects are merged."""


def merged(policy: LeasePolicy, patch: Mapping[str, Any]) -> LeasePolicy:
    """The policy with the given parts changed. Raises pydantic.ValidationError.

    Windows that stay are not checked anew: what became of them is no matter of a budget that is to be raised.
    """
    context = None if "windows" in patch else STORED
    return LeasePolicy.model_validate(_merged(policy.model_dump(), patch), context=context)


def _merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    new = dict(old)
    for name, value in patch.items():
        before = old.get(name)
        both = isinstance(value, Mapping) and isinstance(before, Mapping) and name not in LISTS
        new[name] = _merged(before, value) if both else value  # type: ignore[arg-type]
    return new


def change_policy(record: LeaseRecord, policy: LeasePolicy, now: datetime, by: str) -> Change:
    """The lease under another policy. A budget that was raised is warned about anew."""
    lease = record.lease
    update: dict[str, object] = {"policy": policy}
    if policy.budget_usd != lease.rules.budget_usd:
        update |= {"budget_warned_at": None, "notices": without(lease.notices, BUDGET_NOTICE)}
    before, after = (p.model_dump(mode="json") for p in (lease.rules, policy))
    names = sorted(name for name in after if after[name] != before[name])
    return _changed(record, now, update, "policy_changed", f"{by} changed its policy: {', '.join(names) or 'nothing'}")


def touch(record: LeaseRecord, now: datetime, by: str) -> Change:
    """The owner's word that it is in use now."""
    return _changed(record, now, {"touched_at": now}, "touched", f"{by} says that it is in use")


def keep(record: LeaseRecord, until: datetime, now: datetime, by: str) -> Change:
    """The owner's word that neither idleness nor a window pauses it until then. A later word replaces it."""
    text = f"{by} keeps it until {until:%Y-%m-%d %H:%M} UTC"
    return _changed(record, now, {"keep_until": until}, "kept", text, until=until.isoformat())


def _changed(
    record: LeaseRecord, now: datetime, update: Mapping[str, object], kind: str, text: str, **facts: str
) -> Change:
    lease = record.lease
    if lease.kind is not LeaseKind.MACHINE or lease.state in (LeaseState.RELEASING, LeaseState.RELEASED):
        raise ValueError(f"lease {lease.id} is {lease.state}")
    changed: Lease = lease.model_copy(update={**update, "updated_at": now, "next_check_at": _soon(lease, now)})
    return Change(
        lease_id=lease.id, lease=changed, events=(event(lease.id, now, kind, text, **facts),), epoch=lease.epoch
    )


def _soon(lease: Lease, now: datetime) -> datetime:
    return min(lease.next_check_at, now) if lease.next_check_at is not None else now
