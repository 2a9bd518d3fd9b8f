"""Sentences about leases that several commands use."""

from collections.abc import Iterable
from datetime import datetime

from gpulease_cli.text import between, cost, duration, rate
from gpulease_cli.views import AttemptView, BilledView, LeaseView, OfferView, ResourceView

_NO_FAILURES = frozenset({"user", "idle", "expired", "budget"})
"""Reasons for which an attempt ends although nothing went wrong."""


def offer(view: OfferView) -> str:
    """`1 x A100 (80 GiB) at vultr/ewr, $1.20/h`."""
    memory = f" ({view.gpu_memory_gib:g} GiB)" if view.gpu_memory_gib else ""
    spot = " spot" if view.spot else ""
    return f"{view.gpu}{memory} at {view.place}, {rate(view.price_per_hour_usd)}/h{spot}"


def why(lease: LeaseView) -> str:
    """`no_capacity: detail`, as far as known."""
    return ": ".join(part for part in (lease.reason, lease.reason_detail) if part)


def attempt(view: AttemptView, state: str, now: datetime) -> str:
    """One attempt in one line. By the lease's `state` one that did not fail is under way or made the machine."""
    end = "under way" if state == "provisioning" else "made the machine"
    if view.failed:
        end = "ended: " if view.reason in _NO_FAILURES else "failed: "
        end += ": ".join(part for part in (view.reason, view.detail) if part)
    until = view.ended_at or (now if state == "provisioning" else None)
    took = "" if until is None or view.started_at is None else f" ({between(view.started_at, until)})"
    return f"attempt {view.number}: {view.offer} at {rate(view.price_per_hour_usd)}/h {end}{took}"


def resource(view: ResourceView) -> str:
    """`instance vultr/ewr 203.0.113.7 ($1.20/h)`."""
    where = "/".join(part for part in (view.provider, view.region) if part)
    price = f"({rate(view.price_per_hour_usd)}/h)" if view.price_per_hour_usd else ""
    return " ".join(part for part in (view.kind, where, view.address or view.provider_id, price) if part)


def money(lease: LeaseView) -> str:
    """`$1.20/h, $0.04 so far`."""
    return f"{rate(lease.price_per_hour_usd)}/h, {cost(lease.cost_so_far_usd)} so far"


def billed_while_paused(parts: Iterable[BilledView]) -> str:
    """`disk of the stopped machine $0.011/h, cache models $0.007/h`, or `nothing`."""
    listed = (f"{part.what} {rate(part.price_per_hour_usd)}/h" for part in parts)
    return ", ".join(listed) or "nothing"


def still_billed(resources: Iterable[ResourceView]) -> str:
    """Names what costs money until it is proven gone; empty when nothing does."""
    listed = ", ".join(resource(item) for item in resources)
    return f"still billed until proven gone: {listed}" if listed else ""


def headline(lease: LeaseView, now: datetime) -> str:
    """State, time in it, what is waited for, and the money, in one line."""
    since = lease.state_since
    parts = [f"{lease.label}: {lease.state}" + (f" for {duration((now - since).total_seconds())}" if since else "")]
    if lease.state == "releasing" or lease.released:
        parts[0] += f" ({lease.reason})" if lease.reason else ""
    elif lease.offer is not None:
        parts.append(f"{lease.offer.gpu} at {lease.offer.place}")
    if lease.waiting_for and not lease.released:
        parts.append(f"waiting for {lease.waiting_for.removeprefix('waiting for ')}")
    if lease.state == "paused":
        parts.append(f"billed meanwhile: {billed_while_paused(lease.pause.billed)}")
    if billed := (still_billed(lease.still_billed) if lease.state == "releasing" else ""):
        parts.append(billed)
    parts.append(money(lease))
    return "; ".join(parts)
