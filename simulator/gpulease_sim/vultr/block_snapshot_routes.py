"""Routes of stored copies of blocks: they outlive their block, and are billed by its size until deleted."""

from datetime import UTC, datetime
from decimal import Decimal

from gpulease_sim.vultr.account import Account
from gpulease_sim.vultr.api import ApiError, Call, Json, NotFound, Reply, Routes, page, text_field
from gpulease_sim.vultr.block_routes import MISSING, find_block
from gpulease_sim.vultr.charges import charge
from gpulease_sim.vultr.storage import BlockSnapshot

GIGABYTE = 1024**3
GB_MONTHLY_USD = Decimal("0.05")
"""As for snapshots of machines; nothing is public for those of blocks."""
COMPLETE_SECONDS = (30.0, 600.0)


def add_routes(routes: Routes) -> None:
    """Register everything of this module."""
    routes.add("GET", "/blocks/snapshots", _list)
    routes.add("POST", "/blocks/snapshots", _create)
    routes.add("GET", "/blocks/snapshots/{}", _get)
    routes.add("PUT", "/blocks/snapshots/{}", _update)
    routes.add("DELETE", "/blocks/snapshots/{}", _delete)


def _moment(seconds: float) -> str:
    """These objects alone write their dates so."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _wire(snapshot: BlockSnapshot, now: float) -> Json:
    return {
        "id": snapshot.id,
        "block_id": snapshot.block_id,
        "description": snapshot.description,
        "state": "COMPLETE" if now >= snapshot.complete_at else "PENDING",
        "added_at": _moment(snapshot.created),
        "updated_at": _moment(snapshot.modified),
        "size": snapshot.size_gb * GIGABYTE,
    }


def _find(account: Account, snapshot_id: str) -> BlockSnapshot:
    found = account.block_snapshots.get(snapshot_id)
    if found is None:
        raise NotFound("block_snapshot", MISSING)
    return found


def _list(account: Account, call: Call, ids: list[str]) -> Reply:
    return page(account, call, "snapshots", account.block_snapshots.values(), lambda each: _wire(each, call.now))


def _create(account: Account, call: Call, ids: list[str]) -> Reply:
    body, now = call.json(), call.now
    block = find_block(account, text_field(body, "block_id"), now)
    if now < block.active_at:
        raise ApiError(400, "block_pending")
    number = account.next_number()
    draws = account.draws(number)
    snapshot = BlockSnapshot(
        id=draws.identifier("id"),
        number=number,
        block_id=block.id,
        description=text_field(body, "description"),
        size_gb=block.size_gb,
        created=now,
        modified=now,
        complete_at=now + draws.between(COMPLETE_SECONDS, "complete"),
    )
    account.block_snapshots[snapshot.id] = snapshot
    account.touch("block_snapshots", snapshot.id)
    call.created.append(snapshot.id)
    monthly, hours = GB_MONTHLY_USD * block.size_gb, account.settings.block_month_hours
    charge(account, call, "block_snapshot", snapshot.id, snapshot.description, block.region, monthly, hours)
    return Reply(201, {"snapshot": _wire(snapshot, now)})


def _get(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(200, {"snapshot": _wire(_find(account, ids[0]), call.now)})


def _update(account: Account, call: Call, ids: list[str]) -> Reply:
    snapshot = _find(account, ids[0])
    snapshot.description = text_field(call.json(), "description", snapshot.description)
    snapshot.modified = call.now
    account.book.entry(snapshot.id).label = snapshot.description
    account.touch("block_snapshots", snapshot.id)
    account.touch("book", snapshot.id)
    return Reply(204)


def _delete(account: Account, call: Call, ids: list[str]) -> Reply:
    snapshot = _find(account, ids[0])
    del account.block_snapshots[snapshot.id]
    account.touch("block_snapshots", snapshot.id)
    account.close_entry(snapshot.id, call.now)
    return Reply(204)
