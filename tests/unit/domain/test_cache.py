"""The rules of caches: whose, where, who uses them, and when one ends by itself."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from gpulease.domain.cache import (
    CHECK_USER_EVERY,
    CacheState,
    cache_id,
    cache_owner,
    expires_at,
    freed,
    has_left_all,
    is_free,
    is_usable,
    looked_free,
    may_remove,
    member_needs_cache,
    new_cache,
    next_check,
    offers_for,
    per_hour,
    spec_digest,
    state_of,
    taken,
    to_leave,
    uses_cache,
    warned,
    warns_at,
    with_expiry,
)
from gpulease.domain.cache_for_agent import cache_for_agent
from gpulease.domain.cache_spec import CacheSpec, CacheUse, ObjectStore
from gpulease.domain.lease import Attempt, Lease, LeaseState, Reason, VolumeAttachment
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.record import LeaseRecord
from gpulease.domain.release import next_to_release
from gpulease.domain.resource import Resource, ResourceKind, ResourceState
from gpulease.domain.spec import LeaseSpec
from gpulease.domain.sweep import named_by
from gpulease.domain.transitions import cancel, new_lease
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
CACHE = "c-aaaaaaaaaaaa"
MEMBER = "l-aaaaaaaaaaaa.instance.1"


def spec(**more: Any) -> CacheSpec:
    usual: dict[str, Any] = {"user": "ada", "size_gb": 50, "provider": "vultr", "account": "vultr", "region": "ewr"}
    return CacheSpec(**usual | more)


def usable(**more: Any) -> Lease:
    lease, _ = new_cache(spec(**more), "models", 1, NOW)
    ready = lease.model_copy(update={"state": LeaseState.RUNNING, "running_at": NOW, "version": 1})
    return ready.model_copy(update={"next_check_at": next_check(ready, NOW)})


def offer(region: str = "ewr", kind: PlanKind = PlanKind.VM, **more: Any) -> Offer:
    values = {"provider": "vultr", "plan": "p", "gpu_model": "A100", "gpu_count": 1, "gpu_memory_gib": 80.0, **more}
    return Offer(region=region, kind=kind, vcpus=8, memory_gib=64, disk_gb=100, price_per_hour_usd=Decimal(1), **values)


def in_place(each: Offer) -> bool:
    return each.region == "ewr" and each.kind is PlanKind.VM


# --- who and what ---


@given(st.text(), st.text(), st.integers(1, 99), st.text(), st.text(), st.integers(1, 99))
def test_ids_differ_wherever_user_name_or_generation_do(a: str, b: str, c: int, d: str, e: str, f: int) -> None:
    assert (cache_id(a, b, c) == cache_id(d, e, f)) == ((a, b, c) == (d, e, f))


def test_a_marker_of_a_cache_volume_names_its_record() -> None:
    identity = cache_id("ada", "models", 1)

    named = named_by(f"gpulease:d1abc:{identity}.volume.1", "d1abc")

    assert named is not None and (named.lease_id, named.kind) == (identity, ResourceKind.VOLUME)


def test_no_users_listing_shows_the_record() -> None:
    lease, _ = new_cache(spec(user="ada"), "models", 1, NOW)

    assert lease.owner == cache_owner("ada") != "ada"
    assert cache_owner("ada") != cache_owner("grace")


def test_what_has_no_volume_is_usable_at_once_and_the_rest_is_asked_for() -> None:
    store = ObjectStore(bucket="my-models")
    without, _ = new_cache(spec(provider="", account="", region="", object_store=store), "hf", 1, NOW)
    with_volume, _ = new_cache(spec(), "models", 1, NOW)

    assert is_usable(without) and without.next_check_at == NOW + 12 * DAY
    assert not is_usable(with_volume) and with_volume.state is LeaseState.REQUESTED


def test_the_digest_tells_what_was_asked_for_apart() -> None:
    assert spec_digest(spec()) == spec_digest(spec())
    assert len({spec_digest(spec(**change)) for change in ({}, {"size_gb": 51}, {"region": "ord"})}) == 3


@pytest.mark.parametrize(
    ("state", "members", "word"),
    [
        (LeaseState.REQUESTED, (), CacheState.CREATING),
        (LeaseState.PROVISIONING, (), CacheState.CREATING),
        (LeaseState.RUNNING, (), CacheState.AVAILABLE),
        (LeaseState.RUNNING, (MEMBER,), CacheState.IN_USE),
        (LeaseState.RELEASING, (), CacheState.REMOVING),
        (LeaseState.RELEASED, (), CacheState.REMOVED),
    ],
)
def test_each_state_has_a_word_and_only_what_is_free_may_be_removed(
    state: LeaseState, members: tuple[str, ...], word: CacheState
) -> None:
    lease = usable().model_copy(update={"state": state, "members": members})

    assert state_of(lease) is word
    assert may_remove(lease) == (word in (CacheState.CREATING, CacheState.AVAILABLE))


def test_a_month_has_730_hours() -> None:
    assert per_hour(Decimal(730)) == 1


# --- offers ---


def test_a_volume_ties_to_its_place_and_an_object_store_does_not() -> None:
    near, far, metal = offer(), offer("ams"), offer(kind=PlanKind.BARE_METAL)
    other = offer(provider="aws")
    store = ObjectStore(bucket="my-models")
    both, far_only = spec(object_store=store), spec(provider="", region="", object_store=store)

    assert offers_for(spec(), [far, metal, near, other], in_place) == [near]
    assert offers_for(both, [far, metal, near, other], in_place) == [near, far, metal, other]
    assert offers_for(far_only, [far, near], in_place) == [far, near]


# --- who uses it ---


def test_taking_and_freeing_count_as_use_and_take_a_warning_off() -> None:
    told = warned(usable(), NOW + 12 * DAY)
    assert told.warnings and told.expiry_warned_at is not None

    used = taken(told, MEMBER, NOW + 13 * DAY)
    free = freed(used, NOW + 20 * DAY)

    assert used.members == (MEMBER,) and used.warnings == () and used.expiry_warned_at is None
    assert used.next_check_at == NOW + 13 * DAY + CHECK_USER_EVERY
    assert free.members == () and expires_at(free) == NOW + 34 * DAY


def with_machine(
    state: ResourceState | None, *, lease_state: LeaseState = LeaseState.PROVISIONING, **volume: Any
) -> LeaseRecord:
    lease, _ = new_lease(lease_id="l-aaaaaaaaaaaa", owner="ada", name="box", spec=LeaseSpec(), now=NOW)
    attempt = Attempt(
        number=1,
        offer=offer(),
        started_at=NOW,
        ready_deadline=NOW + timedelta(minutes=10),
        volume=VolumeAttachment(holder_id=CACHE, **volume),
    )
    lease = lease.model_copy(update={"state": lease_state, "attempts": (attempt,), "version": 1})
    if state is None:
        return LeaseRecord(lease)
    machine = Resource(
        id=MEMBER,
        lease_id=lease.id,
        attempt=1,
        kind=ResourceKind.INSTANCE,
        provider="vultr",
        account="vultr",
        region="ewr",
        marker="m",
        state=state,
        intended_at=NOW,
        released_at=NOW if state is ResourceState.RELEASED else None,
    )
    return LeaseRecord(lease, (machine,))


@pytest.mark.parametrize(
    ("record", "uses"),
    [
        (with_machine(None), True),
        (with_machine(None, lease_state=LeaseState.RELEASING), False),
        (with_machine(ResourceState.INTENDED, lease_state=LeaseState.RELEASING), True),
        (with_machine(ResourceState.HELD, lease_state=LeaseState.RUNNING), True),
        (with_machine(ResourceState.RELEASING, lease_state=LeaseState.RELEASING), True),
        (with_machine(ResourceState.RELEASED, lease_state=LeaseState.RELEASING), False),
        (with_machine(ResourceState.HELD, left=True), False),
    ],
)
def test_a_machine_uses_its_cache_until_it_is_proven_gone(record: LeaseRecord, uses: bool) -> None:
    (attempt,) = record.lease.attempts

    assert uses_cache(record, attempt) is uses
    assert (to_leave(record) == []) is (uses or has_left_all(record.lease))


def test_a_volume_that_may_be_attached_is_needed_until_it_is_seen_free() -> None:
    never_asked = with_machine(ResourceState.RELEASED, lease_state=LeaseState.RELEASING)
    asked = with_machine(ResourceState.RELEASED, lease_state=LeaseState.RELEASING, ever_accepted=True)

    assert not member_needs_cache(never_asked, CACHE, MEMBER)
    assert member_needs_cache(asked, CACHE, MEMBER)
    assert not member_needs_cache(asked, "c-bbbbbbbbbbbb", MEMBER)
    assert not member_needs_cache(asked, CACHE, "l-aaaaaaaaaaaa.instance.2")


def test_leaving_is_the_next_thing_as_soon_as_the_machine_is_gone_and_when_it_is_due() -> None:
    asked = with_machine(ResourceState.RELEASED, lease_state=LeaseState.RELEASING, ever_accepted=True)
    later = with_machine(
        ResourceState.RELEASED,
        lease_state=LeaseState.RELEASING,
        ever_accepted=True,
        next_try_at=NOW + timedelta(seconds=30),
    )

    assert next_to_release(asked, NOW).cache
    assert not next_to_release(later, NOW).cache and next_to_release(later, NOW).wait_seconds == 30
    assert not next_to_release(with_machine(ResourceState.RELEASED), NOW).cache, "it was never asked for"


def test_two_looks_at_a_free_volume_are_needed() -> None:
    once = looked_free(VolumeAttachment(holder_id=CACHE), NOW)

    assert not is_free(once) and is_free(looked_free(once, NOW))
    assert once.next_try_at is not None and once.next_try_at > NOW


# --- expiry ---


def test_an_unused_cache_is_warned_of_two_days_before_it_ends() -> None:
    lease = usable()

    assert (warns_at(lease), expires_at(lease)) == (NOW + 12 * DAY, NOW + 14 * DAY)
    told = warned(lease, NOW + 12 * DAY)
    assert (warns_at(told), expires_at(told), told.next_check_at) == (None, NOW + 14 * DAY, NOW + 14 * DAY)
    assert "2026-01-19 12:00 UTC" in told.warnings[0]


def test_a_short_expiry_is_warned_of_at_its_half() -> None:
    assert warns_at(usable(expire_after_seconds=7200)) == NOW + timedelta(hours=1)


def test_a_warning_that_comes_late_puts_the_end_off() -> None:
    told = warned(usable(), NOW + 30 * DAY)

    assert expires_at(told) == NOW + 32 * DAY


@pytest.mark.parametrize("lease", [usable(expire_after_seconds=None), taken(usable(), MEMBER, NOW)])
def test_what_is_in_use_or_never_expires_has_no_end(lease: Lease) -> None:
    assert expires_at(lease) is None and warns_at(lease) is None


@given(
    seconds=st.none() | st.integers(3600, 366 * 86400),
    later=st.integers(0, 400 * 86400),
    told=st.booleans(),
)
def test_nothing_ends_without_having_been_warned_of_for_as_long_as_it_should(
    seconds: int | None, later: int, told: bool
) -> None:
    lease = usable(expire_after_seconds=86400)
    if told:
        lease = warned(lease, NOW + timedelta(hours=12))
    changed = with_expiry(lease, seconds, NOW + timedelta(seconds=later))

    assert changed.warnings == () and changed.expiry_warned_at is None
    warn = warns_at(changed)
    if seconds is None:
        assert warn is None and changed.next_check_at is None
        return
    assert warn is not None and changed.next_check_at == warn
    noticed = max(warn, NOW + timedelta(seconds=later))
    end = expires_at(warned(changed, noticed))
    assert end is not None and end - noticed >= min(timedelta(hours=48), timedelta(seconds=seconds / 2))


def test_a_cache_on_its_way_out_is_not_looked_at_for_its_expiry() -> None:
    ending = cancel(LeaseRecord(usable()), now=NOW, reason=Reason.USER).lease

    assert ending is not None and expires_at(ending) is None
    assert with_expiry(ending, 3600, NOW).next_check_at == ending.next_check_at


# --- for the agent ---


def volume(provider: str, provider_id: str) -> Resource:
    return Resource(
        id=f"{CACHE}.volume.1",
        lease_id=CACHE,
        attempt=1,
        kind=ResourceKind.VOLUME,
        provider=provider,
        account=provider,
        region="ewr",
        marker="m",
        state=ResourceState.HELD,
        intended_at=NOW,
        provider_id=provider_id,
        size_gb=50,
    )


@pytest.mark.parametrize(
    ("provider", "provider_id", "device"),
    [
        ("vultr", "ec6d1ecc-aa70-4f18-8edd-887a258b1b45", "virtio-ewr-ec6d1eccaa704f"),
        ("aws", "vol-0123456789abcdef0", "nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"),
    ],
)
def test_the_agent_is_told_how_to_find_the_disk(provider: str, provider_id: str, device: str) -> None:
    use = CacheUse(name="models", mounts=("/root/.cache",), docker=True)
    holder = usable(provider=provider, object_store=ObjectStore(bucket="my-models", credentials="models-s3"))
    record = with_machine(None)
    attempt = record.lease.attempts[0].model_copy(update={"volume": VolumeAttachment(holder_id=holder.id)})
    lease = record.lease.model_copy(update={"spec": LeaseSpec(cache=use), "attempts": (attempt,)})

    told = cache_for_agent(lease, LeaseRecord(holder, (volume(provider, provider_id),)))

    assert told["volume"]["devices"] == [f"/dev/disk/by-id/{device}"]
    assert told["mounts"] == ["/root/.cache"] and told["docker"] is True
    assert told["object_store"] == {"endpoint": "", "region": "us-east-1", "bucket": "my-models", "prefix": ""}
    assert "models-s3" not in str(told), "the name of a secret is not for the machine"


def test_a_machine_elsewhere_is_told_of_the_object_store_alone() -> None:
    holder = usable(object_store=ObjectStore(bucket="my-models"))
    lease = with_machine(None).lease
    elsewhere = lease.model_copy(update={"attempts": (lease.attempts[0].model_copy(update={"volume": None}),)})

    told = cache_for_agent(elsewhere, LeaseRecord(holder, (volume("vultr", "x" * 36),)))

    assert told["volume"] is None and told["object_store"]["bucket"] == "my-models"


@pytest.mark.parametrize(
    "path",
    [
        "/etc",
        "/etc/ssl",
        "/usr",
        "/usr/lib/x",
        "/lib",
        "/root",
        "/root/.ssh",
        "/home",
        "/var",
        "/var/lib/gpulease/cache",
    ],
)
def test_directories_without_which_a_machine_does_not_work_are_never_replaced(path: str) -> None:
    with pytest.raises(ValidationError, match="system's own"):
        CacheUse(name="models", mounts=(path,))


@pytest.mark.parametrize(
    "path", ["/root/.cache", "/home/me/models", "/usr/local/share/models", "/var/lib/models", "/data"]
)
def test_what_lies_in_them_can_be_kept(path: str) -> None:
    assert CacheUse(name="models", mounts=(path,)).mounts == (path,)
