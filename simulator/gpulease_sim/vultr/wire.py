"""How machines and networks look in answers."""

from gpulease_sim.vultr import catalog
from gpulease_sim.vultr.account import Account, Vpc
from gpulease_sim.vultr.api import Json, timestamp
from gpulease_sim.vultr.book import cost_of
from gpulease_sim.vultr.machines import NO_ADDRESS, Machine


def machine_wire(account: Account, machine: Machine, now: float, *, created: bool = False) -> Json:
    """The object of a create answer (`created`), of a read or of a list."""
    if machine.metal:
        return _bare_metal(account, machine, now, created)
    return _instance(account, machine, now, created)


def vpcs_wire(machine: Machine, now: float) -> list[Json]:
    """`GET …/vpcs`: a membership may be listed before it has an address."""
    return [
        {"id": each.vpc_id, "mac_address": each.mac, "ip_address": each.shown_address(now)}
        for each in machine.attachments
        if each.shows(now)
    ]


def vpc_wire(vpc: Vpc) -> Json:
    """A VPC."""
    return {
        "id": vpc.id,
        "date_created": timestamp(vpc.created),
        "region": vpc.region,
        "description": vpc.description,
        "v4_subnet": vpc.subnet,
        "v4_subnet_mask": vpc.mask,
    }


def pending_charges(account: Account, machine: Machine, now: float) -> float:
    """USD so far."""
    return float(cost_of(account.book.entry(machine.id), now))


def _instance(account: Account, machine: Machine, now: float, created: bool) -> Json:
    plan = account.plan(machine, now)
    moment = machine.moment(now)
    main_ip = machine.shown_address(now)
    addressed = main_ip != NO_ADDRESS
    resizing = machine.plan_change is not None and now < machine.plan_change[0]
    internal = next((each.address for each in machine.attachments if created or each.has_address(now)), "")
    wire: Json = {
        "id": machine.id,
        "os": machine.os,
        "ram": plan.ram_mb,
        "disk": plan.disk_gb,
        "main_ip": main_ip,
        "vcpu_count": plan.cpus,
        "region": machine.region,
        "plan": plan.id,
        "date_created": timestamp(machine.created),
        "status": "resizing" if resizing else moment.status,
        "allowed_bandwidth": 10240,
        "netmask_v4": "255.255.254.0" if addressed else "",
        "gateway_v4": _gateway(main_ip) if addressed else NO_ADDRESS,
        "power_status": moment.power,
        "server_status": moment.server,
        "v6_network": _v6(machine, "") if machine.ipv6 and addressed else "",
        "v6_main_ip": _v6(machine, "5400:4ff:fe00:1") if machine.ipv6 and addressed else "",
        "v6_network_size": 64 if machine.ipv6 and addressed else 0,
        "label": machine.label,
        "hostname": machine.hostname,
        "internal_ip": internal,
        "vpc_only": machine.vpc_only,
        "kvm": f"https://my.vultr.com/subs/vps/novnc/api.php?data={machine.id}" if addressed else "",
        "os_id": machine.os_id,
        "app_id": machine.app_id,
        "image_id": machine.image_id,
        "snapshot_id": machine.snapshot_id,
        "firewall_group_id": machine.firewall_group_id,
        "features": _features(machine),
        "tag": machine.tags[0] if machine.tags else "",
        "tags": list(machine.tags),
        "user_scheme": machine.user_scheme,
    }
    if created:
        wire["default_password"] = machine.password
    else:
        wire["vpcs"] = _memberships(machine, now)
    return wire


def _bare_metal(account: Account, machine: Machine, now: float, created: bool) -> Json:
    plan = account.plan(machine, now)
    moment = machine.moment(now)
    main_ip = machine.shown_address(now)
    wire: Json = {
        "id": machine.id,
        "os": machine.os,
        "ram": f"{plan.ram_mb} MB",
        "disk": f"{plan.disk_count}x {plan.disk_gb} GB NVMe",
        "main_ip": main_ip,
        "cpu_count": plan.cpus,
        "region": machine.region,
        "default_password": machine.password if created else "",
        "date_created": timestamp(machine.created),
        "status": moment.status,
        "netmask_v4": "255.255.254.0" if main_ip else "",
        "gateway_v4": _gateway(main_ip) if main_ip else "",
        "plan": plan.id,
        "v6_network": _v6(machine, "") if machine.ipv6 and main_ip else "",
        "v6_main_ip": _v6(machine, "5400:4ff:fe00:1") if machine.ipv6 and main_ip else "",
        "v6_network_size": 64 if machine.ipv6 and main_ip else 0,
        "mac_address": int(machine.mac.replace(":", ""), 16) if main_ip else 0,
        "label": machine.label,
        "os_id": machine.os_id,
        "app_id": machine.app_id,
        "image_id": machine.image_id,
        "snapshot_id": machine.snapshot_id,
        "features": _features(machine),
        "tag": machine.tags[0] if machine.tags else "",
        "tags": list(machine.tags),
        "user_scheme": machine.user_scheme,
        "mdisk_mode": machine.mdisk_mode,
    }
    if not created:
        wire["internal_ip"] = next((each.address for each in machine.attachments if each.has_address(now)), "")
        wire["vpcs"] = _memberships(machine, now)
        wire["kvm"] = ""
    return wire


def _memberships(machine: Machine, now: float) -> list[Json]:
    return [
        {"id": each.vpc_id, "version": 1, "subnet": each.shown_address(now)}
        for each in machine.attachments
        if each.shows(now)
    ]


def _features(machine: Machine) -> list[str]:
    return [name for name, on in (("ipv6", machine.ipv6), ("auto_backups", machine.backups)) if on]


def _gateway(address: str) -> str:
    return f"{address.rsplit('.', 1)[0]}.1"


def _v6(machine: Machine, host: str) -> str:
    return f"2001:db8:{machine.number >> 16:x}:{machine.number & 0xFFFF:x}::{host}"


def plan_line(plan_id: str) -> str:
    """The line a plan belongs to; plans change only within it."""
    return f"{catalog.PLANS[plan_id].type}/{'-'.join(plan_id.split('-')[:2])}"
