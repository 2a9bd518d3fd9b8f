"""Turns a cache's record into what is answered. Everything shown as billed is not proven gone."""

from datetime import datetime

from gpulease.api.schemas_caches import CacheUserView, CacheView, VolumeView
from gpulease.api.views import money
from gpulease.domain.cache import HOURS_PER_MONTH, expires_at, spec_of, state_of, user_of
from gpulease.domain.cost import is_billed, lease_cost, price_per_hour, rate_now
from gpulease.domain.lease import Lease
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import ResourceKind
from gpulease.errors import LeaseNotFound
from gpulease.ports import Ledger


def cache_view(record: LeaseRecord, now: datetime, ledger: Ledger) -> CacheView:
    lease, spec = record.lease, spec_of(record.lease)
    return CacheView(
        id=lease.id,
        name=lease.name,
        owner=spec.user,
        state=state_of(lease),
        reason=lease.reason,
        reason_detail=lease.reason_detail,
        provider=spec.provider,
        region=spec.region,
        zone=spec.zone,
        size_gb=spec.size_gb if spec.has_volume else None,
        throughput_mibps=spec.throughput_mibps,
        volumes=tuple(
            VolumeView(
                provider_id=volume.provider_id,
                status=volume.status,
                billed=is_billed(volume),
                price_per_hour_usd=money(rate_now(volume)),
            )
            for volume in record.of_kind(ResourceKind.VOLUME)
            if is_billed(volume)
        ),
        object_store=spec.object_store,
        price_per_month_usd=money(price_per_hour(record, now) * HOURS_PER_MONTH),
        cost_so_far_usd=money(lease_cost(record, now)),
        created_at=lease.created_at,
        used_at=lease.used_at,
        used_by=_user(lease, ledger),
        expire_after_seconds=spec.expire_after_seconds,
        expires_at=expires_at(lease),
        waiting_for=lease.waiting_for,
        warnings=lease.warnings,
    )


def _user(cache: Lease, ledger: Ledger) -> CacheUserView | None:
    user = user_of(cache)
    if user is None:
        return None
    try:
        lease = ledger.load(user.lease_id).lease
    except LeaseNotFound:
        return None
    return CacheUserView(lease_id=lease.id, name=lease.name, state=lease.state)
