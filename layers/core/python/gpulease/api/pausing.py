"""Pauses and resumes a lease on its user's word. Safe to repeat: what is done or under way is answered as it is."""

from datetime import timedelta
from decimal import Decimal
from http import HTTPStatus

from gpulease.api.accept import start
from gpulease.api.problems import Problem, unavailable
from gpulease.api.schemas import PartView
from gpulease.api.schemas_pause import PauseDryRun, ResumeDryRun
from gpulease.api.views import money
from gpulease.domain.cost import lease_cost
from gpulease.domain.lease import LeaseState, Reason, ResumeMode
from gpulease.domain.pause import may_pause, may_resume, request_pause
from gpulease.domain.pause_plan import per_hour
from gpulease.domain.policy import Capacity
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resume import START_PATIENCE, kept_machine, request_resume
from gpulease.errors import LeaseConflict, LeaseSuperseded
from gpulease.pause_facts import is_over_budget, least_cost, mode_of, offer_of, plan_of
from gpulease.ports import Deps
from gpulease.saving import flush_before_end

MAX_TRIES = 5
NOTHING_TO_KEEP = "nothing_to_keep"
OVER_BUDGET = "over_budget"
_TEXTS = {
    "not_running": "only a lease that is running can be paused; this one is {state}",
    "not_paused": "only a lease that is paused can be resumed; this one is {state}",
    "being_paused": "the lease is being paused at this moment; resume it when it is paused",
    "being_released": "the lease is being given back: that cannot be undone",
    "released": "the lease is released: there is nothing left of it",
}


def pause(record: LeaseRecord, deps: Deps, detail: str) -> LeaseRecord:
    """Running → pausing. Raises problems: 409."""
    for _ in range(MAX_TRIES):
        if record.lease.state in (LeaseState.PAUSING, LeaseState.PAUSED):
            return _started(record, deps)
        _require(may_pause(record.lease), record)
        mode = mode_of(record, deps)
        if mode is None:
            raise _conflict(NOTHING_TO_KEEP, plan_of(record, deps).text, record)
        change = request_pause(
            record,
            now=deps.clock.now(),
            mode=mode,
            reason=Reason.USER,
            detail=detail,
            flush=flush_before_end(record, deps, deps.clock.now()),
        )
        if (done := _decided(change, deps)) is not None:
            return done
        record = deps.ledger.load(record.lease.id)
    raise _busy()


def resume(
    record: LeaseRecord, deps: Deps, detail: str, on_no_capacity: Capacity | None, wait_seconds: int | None
) -> LeaseRecord:
    """Paused → resuming. Raises problems: 409."""
    for _ in range(MAX_TRIES):
        if record.lease.state in (LeaseState.RESUMING, LeaseState.RUNNING):
            return _started(record, deps)
        _require(may_resume(record.lease), record)
        if broke := _over_budget(record, deps):
            raise _conflict(OVER_BUDGET, broke, record)
        change = request_resume(
            record,
            now=deps.clock.now(),
            detail=detail,
            on_no_capacity=on_no_capacity,
            patience=START_PATIENCE if wait_seconds is None else timedelta(seconds=wait_seconds),
        )
        if (done := _decided(change, deps)) is not None:
            return done
        record = deps.ledger.load(record.lease.id)
    raise _busy()


def pause_dry_run(record: LeaseRecord, deps: Deps) -> PauseDryRun:
    """What a pause would do and cost. Refuses nothing: it says why it would."""
    plan = plan_of(record, deps)
    code = may_pause(record.lease) or ("" if plan.mode is not None else NOTHING_TO_KEEP)
    return PauseDryRun(
        possible=not code,
        code=code,
        mode=plan.mode,
        running_price_per_hour_usd=money(plan.running_usd_per_hour),
        paused_price_per_hour_usd=money(plan.paused_usd_per_hour),
        billed_while_paused=tuple(
            PartView(what=part.what, price_per_hour_usd=money(part.usd_per_hour)) for part in plan.parts
        ),
        release_after_seconds=record.lease.rules.paused.release_after_seconds,
        text=plan.text if code in ("", NOTHING_TO_KEEP) else _text(code, record),
    )


def resume_dry_run(record: LeaseRecord, deps: Deps) -> ResumeDryRun:
    """What a resume would do."""
    broke = "" if may_resume(record.lease) else _over_budget(record, deps)
    code = may_resume(record.lease) or (OVER_BUDGET if broke else "")
    machine, offer = kept_machine(record), offer_of(record.lease)
    price = money(offer.price_per_hour_usd) if offer is not None else money(Decimal(0))
    costs = per_hour(offer.price_per_hour_usd) if offer is not None else "unknown"
    text = (
        f"the stopped machine is started again ({costs}); without capacity the lease stays paused"
        if machine is not None
        else f"a new machine is chosen and made, with the lease's cache; the last one cost {costs}"
    )
    return ResumeDryRun(
        possible=not code,
        code=code,
        new_machine=machine is None,
        price_per_hour_usd=price,
        text=broke or (_text(code, record) if code else text),
    )


def _over_budget(record: LeaseRecord, deps: Deps) -> str:
    """Why a machine would be given back, with its disk, as soon as it runs again; empty = it would not."""
    now, offer = deps.clock.now(), offer_of(record.lease)
    if offer is None or not is_over_budget(record, now, deps):
        return ""
    spent, least = money(lease_cost(record, now)), money(least_cost(offer, deps))
    return (
        f"its budget of ${record.lease.rules.budget_usd} would be passed at once, and its machine given back "
        f"(${spent} spent, ${least} at the least to run); raise it first (`gpulease policy NAME --budget USD`)"
    )


def _decided(change: Change, deps: Deps) -> LeaseRecord | None:
    """Written and started; None = somebody else changed the lease meanwhile."""
    try:
        deps.ledger.commit(change)
    except (LeaseConflict, LeaseSuperseded):
        return None
    return _started(deps.ledger.load(change.lease_id), deps)


def _started(record: LeaseRecord, deps: Deps) -> LeaseRecord:
    """Harmless when it runs already, and mends a start that failed."""
    lease = record.lease
    if lease.state is LeaseState.PAUSING:
        start(deps, lease, "pause")
    elif lease.state is LeaseState.RESUMING and lease.resume is not None:
        start(deps, lease, "provision" if lease.resume.mode is ResumeMode.NEW else "resume")
    return record


def _require(code: str, record: LeaseRecord) -> None:
    if code:
        raise _conflict(code, _text(code, record), record)


def _text(code: str, record: LeaseRecord) -> str:
    return _TEXTS[code].format(state=record.lease.state)


def _conflict(code: str, text: str, record: LeaseRecord) -> Problem:
    return Problem(HTTPStatus.CONFLICT, code, text, lease_id=record.lease.id)


def _busy() -> Problem:
    return unavailable(
        "lease_busy",
        "the lease is being changed by somebody else at this moment; nothing was done, repeat the request",
        retry_after_seconds=1,
    )
