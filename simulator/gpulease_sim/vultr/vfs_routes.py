"""Routes of the file systems that many VMs of a region mount at once (virtiofs), billed by size until deleted.

Their objects are not wrapped in a key, and their statuses are 404, 409 and 422 where other routes answer 400 and 500.
"""

from gpulease_sim.vultr.account import Account
from gpulease_sim.vultr.api import (
    ApiError,
    Call,
    Json,
    NotFound,
    Reply,
    Routes,
    int_field,
    page,
    text_field,
    texts_field,
    timestamp,
)
from gpulease_sim.vultr.book import cost_of
from gpulease_sim.vultr.catalog import REGIONS
from gpulease_sim.vultr.charges import charge, recharge
from gpulease_sim.vultr.create import checked_tags
from gpulease_sim.vultr.storage import FileSystem, VfsAttachment

GIGABYTE = 1024**3
DISK_TYPES = ("nvme",)
KEPT_AFTER_CLOSING_SECONDS = 3600
"""So long a second delete is told that it was closed, and later that it does not exist."""


def add_routes(routes: Routes) -> None:
    """Register everything of this module."""
    routes.add("GET", "/vfs/regions", _regions)
    routes.add("GET", "/vfs", _list)
    routes.add("POST", "/vfs", _create)
    routes.add("GET", "/vfs/{}", _get)
    routes.add("PUT", "/vfs/{}", _update)
    routes.add("DELETE", "/vfs/{}", _delete)
    routes.add("GET", "/vfs/{}/attachments", _list_attachments)
    routes.add("GET", "/vfs/{}/attachments/{}", _get_attachment)
    routes.add("PUT", "/vfs/{}/attachments/{}", _attach)
    routes.add("DELETE", "/vfs/{}/attachments/{}", _detach)


def _offered(region: str) -> bool:
    return region in REGIONS and REGIONS[region].block_nvme


def _regions(account: Account, call: Call, ids: list[str]) -> Reply:
    shown = [
        {
            "id": each.id,
            "description": each.city,
            "continent": each.continent,
            "country": each.country,
            "min_size_gb": account.settings.vfs_smallest_gb,
            "price_per_gb": float(account.settings.vfs_gb_monthly_usd),
        }
        for each in REGIONS.values()
        if _offered(each.id)
    ]
    return Reply(200, {"regions": shown})


def _find(account: Account, vfs_id: str, now: float) -> FileSystem:
    vfs = account.file_systems.get(vfs_id)
    if vfs is None or now >= vfs.closed_at:
        raise NotFound("vfs")
    return vfs


def _wire(account: Account, vfs: FileSystem, now: float) -> Json:
    monthly = account.settings.vfs_gb_monthly_usd * vfs.size_gb
    charges = round(cost_of(account.book.entry(vfs.id), now), 2)
    return {
        "id": vfs.id,
        "region": vfs.region,
        "date_created": timestamp(vfs.created),
        "status": "active" if now >= vfs.active_at else "pending",
        "label": vfs.label,
        "tags": list(vfs.tags),
        "disk_type": vfs.disk_type,
        "storage_size": {"bytes": vfs.size_gb * GIGABYTE, "gb": vfs.size_gb},
        "storage_used": {"bytes": 0, "gb": 0},
        "billing": {"charges": float(charges), "monthly": float(monthly)},
    }


def _list(account: Account, call: Call, ids: list[str]) -> Reply:
    shown = [each for each in account.file_systems.values() if call.now < each.closed_at]
    return page(account, call, "vfs", shown, lambda each: _wire(account, each, call.now))


def _get(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(200, _wire(account, _find(account, ids[0], call.now), call.now))


def _size_of(account: Account, body: Json) -> int:
    size = body.get("storage_size")
    gb = int_field(size, "gb") if isinstance(size, dict) else 0
    if gb < account.settings.vfs_smallest_gb:
        raise ApiError(422, "vfs_size")
    return gb


def _create(account: Account, call: Call, ids: list[str]) -> Reply:
    body = call.json()
    region = text_field(body, "region")
    if not _offered(region):
        raise ApiError(422, "vfs_region")
    if not text_field(body, "label"):
        raise ApiError(422, "missing_field", name="label")
    disk_type = text_field(body, "disk_type", DISK_TYPES[0])
    if disk_type not in DISK_TYPES:
        raise ApiError(422, "bad_field", name="disk_type")
    size_gb = _size_of(account, body)
    number = account.next_number()
    draws, settings = account.draws(number), account.settings
    vfs = FileSystem(
        id=draws.identifier("id"),
        number=number,
        region=region,
        label=text_field(body, "label"),
        tags=checked_tags(texts_field(body, "tags") or ()),
        disk_type=disk_type,
        size_gb=size_gb,
        created=call.now,
        active_at=call.now + draws.between(settings.vfs_active_seconds, "active"),
    )
    account.file_systems[vfs.id] = vfs
    account.touch("file_systems", vfs.id)
    call.created.append(vfs.id)
    monthly = settings.vfs_gb_monthly_usd * size_gb
    charge(account, call, "vfs", vfs.id, vfs.label, region, monthly, settings.block_month_hours, vfs.tags)
    account.book.entry(vfs.id).active_from = vfs.active_at
    return Reply(201, _wire(account, vfs, call.now))


def _update(account: Account, call: Call, ids: list[str]) -> Reply:
    vfs, body = _find(account, ids[0], call.now), call.json()
    size_gb = _size_of(account, body) if body.get("storage_size") is not None else vfs.size_gb
    if size_gb < vfs.size_gb:
        raise ApiError(422, "vfs_size")
    vfs.label = account.book.entry(vfs.id).label = text_field(body, "label", vfs.label)
    if size_gb > vfs.size_gb:
        vfs.size_gb = size_gb
        monthly = account.settings.vfs_gb_monthly_usd * size_gb
        recharge(account, call, vfs.id, monthly, account.settings.block_month_hours)
    account.touch("file_systems", vfs.id)
    account.touch("book", vfs.id)
    return Reply(200, _wire(account, vfs, call.now))


def _delete(account: Account, call: Call, ids: list[str]) -> Reply:
    known = account.file_systems.get(ids[0])
    if known is not None and known.closed_at <= call.now < known.closed_at + KEPT_AFTER_CLOSING_SECONDS:
        raise ApiError(409, "vfs_closed")
    vfs = _find(account, ids[0], call.now)
    if _present(account, vfs, call.now):
        raise ApiError(409, "vfs_in_use")
    vfs.closed_at = call.now
    account.touch("file_systems", vfs.id)
    account.close_entry(vfs.id, call.now)
    return Reply(204)


# Attachments: by machine, and gone with it


def _present(account: Account, vfs: FileSystem, now: float) -> list[VfsAttachment]:
    """Those whose machine still exists."""
    alive = (account.machines.get(each.instance_id) for each in vfs.attachments)
    return [
        each
        for each, machine in zip(vfs.attachments, alive, strict=True)
        if machine is not None and not machine.is_gone(now)
    ]


def _attachment_wire(vfs: FileSystem, each: VfsAttachment) -> Json:
    return {
        "vfs_id": vfs.id,
        "target_id": each.instance_id,
        "target_label": each.instance_label,
        "mount_tag": each.mount_tag,
        "state": "attached",
    }


def _attachment(account: Account, vfs: FileSystem, instance_id: str, now: float) -> VfsAttachment:
    found = next((each for each in _present(account, vfs, now) if each.instance_id == instance_id), None)
    if found is None:
        raise NotFound("vfs_attachment")
    return found


def _list_attachments(account: Account, call: Call, ids: list[str]) -> Reply:
    vfs = _find(account, ids[0], call.now)
    return Reply(200, {"attachments": [_attachment_wire(vfs, each) for each in _present(account, vfs, call.now)]})


def _get_attachment(account: Account, call: Call, ids: list[str]) -> Reply:
    vfs = _find(account, ids[0], call.now)
    return Reply(200, _attachment_wire(vfs, _attachment(account, vfs, ids[1], call.now)))


def _attach(account: Account, call: Call, ids: list[str]) -> Reply:
    vfs, now = _find(account, ids[0], call.now), call.now
    found = account.machines.get(ids[1])
    if found is not None and found.metal and not found.is_gone(now):
        raise ApiError(422, "vfs_target")
    machine = account.machine(call, ids[1], metal=False)
    if machine.region != vfs.region:
        raise ApiError(422, "vfs_target")
    if now < vfs.active_at or machine.is_pending(now) or machine.is_destroying(now):
        raise ApiError(409, "vfs_pending")
    present = _present(account, vfs, now)
    if any(each.instance_id == machine.id for each in present):
        raise ApiError(409, "vfs_attached")
    made = VfsAttachment(machine.id, machine.label, vfs.next_mount_tag)
    vfs.next_mount_tag += 1
    vfs.attachments = [*present, made]
    account.touch("file_systems", vfs.id)
    return Reply(201, _attachment_wire(vfs, made))


def _detach(account: Account, call: Call, ids: list[str]) -> Reply:
    vfs = _find(account, ids[0], call.now)
    found = _attachment(account, vfs, ids[1], call.now)
    vfs.attachments = [each for each in _present(account, vfs, call.now) if each is not found]
    account.touch("file_systems", vfs.id)
    return Reply(204)
