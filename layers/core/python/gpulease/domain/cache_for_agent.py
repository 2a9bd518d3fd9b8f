"""What the agent on a machine is told of its lease's cache. Pure; no secrets: keys of an object store it asks for."""

from collections.abc import Callable
from typing import Any

from gpulease.domain.cache import spec_of, volume_of
from gpulease.domain.lease import Lease
from gpulease.domain.record import LeaseRecord
from gpulease.domain.resource import Resource


def cache_for_agent(lease: Lease, cache: LeaseRecord) -> dict[str, Any]:
    """`volume` (None where the current attempt's machine has none: then the object store fills a directory), `mounts`,
    `docker`, `object_store` (place only).

    `volume.serials`: what the disk says of itself, any of them; `volume.devices`: where Linux shows it by its name.
    """
    spec, use = spec_of(cache.lease), lease.spec.cache
    attempt = lease.attempt
    taken = attempt is not None and attempt.volume is not None and attempt.volume.holder_id == cache.lease.id
    volume = volume_of(cache) if taken else None
    store = spec.object_store
    return {
        "id": cache.lease.id,
        "name": cache.lease.name,
        "volume": _volume(volume) if volume is not None else None,
        "mounts": list(use.mounts) if use is not None else [],
        "docker": use.docker if use is not None else False,
        "object_store": None
        if store is None
        else {"endpoint": store.endpoint, "region": store.region, "bucket": store.bucket, "prefix": store.prefix},
    }


def _volume(volume: Resource) -> dict[str, Any]:
    serials = _SERIALS[volume.provider](volume) if volume.provider in _SERIALS else [volume.provider_id]
    links = _LINKS.get(volume.provider, "{}")
    return {
        "provider": volume.provider,
        "provider_id": volume.provider_id,
        "size_gb": volume.size_gb,
        "serials": serials,
        "devices": [f"/dev/disk/by-id/{links.format(serial)}" for serial in serials],
    }


def _vultr(volume: Resource) -> list[str]:
    """The block's `mount_id`: region and the first 14 hex digits of its id (Vultr's API reference, its CSI driver)."""
    return [f"{volume.region}-{volume.provider_id.replace('-', '')[:14]}"]


def _aws(volume: Resource) -> list[str]:
    """NVMe serial number: the volume's id without the dash (AWS, "Identify the EBS device")."""
    return [volume.provider_id.replace("-", "")]


_SERIALS: dict[str, Callable[[Resource], list[str]]] = {"vultr": _vultr, "aws": _aws}
_LINKS = {"vultr": "virtio-{}", "aws": "nvme-Amazon_Elastic_Block_Store_{}"}
