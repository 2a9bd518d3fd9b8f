"""Which offers fit a request, in which order they are tried, and why none is left."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache

from gpulease.domain.lease import Attempt, Lease, Reason
from gpulease.domain.offer import Offer
from gpulease.domain.resume import counted_attempts
from gpulease.domain.spec import LeaseSpec, PrivateNetwork, SpotPolicy

SAME_OFFER_AGAIN = frozenset({Reason.NEVER_APPEARED, Reason.THROTTLED})
"""Ends of an attempt that say nothing against the offer itself."""
MAX_TRIES_OF_ONE_OFFER = 5
MAX_BAD_MACHINES = 2
"""A machine on which GPUs are missing is replaced once; a second one ends the lease (C30)."""
THROTTLED_PATIENCE = timedelta(minutes=15)
"""How long an offer is tried again after 429: it was not refused, only not heard."""
NEXT_OFFER_AFTER = SAME_OFFER_AGAIN | {
    Reason.NO_CAPACITY,
    Reason.INTERRUPTED,
    Reason.PRICE_CHANGED,
    Reason.QUOTA_EXCEEDED,
    Reason.NETWORK_UNSUPPORTED,
    Reason.AUTH_FAILED,
    Reason.GPU_CHECK_FAILED,
}
"""Ends after which another offer is tried; what else an end rules out is in `_excluded_by`. A machine that was created
and never became ready is not tried elsewhere by itself: it has cost an hour and points at the image or the script."""


def may_try_next(spec: LeaseSpec, reason: Reason | None) -> bool:
    """Whether an attempt that ended so is followed by another offer."""
    if reason is Reason.NOT_READY_IN_TIME:
        return spec.retry_not_ready
    return reason in NEXT_OFFER_AFTER


def same_gpu(a: str, b: str) -> bool:
    """Whether two GPU model names mean the same: only letters and digits count, `NVIDIA` may stand in front."""
    return _plain(a) == _plain(b)


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    plain = "".join(c for c in name.upper() if c.isalnum())
    return plain.removeprefix("NVIDIA").removeprefix("AMD")


# Each filter is named after the field of the request it belongs to, so that "no offer" can say which field to relax.
_FILTERS: tuple[tuple[str, Callable[[LeaseSpec, Offer], bool]], ...] = (
    ("gpu", lambda s, o: not s.gpu or any(same_gpu(g, o.gpu_model) for g in s.gpu)),
    ("gpu_count", lambda s, o: o.gpu_count == s.gpu_count),
    ("min_gpu_memory_gib", lambda s, o: s.min_gpu_memory_gib is None or o.gpu_memory_gib >= s.min_gpu_memory_gib),
    ("min_vcpus", lambda s, o: s.min_vcpus is None or o.vcpus >= s.min_vcpus),
    ("min_memory_gib", lambda s, o: s.min_memory_gib is None or o.memory_gib >= s.min_memory_gib),
    ("min_disk_gb", lambda s, o: s.min_disk_gb is None or o.disk_gb >= s.min_disk_gb),
    ("providers", lambda s, o: not s.providers or o.provider in s.providers),
    ("regions", lambda s, o: not s.regions or o.region in s.regions),
    ("plans", lambda s, o: not s.plans or o.plan in s.plans),
    ("plan_kinds", lambda s, o: not s.plan_kinds or o.kind in s.plan_kinds),
    ("spot", lambda s, o: s.spot is SpotPolicy.ANY or o.spot == (s.spot is SpotPolicy.SPOT)),
    (
        "private_network",
        lambda s, o: s.private_network is not PrivateNetwork.REQUIRED or o.private_network is not False,
    ),
    (
        "max_price_per_hour_usd",
        lambda s, o: s.max_price_per_hour_usd is None or o.price_per_hour_usd <= s.max_price_per_hour_usd,
    ),
)


def matching(spec: LeaseSpec, offers: Iterable[Offer]) -> list[Offer]:
    """Offers that fit, in the order in which they are tried: known stock-outs last, then cheapest, then by key."""
    sized = (offer.with_disk(spec.min_disk_gb) for offer in offers)
    fits = [offer for offer in sized if all(ok(spec, offer) for _, ok in _FILTERS)]
    return sorted(fits, key=lambda o: (o.in_stock is False, o.price_per_hour_usd, o.key))


def affordable(offers: Iterable[Offer], left: Decimal | None, least: Callable[[Offer], Decimal]) -> list[Offer]:
    """Offers whose machines are of some use before the money that is left is spent; `least`: what that costs."""
    return [offer for offer in offers if left is None or least(offer) <= left]


def explain_no_match(spec: LeaseSpec, offers: Iterable[Offer]) -> tuple[str, str]:
    """(field to change, sentence) when nothing matches: the first filter that left nothing, and what it left out."""
    left = [offer.with_disk(spec.min_disk_gb) for offer in offers]
    for name, ok in _FILTERS:
        kept = [offer for offer in left if ok(spec, offer)]
        if not kept:
            return name, f"no offer is left: {_hint(name, left)}"
        left = kept
    return "", "offers match"


def _hint(name: str, left: list[Offer]) -> str:
    if not left:
        return "the catalogue is empty"
    cheapest = min(left, key=lambda o: (o.price_per_hour_usd, o.key))
    if name == "max_price_per_hour_usd":
        return f"the cheapest one that fits otherwise is {cheapest.key} at ${cheapest.price_per_hour_usd} per hour"
    have: dict[str, Callable[[Offer], object]] = {
        "gpu": lambda o: o.gpu_model,
        "gpu_count": lambda o: o.gpu_count,
        "min_gpu_memory_gib": lambda o: o.gpu_memory_gib,
        "min_vcpus": lambda o: o.vcpus,
        "min_memory_gib": lambda o: o.memory_gib,
        "min_disk_gb": lambda o: o.disk_gb,
        "providers": lambda o: o.provider,
        "regions": lambda o: o.region,
        "plans": lambda o: o.plan,
        "plan_kinds": lambda o: o.kind.value,
        "spot": lambda o: "spot" if o.spot else "on-demand",
        "private_network": lambda o: "no private network",
    }
    values = sorted({have[name](offer) for offer in left}, key=lambda v: (str(type(v)), v))
    shown = ", ".join(str(value) for value in values[:12]) + (", …" if len(values) > 12 else "")
    return f"what fits otherwise has {name} = {shown}"


def known_gpus(offers: Iterable[Offer]) -> list[str]:
    return sorted({offer.gpu_model for offer in offers})


def next_offers(lease: Lease, offers: Iterable[Offer]) -> list[Offer]:
    """Offers still worth a try for this lease, in order. Empty when its tries are used up."""
    attempts = counted_attempts(lease)
    if sum(a.asked and a.reason is not Reason.THROTTLED for a in attempts) >= lease.spec.max_attempts:
        return []
    if sum(a.reason is Reason.GPU_CHECK_FAILED for a in attempts) >= MAX_BAD_MACHINES:
        return []
    return [o for o in matching(lease.spec, offers) if not any(_excluded_by(a, o, lease) for a in attempts)]


def _excluded_by(attempt: Attempt, offer: Offer, lease: Lease) -> bool:
    if attempt.reason is Reason.QUOTA_EXCEEDED:
        # A limit of the account holds for all its plans of that region.
        return attempt.offer.provider == offer.provider and attempt.offer.region == offer.region
    if attempt.reason is Reason.AUTH_FAILED:
        return attempt.offer.provider == offer.provider
    if attempt.offer.key != offer.key:
        return False
    if attempt.reason is Reason.GPU_CHECK_FAILED:
        # One machine was bad; another of the same offer need not be.
        return False
    if attempt.reason in SAME_OFFER_AGAIN:
        same = [a for a in counted_attempts(lease) if a.offer.key == offer.key and a.reason is attempt.reason]
        if attempt.reason is Reason.THROTTLED:
            return same[-1].started_at - same[0].started_at > THROTTLED_PATIENCE
        return len(same) >= MAX_TRIES_OF_ONE_OFFER
    if attempt.reason is Reason.NETWORK_UNSUPPORTED and lease.spec.private_network is PrivateNetwork.PREFERRED:
        # Refused with the network in the create call; the next try goes without it, and its refusal says the rest.
        return sum(a.offer.key == offer.key and a.reason is attempt.reason for a in counted_attempts(lease)) > 1
    return True


def reason_to_give_up(lease: Lease) -> tuple[Reason, str]:
    """What to tell the user when no offer is left: the last attempt's end, or no_capacity over all of them."""
    ended = [a for a in counted_attempts(lease) if a.reason is not None]
    if not ended:
        return Reason.NO_CAPACITY, "no offer of the catalogue fits and is in stock"
    tried = "; ".join(f"{a.offer.key}: {a.reason}" + (f" ({a.detail})" if a.detail else "") for a in ended)
    reasons = {a.reason for a in ended}
    if reasons <= {Reason.NO_CAPACITY, *SAME_OFFER_AGAIN}:
        telling = [r for r in (Reason.NO_CAPACITY, ended[-1].reason) if r in reasons]
    else:
        telling = [a.reason for a in reversed(ended) if a.reason not in {Reason.NO_CAPACITY, *SAME_OFFER_AGAIN}]
    return telling[0] or Reason.NO_CAPACITY, f"tried {len(ended)}: {tried}"
