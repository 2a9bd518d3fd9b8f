"""What agents on machines ask of us: to take a report, to hand out a cache's keys, to send their program again.

These routes have no caller's identity; the lease's own token opens them. Invariants: whatever is wrong with a token,
the answer is the same 401, and it tells nothing of any lease; a report costs one read and one conditional write, and
more only while its machine becomes ready; a machine gets the keys of its own lease's cache and of nothing else.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpulease.agent_program import agent_program
from gpulease.domain.agent import (
    REPORT_EVERY_SECONDS,
    AgentRecord,
    report_every_seconds,
)
from gpulease.domain.agent_protocol import (
    HEARTBEAT_PATH,
    KEYS_PATH,
    MAX_REPORT_BYTES,
    PREPARING_SECONDS,
    PROGRAM_PATH,
    SAVING_SECONDS,
    AgentAnswer,
    AgentReport,
    answer_to,
    bearer,
    lease_of_token,
    noted,
    opens,
    opens_kept,
)
from gpulease.domain.idle import Action
from gpulease.domain.lease import IN_PROVISION, Attempt, LeaseState, ResumeMode
from gpulease.domain.readiness import is_shown_ready, word_of
from gpulease.domain.record import LeaseRecord
from gpulease.errors import LeaseConflict, LeaseNotFound, LeaseSuperseded, LedgerUnavailable
from gpulease.ports import Deps
from gpulease.steps import mark_running
from gpulease.steps.agent_access import kept_agent
from gpulease.steps.agent_keys import Mint, NoKeys, keys_for
from gpulease.steps.base import StepCommand, fail_attempt
from gpulease.steps.limits import act_on_report

TRIES = 4
Answer = dict[str, Any]


class _Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, detail: str, **headers: str) -> None:
        super().__init__(code)
        self.status, self.code, self.detail, self.headers = status, code, detail, headers


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who asks. One that stands by is a stopped machine, kept while new ones are tried, that somebody has started: its
    reports are answered, so that it goes on asking, and say nothing of the lease."""

    agent: AgentRecord
    stands_by: bool = False


def run(event: Mapping[str, Any], deps: Deps, mint: Mint) -> Answer:
    """Answer one request (API Gateway payload format 2.0). Never raises what an agent should not see.

    `mint` makes a short-lived key of a stored one, where that is possible.
    """
    try:
        return _routed(event, deps, mint)
    except _Refused as refused:
        body = {"type": "about:blank", "title": refused.code.replace("_", " "), "status": refused.status}
        body |= {"code": refused.code, "detail": refused.detail}
        return _answer(refused.status, json.dumps(body), "application/problem+json", **refused.headers)
    except (LedgerUnavailable, LeaseConflict) as error:
        deps.log.warning("agent_request_not_served", error=type(error).__name__, reason=str(error))
        body = {"type": "about:blank", "title": "not now", "status": 503, "code": "not_now", "detail": "come again"}
        return _answer(503, json.dumps(body), "application/problem+json", **{"Retry-After": "20"})


def _routed(event: Mapping[str, Any], deps: Deps, mint: Mint) -> Answer:
    method = str(event["requestContext"]["http"]["method"])
    routes: dict[tuple[str, str], Callable[[_Caller], Answer]] = {
        ("POST", HEARTBEAT_PATH): lambda caller: _heartbeat(event, caller, deps),
        ("GET", KEYS_PATH): lambda caller: _keys(caller, deps, mint),
        ("GET", PROGRAM_PATH): lambda caller: _program(),
    }
    # Who has no token learns nothing, not even which routes there are.
    caller = _let_in(event, deps)
    route = routes.get((method, str(event.get("rawPath", ""))))
    if route is None:
        raise _Refused(404, "no_such_route", "agents know other routes")
    return route(caller)


def _let_in(event: Mapping[str, Any], deps: Deps) -> _Caller:
    token = bearer(event.get("headers") or {})
    lease_id = lease_of_token(token)
    agent = deps.agents.load(lease_id) if lease_id is not None else None
    # Both are compared, whichever it is: the time that an answer takes tells nothing.
    own, kept = opens(token, agent), opens_kept(token, agent)
    if agent is not None and own:
        return _Caller(agent)
    caller = _kept(agent, deps) if agent is not None and kept else None
    if caller is None:
        raise _Refused(401, "not_authenticated", "the token opens nothing", **{"WWW-Authenticate": "Bearer"})
    return caller


def _kept(known: AgentRecord, deps: Deps) -> _Caller | None:
    try:
        found = kept_agent(known, deps)
    except LeaseNotFound:
        return None
    return _Caller(found[0], stands_by=not found[1]) if found is not None else None


# --- reports ----------------------------------------------------------------------------------------------------------


def _heartbeat(event: Mapping[str, Any], caller: _Caller, deps: Deps) -> Answer:
    report = _report_in(event)
    for _ in range(TRIES):
        if caller.stands_by:
            return _answer(200, AgentAnswer().model_dump_json())
        before = caller.agent
        try:
            agent = deps.agents.save(noted(before, report, deps.clock.now()))
        except LeaseConflict:
            # The API asked for a flush at this moment, or the report came twice.
            caller = _let_in(event, deps)
            continue
        attempt = _follow(before, agent, deps)
        volume = attempt.volume if attempt is not None else None
        answer = answer_to(
            agent,
            deps.clock.now(),
            volume_attached=volume is not None and volume.attached_at is not None,
            start=attempt is not None and is_shown_ready(attempt),
            interval_seconds=_next_report(agent, deps),
        )
        return _answer(200, answer.model_dump_json())
    raise LeaseConflict(f"the agent's row of {caller.agent.lease_id}: {TRIES} writes in a row lost against others")


def _next_report(agent: AgentRecord, deps: Deps) -> int:
    """In how many seconds, after acting on what this one decides. Costs one read more, while the machine is quiet."""
    now = deps.clock.now()
    if agent.flush_until is not None and agent.flushed_at is None and now < agent.flush_until:
        # Its machine is billed until it says that the cache is saved.
        return SAVING_SECONDS
    if not agent.quiet_reports:
        return REPORT_EVERY_SECONDS
    try:
        record = deps.ledger.load(agent.lease_id)
        if record.lease.state is LeaseState.PAUSING:
            return PREPARING_SECONDS
        verdict = act_on_report(record, agent, deps, now)
    except (LeaseNotFound, LeaseSuperseded, LeaseConflict, LedgerUnavailable) as error:
        # The report is stored, and `check_leases` decides within a minute.
        deps.log.info("report_not_acted_on", lease_id=agent.lease_id, error=type(error).__name__)
        return REPORT_EVERY_SECONDS
    if verdict is None:
        return REPORT_EVERY_SECONDS
    if verdict.action is not Action.NONE:
        return PREPARING_SECONDS
    return report_every_seconds(agent, verdict.plan_at or verdict.at, now)


def _follow(before: AgentRecord, agent: AgentRecord, deps: Deps) -> Attempt | None:
    """What a report means for its lease while the machine becomes ready. The attempt, as long as that is so."""
    if agent.first_report_at is not None and before.first_report_at is not None:
        return None
    try:
        record = deps.ledger.load(agent.lease_id)
        attempt = record.lease.attempt
        if attempt is None or attempt.number != agent.attempt or record.lease.state not in IN_PROVISION:
            return None
        if agent.first_report_at is not None and attempt.reason is None:
            _push(record, attempt, agent, deps)
    except (LeaseNotFound, LeaseSuperseded, LeaseConflict, LedgerUnavailable) as error:
        # The report is stored, and the lease's own workflow reads it at its next turn.
        deps.log.info("report_not_followed", lease_id=agent.lease_id, error=type(error).__name__)
        return None
    return attempt


def _push(record: LeaseRecord, attempt: Attempt, agent: AgentRecord, deps: Deps) -> None:
    """Move the lease by its first report, where that was all that was missing."""
    lease, word = record.lease, word_of(agent, attempt)
    if word.reason is not None:
        deps.ledger.commit(fail_attempt(record, deps.clock.now(), word.reason, word.detail))
        return
    if not word.ready or not is_shown_ready(attempt):
        return
    if lease.resume is not None and lease.resume.mode is ResumeMode.NEW:
        # What it replaces has to be given back with that: the workflow does it.
        return
    mark_running.run(StepCommand(lease_id=lease.id, epoch=lease.epoch), deps)


def _report_in(event: Mapping[str, Any]) -> AgentReport:
    body = event.get("body") or ""
    if len(body) > MAX_REPORT_BYTES * 4 // 3 + 4:
        raise _Refused(413, "body_too_big", f"a report may have {MAX_REPORT_BYTES} bytes")
    try:
        raw = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except (binascii.Error, ValueError):
        raise _Refused(400, "malformed_body", "the body could not be decoded") from None
    if len(raw) > MAX_REPORT_BYTES:
        raise _Refused(413, "body_too_big", f"a report may have {MAX_REPORT_BYTES} bytes")
    try:
        return AgentReport.model_validate_json(raw)
    except ValidationError as error:
        # Names of fields only: what stood in them is not repeated.
        fields = sorted({".".join(str(part) for part in e["loc"][:2])[:60] or "the body" for e in error.errors()})
        raise _Refused(422, "invalid_report", f"not as agreed: {', '.join(fields[:10])}") from None


# --- the rest ---------------------------------------------------------------------------------------------------------


def _keys(caller: _Caller, deps: Deps, mint: Mint) -> Answer:
    agent = caller.agent
    try:
        record = deps.ledger.load(agent.lease_id)
    except LeaseNotFound:
        raise _Refused(404, "no_cache", "this lease has no cache with an object store") from None
    attempt = record.lease.attempt
    if attempt is None or attempt.number != agent.attempt or record.lease.state is LeaseState.RELEASED:
        raise _Refused(404, "no_cache", "this lease has no cache with an object store")
    try:
        keys = keys_for(record.lease, deps, mint)
    except NoKeys as error:
        deps.log.warning("cache_keys_not_given", lease_id=agent.lease_id, reason=str(error))
        raise _Refused(503, "no_keys", str(error), **{"Retry-After": "60"}) from None
    if keys is None:
        raise _Refused(404, "no_cache", "this lease has no cache with an object store")
    return _answer(200, keys.model_dump_json(exclude_none=True))


def _program() -> Answer:
    """In text form, since that is what it is."""
    return _answer(200, agent_program().source.decode(), "text/x-python; charset=utf-8")


def _answer(status: int, body: str, content_type: str = "application/json", **headers: str) -> Answer:
    return {
        "statusCode": status,
        "headers": {"Content-Type": content_type, "Cache-Control": "no-store", **headers},
        "body": body,
    }
