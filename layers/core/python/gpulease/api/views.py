"""Turns records into what is answered. Pure; everything shown as billed is not proven gone."""

from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal

from gpulease.api.schemas import (
    AgentView,
    AttemptView,
    CacheSavingView,
    EventView,
    LeaseSummary,
    LeaseView,
    NextView,
    PartView,
    PauseView,
    ResourceView,
)
from gpulease.domain.agent import AgentRecord, is_silent
from gpulease.domain.cost import cost_of, is_billed, lease_cost, price_per_hour, rate_now
from gpulease.domain.event import Event
from gpulease.domain.flush import open_flush
from gpulease.domain.idle import idle_since
from gpulease.domain.lease import Lease, LeaseState
from gpulease.domain.next_step import what_next
from gpulease.domain.offer import Offer
from gpulease.domain.pause import release_at
from gpulease.domain.pause_plan import BilledPart
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import BillingRule, Resource, ResourceKind, ResourceState
from gpulease.domain.shared_network import SharedNetwork

_SMALLEST = Decimal("0.000001")
SSH_USER = "root"
"""Who may log in on the images of the providers that exist so far (Vultr)."""


def money(value: Decimal) -> str:
    """US dollars with two to six decimals and never an exponent: `1.85`, `0.013889`."""
    text = format(value.quantize(_SMALLEST, ROUND_HALF_UP), "f").rstrip("0")
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals:0<2}"


def lease_view(
    record: LeaseRecord,
    now: datetime,
    ssh_port: int = 22,
    shared: Sequence[SharedNetwork] = (),
    agent: AgentRecord | None = None,
    cache: BilledPart | None = None,
    *,
    keeps_something: bool = True,
) -> LeaseView:
    """`cache`: what the lease's cache costs, where it is paused. `keeps_something`: whether a pause would."""
    lease = record.lease
    address = address_of(record)
    return LeaseView(
        id=lease.id,
        name=lease.name,
        owner=lease.owner,
        state=lease.state,
        reason=lease.reason,
        reason_detail=lease.reason_detail,
        epoch=lease.epoch,
        created_at=lease.created_at,
        running_at=lease.running_at,
        ready_at=lease.ready_at,
        resume_requested_at=lease.resume.requested_at if lease.resume is not None else None,
        release_requested_at=lease.release_requested_at,
        released_at=lease.released_at,
        spec=lease.spec,
        policy=lease.rules,
        keep_until=lease.keep_until,
        agent=_agent_view(lease, agent, now) if agent is not None else None,
        pause=_pause_view(record, cache),
        cache_saving=_cache_saving_view(lease),
        start_script_bytes=lease.start_script_bytes,
        start_script_sha256=lease.start_script_sha256,
        offer=_offer_of(lease),
        attempts=tuple(
            AttemptView(
                number=a.number,
                offer=a.offer.key,
                price_per_hour_usd=money(a.offer.price_per_hour_usd),
                started_at=a.started_at,
                ended_at=a.ended_at,
                reason=a.reason,
                detail=a.detail,
            )
            for a in lease.attempts
        ),
        resources=(
            *(_resource_view(resource, now) for resource in record.resources),
            *(_resource_view(each.network, now, each) for each in shared),
        ),
        price_per_hour_usd=money(price_per_hour(record, now)),
        cost_so_far_usd=money(lease_cost(record, now)),
        address=address,
        ssh=_ssh(address, ssh_port) if lease.state is LeaseState.RUNNING and address else None,
        waiting_for=lease.waiting_for,
        notices=lease.notices,
        warnings=lease.warnings,
        next=_next(record, now, agent, keeps_something),
    )


def _pause_view(record: LeaseRecord, cache: BilledPart | None) -> PauseView | None:
    lease, progress = record.lease, record.lease.pause
    if progress is None:
        return None
    billed = [
        BilledPart(f"{_billed_kind(r)} at {r.provider}/{r.region}", rate_now(r))
        for r in record.resources
        if is_billed(r) and r.billing is not BillingRule.FREE
    ]
    billed += [cache] if cache is not None else []
    return PauseView(
        mode=progress.mode,
        reason=progress.reason,
        detail=progress.detail,
        requested_at=progress.requested_at,
        paused_at=lease.paused_at,
        release_at=release_at(lease),
        billed=tuple(PartView(what=part.what, price_per_hour_usd=money(part.usd_per_hour)) for part in billed),
        price_per_hour_usd=money(sum((part.usd_per_hour for part in billed), Decimal(0))),
        resume_failed=progress.resume_failed,
    )


def _cache_saving_view(lease: Lease) -> CacheSavingView | None:
    flush = open_flush(lease)
    if flush is None:
        return None
    return CacheSavingView(requested_at=flush.requested_at, deadline=flush.deadline, at_most_until=flush.latest)


def _billed_kind(resource: Resource) -> str:
    """Of a machine that is stopped only the disk is billed."""
    return "disk of the stopped machine" if resource.stopped_at is not None else str(resource.kind)


def _agent_view(lease: Lease, agent: AgentRecord, now: datetime) -> AgentView | None:
    if agent.first_report_at is None:
        return None
    return AgentView(
        last_report_at=agent.last_report_at,
        silent=is_silent(agent, now),
        gpu_models=agent.gpu_models,
        gpu_percent=agent.gpu_percent,
        gpu_memory_mib=agent.gpu_memory_mib,
        gpu_memory_used_mib=agent.gpu_memory_used_mib,
        activity_at=agent.activity_at,
        idle_since=idle_since(lease, agent, now),
        gpus=agent.gpus,
        problems=agent.problems,
        start_script=agent.start_script,
        host_keys=agent.host_keys,
    )


def lease_summary(
    record: LeaseRecord,
    now: datetime,
    *,
    with_cost: bool,
    agent: AgentRecord | None = None,
    keeps_something: bool = True,
) -> LeaseSummary:
    """`with_cost` is False where the record was read without its resources."""
    lease = record.lease
    return LeaseSummary(
        id=lease.id,
        name=lease.name,
        owner=lease.owner,
        state=lease.state,
        reason=lease.reason,
        created_at=lease.created_at,
        running_at=lease.running_at,
        released_at=lease.released_at,
        offer=_offer_of(lease),
        address=address_of(record),
        price_per_hour_usd=money(price_per_hour(record, now)),
        cost_so_far_usd=money(lease_cost(record, now)) if with_cost else None,
        waiting_for=lease.waiting_for,
        next=_next(record, now, agent, keeps_something),
    )


def event_view(event: Event) -> EventView:
    return EventView(at=event.at, kind=event.kind, level=event.level, text=event.text, facts=event.facts)


def address_of(record: LeaseRecord) -> str:
    """Address of the machine that is held, or "". A stopped machine has none: its old one may be anybody's (C40)."""
    if record.lease.state in (LeaseState.PAUSING, LeaseState.PAUSED):
        return ""
    held = (r for r in record.of_kind(ResourceKind.INSTANCE) if r.state is ResourceState.HELD)
    return next((r.address for r in held if r.address), "")


def _offer_of(lease: Lease) -> Offer | None:
    return lease.attempts[-1].offer if lease.attempts else None


def _ssh(address: str, port: int) -> str:
    return f"ssh {SSH_USER}@{address}" if port == 22 else f"ssh -p {port} {SSH_USER}@{address}"


def _next(record: LeaseRecord, now: datetime, agent: AgentRecord | None, keeps_something: bool) -> NextView:
    step = what_next(record, now, agent, keeps_something=keeps_something)
    return NextView(text=step.text, at=step.at)


def _resource_view(resource: Resource, now: datetime, shared: SharedNetwork | None = None) -> ResourceView:
    return ResourceView(
        id=resource.id,
        kind=resource.kind,
        provider=resource.provider,
        account=resource.account,
        region=resource.region,
        plan=resource.plan,
        state=resource.state,
        provider_id=resource.provider_id,
        status=resource.status,
        address=resource.address,
        price_per_hour_usd=money(rate_now(resource)),
        cost_so_far_usd=money(cost_of(resource, now)),
        billed=is_billed(resource) and resource.billing is not BillingRule.FREE,
        shared=shared is not None,
        used_by_others=shared.others if shared else 0,
    )
