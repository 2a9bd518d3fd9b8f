"""Routes of block storage: disks of a region that one VM at a time has, billed attached or not.

Attach and detach are accepted at once and take effect later. Conflicts with the machine's state are 500 with a text,
as for machines; the others are 400.
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
    timestamp,
)
from gpulease_sim.vultr.book import cost_of
from gpulease_sim.vultr.catalog import REGIONS
from gpulease_sim.vultr.charges import charge, recharge
from gpulease_sim.vultr.create import region_of
from gpulease_sim.vultr.machines import NEVER, Machine
from gpulease_sim.vultr.storage import BLOCK_KINDS, HIGH_PERF, STORAGE_OPT, Block, Hold

MISSING = 400
"""The reference lists 400 and 403 for a bad id, not 404."""
CONFLICT = 400
MACHINE_CONFLICT = 500


def add_routes(routes: Routes) -> None:
    """Register everything of this module."""
    routes.add("GET", "/blocks", _list)
    routes.add("POST", "/blocks", _create)
    routes.add("GET", "/blocks/{}", _get)
    routes.add("PATCH", "/blocks/{}", _update)
    routes.add("DELETE", "/blocks/{}", _delete)
    routes.add("POST", "/blocks/{}/attach", _attach)
    routes.add("POST", "/blocks/{}/detach", _detach)


def find_block(account: Account, block_id: str, now: float) -> Block:
    """The block a call means; raises NotFound."""
    block = account.blocks.get(block_id)
    if block is None or now >= block.gone_at:
        raise NotFound("block", MISSING)
    return block


def remove(account: Account, block: Block, now: float, gone_at: float) -> None:
    """The block ends then, and with it what it costs; whoever has it attached loses it."""
    hold = block.hold(now)
    if hold is not None:
        hold.removed_at = min(hold.removed_at, gone_at)
    block.gone_at = gone_at
    account.close_entry(block.id, gone_at)
    account.block_changed(block)


def wire(account: Account, block: Block, now: float) -> Json:
    """A block as the API shows it."""
    instance_id = block.shown_instance(now)
    machine = account.machines.get(instance_id)
    return {
        "id": block.id,
        "date_created": timestamp(block.created),
        "cost": float(block.monthly_usd),
        "pending_charges": float(round(cost_of(account.book.entry(block.id), now), 2)),
        "status": "active" if now >= block.active_at else "pending",
        "size_gb": block.size_gb,
        "region": block.region,
        "attached_to_instance": instance_id,
        "attached_to_instance_ip": machine.shown_address(now) if machine else "",
        "attached_to_instance_label": machine.label if machine else "",
        "label": block.label,
        "mount_id": block.mount_id,
        "block_type": block.block_type,
        "os_id": block.os_id,
        "snapshot_id": block.snapshot_id,
        "bootable": block.bootable,
    }


def _list(account: Account, call: Call, ids: list[str]) -> Reply:
    shown = [each for each in account.blocks.values() if each.listed_at <= call.now < each.gone_at]
    return page(account, call, "blocks", shown, lambda each: wire(account, each, call.now))


def _get(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(200, {"block": wire(account, find_block(account, ids[0], call.now), call.now)})


def _create(account: Account, call: Call, ids: list[str]) -> Reply:
    body, settings, now = call.json(), account.settings, call.now
    region = region_of(body)
    offered = REGIONS[region].wire()["options"]
    default = HIGH_PERF if BLOCK_KINDS[HIGH_PERF].option in offered else STORAGE_OPT
    block_type = text_field(body, "block_type", default)
    snapshot_id = text_field(body, "snapshot_id")
    if snapshot_id and snapshot_id not in account.block_snapshots:
        raise NotFound("block_snapshot")
    size_gb = int_field(body, "size_gb")
    if size_gb == 0:
        raise ApiError(400, "missing_field", name="size_gb")
    if block_type not in BLOCK_KINDS:
        raise ApiError(400, "block_type")
    if BLOCK_KINDS[block_type].option not in offered:
        raise ApiError(400, "block_region")
    _check_size(block_type, size_gb)
    if snapshot_id and size_gb < account.block_snapshots[snapshot_id].size_gb:
        raise ApiError(400, "bad_field", name="size_gb")
    if settings.block_limit is not None and len(account.blocks) >= settings.block_limit:
        raise ApiError(400, "block_limit")
    if f"{region}/{block_type}" in settings.blocks_sold_out:
        raise ApiError(settings.no_capacity_status, "block_sold_out")
    number = account.next_number()
    draws, behaviour = account.draws(number), settings.block
    block = Block(
        id=draws.identifier("id"),
        number=number,
        region=region,
        label=text_field(body, "label"),
        size_gb=size_gb,
        block_type=block_type,
        created=now,
        active_at=now + draws.between(behaviour.active_seconds, "active"),
        listed_at=now + draws.between(behaviour.list_lag_seconds, "list-lag"),
        behaviour=behaviour,
        seed=account.seed,
        os_id=int_field(body, "os_id"),
        snapshot_id=snapshot_id,
        bootable=bool(body.get("bootable")),
    )
    account.blocks[block.id] = block
    account.touch("blocks", block.id)
    call.created.append(block.id)
    charge(account, call, "block", block.id, block.label, region, block.monthly_usd, settings.block_month_hours)
    account.book.entry(block.id).active_from = block.active_at
    return Reply(202, {"block": wire(account, block, now)})


def _check_size(block_type: str, size_gb: int) -> None:
    kind = BLOCK_KINDS[block_type]
    if not kind.smallest_gb <= size_gb <= kind.largest_gb:
        raise ApiError(400, "block_size", low=str(kind.smallest_gb), high=str(kind.largest_gb))


def _update(account: Account, call: Call, ids: list[str]) -> Reply:
    block, body = find_block(account, ids[0], call.now), call.json()
    label, size_gb = text_field(body, "label", block.label), int_field(body, "size_gb", block.size_gb)
    if (label, size_gb) == (block.label, block.size_gb):
        raise ApiError(400, "nothing_to_change")
    if size_gb < block.size_gb:
        raise ApiError(400, "bad_field", name="size_gb")
    _check_size(block.block_type, size_gb)
    block.label = account.book.entry(block.id).label = label
    if size_gb > block.size_gb:
        block.size_gb = size_gb
        recharge(account, call, block.id, block.monthly_usd, account.settings.block_month_hours)
    account.touch("blocks", block.id)
    account.touch("book", block.id)
    return Reply(204)


def _delete(account: Account, call: Call, ids: list[str]) -> Reply:
    block, now = find_block(account, ids[0], call.now), call.now
    if block.hold(now) is not None and not account.settings.block_delete_detaches:
        raise ApiError(CONFLICT, "block_in_use")
    if block.gone_at == NEVER:
        remove(account, block, now, now + block.draws.between(block.behaviour.delete_seconds, "delete"))
    return Reply(204)


def _attach(account: Account, call: Call, ids: list[str]) -> Reply:
    block, body, now = find_block(account, ids[0], call.now), call.json(), call.now
    machine = _machine_for(account, call, block, text_field(body, "instance_id"))
    hold = block.hold(now)
    if hold is not None:
        raise ApiError(CONFLICT, "block_here" if hold.instance_id == machine.id else "block_elsewhere")
    if now < block.active_at or block.gone_at != NEVER:
        raise ApiError(CONFLICT, "block_pending")
    held = sum(1 for each in account.blocks.values() if (its := each.hold(now)) and its.instance_id == machine.id)
    if held >= account.settings.blocks_per_instance:
        raise ApiError(CONFLICT, "block_too_many")
    _must_be_still(machine, now)
    block.attach(machine.id, machine.gone_at, now)
    account.block_changed(block)
    _restart_unless_live(account, machine, body, now)
    return Reply(204)


def _machine_for(account: Account, call: Call, block: Block, instance_id: str) -> Machine:
    found = account.machines.get(instance_id)
    if found is not None and found.metal and not found.is_gone(call.now):
        raise ApiError(CONFLICT, "block_metal")
    machine = account.machine(call, instance_id, metal=False)
    if machine.region != block.region:
        raise ApiError(CONFLICT, "block_other_region")
    return machine


def _must_be_still(machine: Machine, now: float) -> None:
    if machine.is_destroying(now):
        raise ApiError(MACHINE_CONFLICT, "destroying")
    if machine.moment(now).status != "active":
        raise ApiError(MACHINE_CONFLICT, "block_inactive")
    if machine.is_locked(now):
        raise ApiError(MACHINE_CONFLICT, "block_locked")


def _restart_unless_live(account: Account, machine: Machine, body: Json, now: float) -> None:
    if not body.get("live") and machine.moment(now).power == "running":
        machine.reboot(now)
        account.machine_changed(machine)


def _detach(account: Account, call: Call, ids: list[str]) -> Reply:
    block, now = find_block(account, ids[0], call.now), call.now
    hold = block.hold(now)
    if hold is None:
        raise ApiError(CONFLICT, "block_detached")
    machine = account.machines.get(hold.instance_id)
    if machine is not None and not machine.is_gone(now):
        _detach_from(account, call, block, hold, machine)
    else:
        block.let_go(hold, now)
    account.block_changed(block)
    return Reply(204)


def _detach_from(account: Account, call: Call, block: Block, hold: Hold, machine: Machine) -> None:
    _must_be_still(machine, call.now)
    if hold.removed_at != NEVER:  # on its way already, by an earlier call
        return
    accepted = block.detach(hold, call.now)
    account.block_changed(block)
    if not accepted:
        raise ApiError(CONFLICT, "block_stuck")
    _restart_unless_live(account, machine, call.json(), call.now)
