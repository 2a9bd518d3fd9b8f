"""Whether the clock would give a machine back, and a change of policy that would have it given back at once.

Invariant: nobody loses a disk by a slip of the keyboard. A limit that is over already when it is set is refused, and
whoever means it says so with a release.
"""

from http import HTTPStatus

from gpulease.api.problems import FieldError, Problem, Scalar
from gpulease.api.views import money
from gpulease.domain.agent import AgentRecord
from gpulease.domain.cost import lease_cost
from gpulease.domain.idle import Action, Verdict, expires_at
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.next_step import planned
from gpulease.domain.record import Change, LeaseRecord
from gpulease.pause_facts import is_configured, mode_of, offer_of
from gpulease.ports import Deps


def keeps_something(record: LeaseRecord, deps: Deps) -> bool:
    """Whether a pause would keep anything of it. False: where its policy says pause, it is given back."""
    if record.lease.state is not LeaseState.RUNNING or mode_of(record, deps) is not None:
        return True
    offer = offer_of(record.lease)
    # Of an account that is not in the settings nothing is done at all.
    return offer is None or not is_configured(offer.provider, deps)


def refuse_if_it_ends_now(record: LeaseRecord, change: Change, agent: AgentRecord | None, deps: Deps) -> None:
    """A 409 problem where the lease would be given back by this change and not without it."""
    if change.lease is None:
        return
    now, after = deps.clock.now(), LeaseRecord(change.lease, record.resources)
    verdict = planned(after, agent, now)
    if not _ends(verdict, after, deps) or _ends(planned(record, agent, now), record, deps):
        return
    field, value = _field(verdict, after, deps)
    spent = f"; it has cost ${money(lease_cost(record, now))} so far" if verdict.reason is Reason.BUDGET else ""
    text = (
        f"the lease would be given back at once ({verdict.detail}{spent}), with all that is on its disks: give more, "
        "or give it back yourself (`gpulease down`)"
    )
    error = FieldError(field=f"policy.{field}", message=text, value=value)
    raise Problem(HTTPStatus.CONFLICT, "would_end_at_once", errors=[error], lease_id=record.lease.id)


def _ends(verdict: Verdict, record: LeaseRecord, deps: Deps) -> bool:
    if verdict.action is Action.PAUSE:
        return not keeps_something(record, deps)
    return verdict.action is Action.RELEASE


def _field(verdict: Verdict, record: LeaseRecord, deps: Deps) -> tuple[str, Scalar]:
    rules = record.lease.rules
    match verdict.reason:
        case Reason.BUDGET:
            return "budget_usd", str(rules.budget_usd)
        case Reason.IDLE:
            return "idle.after_seconds", rules.idle.after_seconds
        case Reason.UNREACHABLE:
            return "unreachable.after_seconds", rules.unreachable.after_seconds
        case Reason.WINDOW:
            return "windows", None
    end = expires_at(record.lease)
    if end is not None and end <= deps.clock.now():
        return "max_duration_seconds", rules.max_duration_seconds
    return "paused.release_after_seconds", rules.paused.release_after_seconds
