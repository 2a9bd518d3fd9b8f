"""Routes of the small things of an account: SSH keys, startup scripts, reserved addresses, snapshots."""

import base64
import binascii
from decimal import Decimal
from typing import TypeVar

from gpulease_sim.vultr.account import Account, ReservedIp, Snapshot, SshKey, StartupScript
from gpulease_sim.vultr.api import ApiError, Call, Json, NotFound, Reply, Routes, page, text_field, timestamp
from gpulease_sim.vultr.catalog import VM_CAP_HOURS
from gpulease_sim.vultr.charges import charge
from gpulease_sim.vultr.create import region_of

SSH_KEY_NAME_LENGTH = 128
"""Longer names are cut without an error."""
MAX_SCRIPT_BYTES = 64 * 1024
RESERVED_IP_MONTHLY_USD = Decimal(3)
SNAPSHOT_GB_MONTHLY_USD = Decimal("0.05")
SNAPSHOT_SECONDS = (60.0, 1800.0)
GIGABYTE = 1024**3

T = TypeVar("T")


def add_routes(routes: Routes) -> None:
    """Register everything of this module."""
    routes.add("GET", "/ssh-keys", _list_keys)
    routes.add("POST", "/ssh-keys", _create_key)
    routes.add("GET", "/ssh-keys/{}", _get_key)
    routes.add("PATCH", "/ssh-keys/{}", _update_key)
    routes.add("DELETE", "/ssh-keys/{}", _delete_key)
    routes.add("GET", "/startup-scripts", _list_scripts)
    routes.add("POST", "/startup-scripts", _create_script)
    routes.add("GET", "/startup-scripts/{}", _get_script)
    routes.add("PATCH", "/startup-scripts/{}", _update_script)
    routes.add("DELETE", "/startup-scripts/{}", _delete_script)
    routes.add("GET", "/reserved-ips", _list_ips)
    routes.add("POST", "/reserved-ips", _create_ip)
    routes.add("GET", "/reserved-ips/{}", _get_ip)
    routes.add("PATCH", "/reserved-ips/{}", _update_ip)
    routes.add("DELETE", "/reserved-ips/{}", _delete_ip)
    routes.add("POST", "/reserved-ips/{}/attach", _attach_ip)
    routes.add("POST", "/reserved-ips/{}/detach", _detach_ip)
    routes.add("GET", "/snapshots", _list_snapshots)
    routes.add("POST", "/snapshots", _create_snapshot)
    routes.add("GET", "/snapshots/{}", _get_snapshot)
    routes.add("PUT", "/snapshots/{}", _update_snapshot)
    routes.add("DELETE", "/snapshots/{}", _delete_snapshot)


def _find(table: dict[str, T], object_id: str, key: str) -> T:
    found = table.get(object_id)
    if found is None:
        raise NotFound(key)
    return found


# SSH keys


def _key_wire(key: SshKey) -> Json:
    return {"id": key.id, "date_created": timestamp(key.created), "name": key.name, "ssh_key": key.ssh_key}


def _list_keys(account: Account, call: Call, ids: list[str]) -> Reply:
    return page(account, call, "ssh_keys", account.ssh_keys.values(), _key_wire)


def _create_key(account: Account, call: Call, ids: list[str]) -> Reply:
    body = call.json()
    for name in ("name", "ssh_key"):
        if not text_field(body, name):
            raise ApiError(400, "missing_field", name=name)
    number = account.next_number()
    name = text_field(body, "name")[:SSH_KEY_NAME_LENGTH]
    key = SshKey(account.draws(number).identifier("id"), number, name, text_field(body, "ssh_key"), call.now)
    account.ssh_keys[key.id] = key
    account.touch("ssh_keys", key.id)
    call.created.append(key.id)
    return Reply(201, {"ssh_key": _key_wire(key)})


def _get_key(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(200, {"ssh_key": _key_wire(_find(account.ssh_keys, ids[0], "ssh_key"))})


def _update_key(account: Account, call: Call, ids: list[str]) -> Reply:
    key, body = _find(account.ssh_keys, ids[0], "ssh_key"), call.json()
    key.name = text_field(body, "name", key.name)[:SSH_KEY_NAME_LENGTH]
    key.ssh_key = text_field(body, "ssh_key", key.ssh_key)
    account.touch("ssh_keys", key.id)
    return Reply(204)


def _delete_key(account: Account, call: Call, ids: list[str]) -> Reply:
    del account.ssh_keys[_find(account.ssh_keys, ids[0], "ssh_key").id]
    account.touch("ssh_keys", ids[0])
    return Reply(204)


# Startup scripts


def _script_wire(script: StartupScript) -> Json:
    return {
        "id": script.id,
        "date_created": timestamp(script.created),
        "date_modified": timestamp(script.modified),
        "name": script.name,
        "type": script.kind,
        "script": script.script,
    }


def _checked_script(script: str) -> str:
    try:
        content = base64.b64decode(script, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "script_base64") from None
    if len(content) > MAX_SCRIPT_BYTES:
        raise ApiError(400, "bad_field", name="script")
    return script


def _list_scripts(account: Account, call: Call, ids: list[str]) -> Reply:
    return page(account, call, "startup_scripts", account.startup_scripts.values(), _script_wire)


def _create_script(account: Account, call: Call, ids: list[str]) -> Reply:
    body = call.json()
    for name in ("name", "script"):
        if not text_field(body, name):
            raise ApiError(400, "missing_field", name=name)
    number = account.next_number()
    script = StartupScript(
        id=account.draws(number).identifier("id"),
        number=number,
        name=text_field(body, "name"),
        kind=text_field(body, "type", "boot"),
        script=_checked_script(text_field(body, "script")),
        created=call.now,
        modified=call.now,
    )
    account.startup_scripts[script.id] = script
    account.touch("startup_scripts", script.id)
    call.created.append(script.id)
    return Reply(201, {"startup_script": _script_wire(script)})


def _get_script(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(200, {"startup_script": _script_wire(_find(account.startup_scripts, ids[0], "startup_script"))})


def _update_script(account: Account, call: Call, ids: list[str]) -> Reply:
    script, body = _find(account.startup_scripts, ids[0], "startup_script"), call.json()
    script.name = text_field(body, "name", script.name)
    script.script = _checked_script(text_field(body, "script", script.script))
    script.modified = call.now
    account.touch("startup_scripts", script.id)
    return Reply(204)


def _delete_script(account: Account, call: Call, ids: list[str]) -> Reply:
    del account.startup_scripts[_find(account.startup_scripts, ids[0], "startup_script").id]
    account.touch("startup_scripts", ids[0])
    return Reply(204)


# Reserved addresses: $3 a month, attached or not, and they outlive their machine


def _ip_wire(account: Account, ip: ReservedIp, now: float) -> Json:
    return {
        "id": ip.id,
        "region": ip.region,
        "ip_type": ip.ip_type,
        "subnet": ip.subnet,
        "subnet_size": ip.subnet_size,
        "label": ip.label,
        "instance_id": account.holder(ip, now, shown=True),
    }


def _list_ips(account: Account, call: Call, ids: list[str]) -> Reply:
    return page(
        account, call, "reserved_ips", account.reserved_ips.values(), lambda each: _ip_wire(account, each, call.now)
    )


def _create_ip(account: Account, call: Call, ids: list[str]) -> Reply:
    body = call.json()
    region = region_of(body)
    kind = text_field(body, "ip_type")
    if kind not in ("v4", "v6"):
        raise ApiError(400, "bad_field", name="ip_type")
    number = account.next_number()
    ip = ReservedIp(
        id=account.draws(number).identifier("id"),
        number=number,
        region=region,
        ip_type=kind,
        subnet=f"203.0.113.{number % 250 + 1}" if kind == "v4" else f"2001:db8:ffff:{number & 0xFFFF:x}::",
        subnet_size=32 if kind == "v4" else 64,
        label=text_field(body, "label"),
        created=call.now,
    )
    account.reserved_ips[ip.id] = ip
    account.touch("reserved_ips", ip.id)
    call.created.append(ip.id)
    charge(account, call, "reserved_ip", ip.id, ip.label, region, RESERVED_IP_MONTHLY_USD, VM_CAP_HOURS)
    if instance_id := text_field(body, "instance_id"):
        _attach_to(account, call, ip, instance_id)
    return Reply(201, {"reserved_ip": _ip_wire(account, ip, call.now)})


def _attach_to(account: Account, call: Call, ip: ReservedIp, instance_id: str) -> None:
    machine = account.machine(call, instance_id, metal=False)
    if account.holder(ip, call.now, shown=False):
        raise ApiError(400, "ip_in_use")
    if machine.region != ip.region:
        raise ApiError(400, "ip_region")
    ip.instance_id = machine.id
    account.touch("reserved_ips", ip.id)


def _get_ip(account: Account, call: Call, ids: list[str]) -> Reply:
    ip = _find(account.reserved_ips, ids[0], "reserved_ip")
    return Reply(200, {"reserved_ip": _ip_wire(account, ip, call.now)})


def _update_ip(account: Account, call: Call, ids: list[str]) -> Reply:
    ip = _find(account.reserved_ips, ids[0], "reserved_ip")
    ip.label = text_field(call.json(), "label", ip.label)
    account.book.entry(ip.id).label = ip.label
    account.touch("reserved_ips", ip.id)
    account.touch("book", ip.id)
    return Reply(200, {"reserved_ip": _ip_wire(account, ip, call.now)})


def _delete_ip(account: Account, call: Call, ids: list[str]) -> Reply:
    del account.reserved_ips[_find(account.reserved_ips, ids[0], "reserved_ip").id]
    account.touch("reserved_ips", ids[0])
    account.close_entry(ids[0], call.now)
    return Reply(204)


def _attach_ip(account: Account, call: Call, ids: list[str]) -> Reply:
    ip = _find(account.reserved_ips, ids[0], "reserved_ip")
    _attach_to(account, call, ip, text_field(call.json(), "instance_id"))
    return Reply(204)


def _detach_ip(account: Account, call: Call, ids: list[str]) -> Reply:
    ip = _find(account.reserved_ips, ids[0], "reserved_ip")
    ip.instance_id = ""
    account.touch("reserved_ips", ip.id)
    return Reply(204)


# Snapshots of VMs: account-wide, billed by size until deleted


def _snapshot_wire(snapshot: Snapshot, now: float) -> Json:
    complete = now >= snapshot.complete_at
    return {
        "id": snapshot.id,
        "date_created": timestamp(snapshot.created),
        "description": snapshot.description,
        "size": snapshot.size if complete else 0,
        "compressed_size": snapshot.size // 3 if complete else 0,
        "status": "complete" if complete else "pending",
        "os_id": snapshot.os_id,
        "app_id": snapshot.app_id,
    }


def _list_snapshots(account: Account, call: Call, ids: list[str]) -> Reply:
    return page(account, call, "snapshots", account.snapshots.values(), lambda each: _snapshot_wire(each, call.now))


def _create_snapshot(account: Account, call: Call, ids: list[str]) -> Reply:
    body = call.json()
    machine = account.machine(call, text_field(body, "instance_id"), metal=False)
    if machine.is_pending(call.now):
        raise ApiError(500, "action_inactive", action="snapshot")
    if machine.is_locked(call.now):
        raise ApiError(500, "action_locked", action="snapshot")
    number = account.next_number()
    draws = account.draws(number)
    size_gb = account.plan(machine, call.now).disk_gb
    snapshot = Snapshot(
        id=draws.identifier("id"),
        number=number,
        description=text_field(body, "description"),
        size=size_gb * GIGABYTE,
        os_id=machine.os_id,
        app_id=machine.app_id,
        created=call.now,
        complete_at=call.now + draws.between(SNAPSHOT_SECONDS, "complete"),
    )
    account.snapshots[snapshot.id] = snapshot
    account.touch("snapshots", snapshot.id)
    call.created.append(snapshot.id)
    price = SNAPSHOT_GB_MONTHLY_USD * size_gb
    charge(account, call, "snapshot", snapshot.id, snapshot.description, "", price, VM_CAP_HOURS)
    return Reply(201, {"snapshot": _snapshot_wire(snapshot, call.now)})


def _get_snapshot(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(200, {"snapshot": _snapshot_wire(_find(account.snapshots, ids[0], "snapshot"), call.now)})


def _update_snapshot(account: Account, call: Call, ids: list[str]) -> Reply:
    snapshot = _find(account.snapshots, ids[0], "snapshot")
    snapshot.description = text_field(call.json(), "description", snapshot.description)
    account.book.entry(snapshot.id).label = snapshot.description
    account.touch("snapshots", snapshot.id)
    account.touch("book", snapshot.id)
    return Reply(204)


def _delete_snapshot(account: Account, call: Call, ids: list[str]) -> Reply:
    del account.snapshots[_find(account.snapshots, ids[0], "snapshot").id]
    account.touch("snapshots", ids[0])
    account.close_entry(ids[0], call.now)
    return Reply(204)
