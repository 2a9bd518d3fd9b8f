"""What a machine could do with a cache, for whoever decides about offers: API and steps."""

from gpulease.domain.cache import spec_of, takes_volume
from gpulease.domain.offer import Offer
from gpulease.domain.record import LeaseRecord
from gpulease.ports import Deps


def takes_its_volume(cache: LeaseRecord, offer: Offer, deps: Deps) -> bool:
    """Whether a machine of this offer would use the cache's volume. Needs no provider call."""
    spec = spec_of(cache.lease)
    if not spec.has_volume or offer.provider != spec.provider:
        return False
    provider = deps.providers.get(offer.provider)
    return takes_volume(spec, offer, lambda each: provider.can_attach_volume(each, spec.region, spec.zone))
