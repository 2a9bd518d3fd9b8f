"""Creating machines, VMs and bare metal alike.

Nothing is deduplicated: the same body sent twice makes two machines. Refusals are synchronous, and a VPC made for the
machine by `enable_vpc` survives a refusal that comes after it, as the real provider's does.
"""

import base64
import binascii
import ipaddress
import re

from gpulease_sim.draws import Draws
from gpulease_sim.vultr import catalog
from gpulease_sim.vultr.account import MAX_TAGS, Account, Vpc
from gpulease_sim.vultr.api import ApiError, Call, Json, NotFound, int_field, text_field, texts_field
from gpulease_sim.vultr.book import Entry
from gpulease_sim.vultr.catalog import Plan
from gpulease_sim.vultr.machines import Attachment, Machine
from gpulease_sim.vultr.settings import behaviour_of

APPLICATION_OS, SNAPSHOT_OS = 186, 164
_HOSTNAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_FIRST_ADDRESS = int(ipaddress.IPv4Address("198.18.0.10"))
_ADDRESSES = 2**17 - 20
_MORE_ADDRESSES = int(ipaddress.IPv4Address("100.64.0.10"))


def create(account: Account, call: Call, metal: bool) -> Machine:
    """Check the request as the provider does and start the machine's life."""
    body, now = call.json(), call.now
    region = region_of(body)
    plan = _plan(body, metal)
    os_id, os, app_id, image_id, snapshot_id = choose_image(account, body)
    label, tags = text_field(body, "label"), _tags(body)
    hostname = text_field(body, "hostname", "")
    if hostname and not _HOSTNAME.fullmatch(hostname):
        raise ApiError(400, "hostname")
    user_data = checked_user_data(body)
    keys = texts_field(body, "sshkey_id") or ()
    if any(key not in account.ssh_keys for key in keys):
        raise ApiError(400, "ssh_key")
    script_id = text_field(body, "script_id")
    if script_id and script_id not in account.startup_scripts:
        raise ApiError(400, "startup_script")
    group_id = "" if metal else text_field(body, "firewall_group_id")
    if group_id and group_id not in account.firewall_groups:
        raise ApiError(400, "firewall_group")
    reserved = _reserved_ip(account, body, region, now)
    vpcs = _vpcs(account, call, body, region, plan, metal)

    number = account.machine_count + 1
    draws = Draws(account.seed, f"machine-{number}")
    account.check_room(plan, region, now, Draws(account.seed, f"create-{account.next_number()}"))
    account.machine_count = number
    machine = Machine(
        id=draws.identifier("id"),
        number=number,
        metal=metal,
        region=region,
        plan=plan.id,
        created=now,
        label=label,
        hostname=hostname or "vultr",
        tags=tags,
        os_id=os_id,
        os=os,
        app_id=app_id,
        image_id=image_id,
        snapshot_id=snapshot_id,
        address=reserved or account.settings.public_address or address(number),
        mac=mac(draws.identifier("mac")),
        password=draws.text("password"),
        user_data=user_data,
        ssh_key_ids=keys,
        script_id=script_id,
        firewall_group_id=group_id,
        user_scheme=text_field(body, "user_scheme", "root"),
        vpc_only=not metal and bool(body.get("vpc_only")),
        ipv6=bool(body.get("enable_ipv6")),
        backups=not metal and body.get("backups") == "enabled",
        mdisk_mode=text_field(body, "mdisk_mode", "none"),
        behaviour=behaviour_of(account.settings, metal, label, tags, plan.id, region, number),
        seed=account.seed,
    )
    machine.schedule_boot()
    shows = now + draws.between(machine.behaviour.create_vpc_seconds, "create-vpc")
    for vpc in vpcs:
        join(account, machine, vpc, now, shows)
    factor = catalog.REGIONS[region].price_factor
    account.add_entry(
        Entry(
            kind="bare_metal" if metal else "instance",
            id=machine.id,
            label=label,
            region=region,
            plan=plan.id,
            tags=tags,
            created=now,
            active_from=machine.active_at(),
            destroyed_from=machine.gone_at,
            rates=[(now, round(plan.billed_hourly_usd * factor, 3), round(plan.monthly_usd * factor, 2))],
            user_data=user_data,
        )
    )
    account.add_machine(machine)
    call.created.append(machine.id)
    if reserved:
        for ip in account.reserved_ips.values():
            if ip.subnet == reserved:
                ip.instance_id = machine.id
                account.touch("reserved_ips", ip.id)
    return machine


def address(number: int) -> str:
    """A public address of its own for each machine, from ranges that nobody routes."""
    if number <= _ADDRESSES:
        return str(ipaddress.IPv4Address(_FIRST_ADDRESS + number))
    return str(ipaddress.IPv4Address(_MORE_ADDRESSES + number - _ADDRESSES))


def mac(identifier: str) -> str:
    """A MAC address of the provider's range."""
    digits = identifier.replace("-", "")
    return f"5a:00:{digits[0:2]}:{digits[2:4]}:{digits[4:6]}:{digits[6:8]}"


def join(account: Account, machine: Machine, vpc: Vpc, now: float, shows: float) -> None:
    """Make a machine a member of a VPC; its address is the next in order."""
    host = vpc.next_host
    vpc.next_host += 1
    known = (each for each in vpc.members if each in account.machines and each != machine.id)
    vpc.members = (*known, machine.id)
    account.touch("vpcs", vpc.id)
    machine.attachments.append(
        Attachment(
            vpc_id=vpc.id,
            address=str(ipaddress.IPv4Address(vpc.subnet) + host),
            mac=mac(machine.draws.identifier(f"mac-{vpc.id}-{host}")),
            added_at=now,
            visible_at=shows,
            addressed_at=shows + machine.draws.between(machine.behaviour.vpc_address_seconds, f"address-{host}"),
        )
    )


def choose_image(account: Account, body: Json) -> tuple[int, str, int, str, str]:
    """(os_id, os, app_id, image_id, snapshot_id); exactly what boots must be known."""
    if snapshot_id := text_field(body, "snapshot_id"):
        if snapshot_id not in account.snapshots:
            raise NotFound("snapshot")
        return SNAPSHOT_OS, "Snapshot", 0, "", snapshot_id
    if image_id := text_field(body, "image_id"):
        if all(app["image_id"] != image_id for app in catalog.APPLICATIONS):
            raise ApiError(400, "image")
        return APPLICATION_OS, "Application", 0, image_id, ""
    if app_id := int_field(body, "app_id"):
        if all(app["id"] != app_id for app in catalog.APPLICATIONS):
            raise ApiError(400, "image")
        return APPLICATION_OS, "Application", app_id, "", ""
    if text_field(body, "iso_id"):
        return 159, "Custom", 0, "", ""
    os_id = int_field(body, "os_id")
    if os_id not in catalog.SYSTEMS:
        raise ApiError(400, "image")
    return os_id, catalog.SYSTEMS[os_id]["name"], 0, "", ""


def region_of(body: Json) -> str:
    """The region that a create names."""
    region = text_field(body, "region")
    if region not in catalog.REGIONS:
        raise ApiError(400, "region")
    return region


def checked_user_data(body: Json) -> str:
    """The user data as sent, if it is base64."""
    user_data = text_field(body, "user_data")
    try:
        base64.b64decode(user_data, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "user_data") from None
    return user_data


def _plan(body: Json, metal: bool) -> Plan:
    plan = catalog.PLANS.get(text_field(body, "plan"))
    if plan is None or plan.metal is not metal:
        raise ApiError(400, "plan")
    return plan


def _tags(body: Json) -> tuple[str, ...]:
    tags = texts_field(body, "tags")
    if tags is None:
        single = text_field(body, "tag")
        tags = (single,) if single else ()
    return checked_tags(tags)


def checked_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """The tags verbatim, unless there are too many."""
    if len(tags) > MAX_TAGS:
        raise ApiError(400, "tags")
    return tags


def _reserved_ip(account: Account, body: Json, region: str, now: float) -> str:
    reserved_id = text_field(body, "reserved_ipv4")
    if not reserved_id:
        return ""
    ip = account.reserved_ips.get(reserved_id)
    if ip is None:
        raise NotFound("reserved_ip")
    if ip.region != region:
        raise ApiError(400, "ip_region")
    if account.holder(ip, now, shown=False):
        raise ApiError(400, "ip_in_use")
    return ip.subnet


def _vpcs(account: Account, call: Call, body: Json, region: str, plan: Plan, metal: bool) -> list[Vpc]:
    wanted = texts_field(body, "attach_vpc")
    if wanted:
        vpcs = [account.vpcs[each] for each in wanted if each in account.vpcs]
        if len(vpcs) < len(wanted) or any(vpc.region != region for vpc in vpcs):
            raise ApiError(400, "vpc")
    elif body.get("enable_vpc"):
        present = next((each for each in account.vpcs.values() if each.region == region), None)
        vpcs = [present or account.add_vpc(call, region, "")]
    else:
        return []
    if plan.id in account.settings.plans_without_vpc:
        raise ApiError(account.settings.no_vpc_status, "attach_no_support")
    if metal and len(vpcs) > 1:
        raise ApiError(400, "attach_second")
    return vpcs


__all__ = [
    "address",
    "checked_tags",
    "checked_user_data",
    "choose_image",
    "create",
    "join",
    "mac",
    "region_of",
]
