"""Routes of VPCs and firewall groups."""

import ipaddress

from gpulease_sim.vultr.account import Account, FirewallGroup, FirewallRule, Vpc
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
from gpulease_sim.vultr.create import region_of
from gpulease_sim.vultr.wire import vpc_wire

MAX_RULES = 50


def add_routes(routes: Routes) -> None:
    """Register everything of this module."""
    for collection, one_key, many_key in (
        ("/vpcs", "vpc", "vpcs"),
        ("/private-networks", "network", "networks"),
    ):
        names = _Names(one_key, many_key)
        routes.add("GET", collection, names.list_all)
        routes.add("POST", collection, names.create)
        routes.add("GET", f"{collection}/{{}}", names.get)
        routes.add("PUT", f"{collection}/{{}}", _update_vpc)
        routes.add("DELETE", f"{collection}/{{}}", _delete_vpc)
    routes.add("GET", "/vpcs/{}/attachments", _attachments)
    routes.add("GET", "/firewalls", _list_groups)
    routes.add("POST", "/firewalls", _create_group)
    routes.add("GET", "/firewalls/{}", _get_group)
    routes.add("PUT", "/firewalls/{}", _update_group)
    routes.add("DELETE", "/firewalls/{}", _delete_group)
    routes.add("GET", "/firewalls/{}/rules", _list_rules)
    routes.add("POST", "/firewalls/{}/rules", _create_rule)
    routes.add("GET", "/firewalls/{}/rules/{}", _get_rule)
    routes.add("DELETE", "/firewalls/{}/rules/{}", _delete_rule)


class _Names:
    """The same objects under the present route and under its older alias, which uses other keys."""

    def __init__(self, one: str, many: str) -> None:
        self._one = one
        self._many = many

    def list_all(self, account: Account, call: Call, ids: list[str]) -> Reply:
        shown = [each for each in account.vpcs.values() if each.listed_at <= call.now]
        return page(account, call, self._many, shown, vpc_wire)

    def create(self, account: Account, call: Call, ids: list[str]) -> Reply:
        body = call.json()
        region = region_of(body)
        subnet = text_field(body, "v4_subnet")
        mask = int_field(body, "v4_subnet_mask", 20)
        if subnet:
            try:
                ipaddress.IPv4Network(f"{subnet}/{mask}")
            except ValueError:
                raise ApiError(400, "bad_field", name="v4_subnet") from None
        vpc = account.add_vpc(call, region, text_field(body, "description"), subnet, mask)
        return Reply(201, {self._one: vpc_wire(vpc)})

    def get(self, account: Account, call: Call, ids: list[str]) -> Reply:
        return Reply(200, {self._one: vpc_wire(account.vpc(ids[0]))})


def _update_vpc(account: Account, call: Call, ids: list[str]) -> Reply:
    vpc = account.vpc(ids[0])
    vpc.description = text_field(call.json(), "description", vpc.description)[:255]
    account.book.entry(vpc.id).label = vpc.description
    account.touch("vpcs", vpc.id)
    account.touch("book", vpc.id)
    return Reply(204)


def _delete_vpc(account: Account, call: Call, ids: list[str]) -> Reply:
    vpc = account.vpc(ids[0])
    members = account.vpc_members(vpc, call.now)
    if members:
        raise ApiError(400, "vpc_in_use", addresses=", ".join(each.address for each in members))
    del account.vpcs[vpc.id]
    account.touch("vpcs", vpc.id)
    account.close_entry(vpc.id, call.now)
    return Reply(204)


class _Membership:
    """One line of a VPC's attachments."""

    def __init__(self, number: int, machine_id: str, wire: Json) -> None:
        self.number = number
        self.id = machine_id
        self.wire = wire


def _attachments(account: Account, call: Call, ids: list[str]) -> Reply:
    vpc: Vpc = account.vpc(ids[0])
    rows = []
    for machine in account.vpc_members(vpc, call.now):
        for each in machine.attachments:
            if each.vpc_id == vpc.id and each.shows(call.now):
                kind = "bare_metal" if machine.metal else "instance"
                wire = {
                    "id": machine.id,
                    "type": kind,
                    "mac_address": each.mac,
                    "date_added": timestamp(each.added_at),
                    "ip": {"v4": each.address},
                    "linked_subscription": {"type": kind, "id": machine.id},
                }
                rows.append(_Membership(machine.number, machine.id, wire))
    return page(account, call, "attachments", rows, lambda row: row.wire)


# Firewall groups


def _group(account: Account, group_id: str) -> FirewallGroup:
    group = account.firewall_groups.get(group_id)
    if group is None:
        raise NotFound("firewall_group")
    return group


def _group_wire(account: Account, group: FirewallGroup, now: float) -> Json:
    users = sum(1 for each in account.machines.values() if each.firewall_group_id == group.id and not each.is_gone(now))
    return {
        "id": group.id,
        "description": group.description,
        "date_created": timestamp(group.created),
        "date_modified": timestamp(group.modified),
        "instance_count": users,
        "rule_count": len(group.rules),
        "max_rule_count": MAX_RULES,
    }


def _rule_wire(rule: FirewallRule) -> Json:
    return {
        "id": rule.id,
        "type": rule.ip_type,
        "ip_type": rule.ip_type,
        "action": "accept",
        "protocol": rule.protocol,
        "port": rule.port,
        "subnet": rule.subnet,
        "subnet_size": rule.subnet_size,
        "source": rule.source,
        "notes": rule.notes,
    }


def _list_groups(account: Account, call: Call, ids: list[str]) -> Reply:
    groups = account.firewall_groups.values()
    return page(account, call, "firewall_groups", groups, lambda each: _group_wire(account, each, call.now))


def _create_group(account: Account, call: Call, ids: list[str]) -> Reply:
    number = account.next_number()
    description = text_field(call.json(), "description")[:255]
    group = FirewallGroup(account.draws(number).identifier("id"), number, description, call.now, call.now)
    account.firewall_groups[group.id] = group
    account.touch("firewall_groups", group.id)
    call.created.append(group.id)
    return Reply(201, {"firewall_group": _group_wire(account, group, call.now)})


def _get_group(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(200, {"firewall_group": _group_wire(account, _group(account, ids[0]), call.now)})


def _update_group(account: Account, call: Call, ids: list[str]) -> Reply:
    group = _group(account, ids[0])
    group.description = text_field(call.json(), "description", group.description)[:255]
    group.modified = call.now
    account.touch("firewall_groups", group.id)
    return Reply(204)


def _delete_group(account: Account, call: Call, ids: list[str]) -> Reply:
    group = _group(account, ids[0])
    del account.firewall_groups[group.id]
    account.touch("firewall_groups", group.id)
    for machine in account.machines.values():
        if machine.firewall_group_id == group.id:  # measured: no refusal, the machines lose their firewall
            machine.firewall_group_id = ""
            account.touch("machines", machine.id)
    return Reply(204)


def _list_rules(account: Account, call: Call, ids: list[str]) -> Reply:
    rules = _group(account, ids[0]).rules
    meta = {"total": len(rules), "links": {"next": "", "prev": ""}}
    return Reply(200, {"firewall_rules": [_rule_wire(each) for each in rules], "meta": meta})


def _create_rule(account: Account, call: Call, ids: list[str]) -> Reply:
    group, body = _group(account, ids[0]), call.json()
    for name in ("ip_type", "protocol", "subnet"):
        if not text_field(body, name):
            raise ApiError(400, "missing_field", name=name)
    rule = FirewallRule(
        id=group.next_rule,
        ip_type=text_field(body, "ip_type"),
        protocol=text_field(body, "protocol"),
        subnet=text_field(body, "subnet"),
        subnet_size=int_field(body, "subnet_size"),
        port=text_field(body, "port"),
        source=text_field(body, "source"),
        notes=text_field(body, "notes"),
    )
    same = (rule.ip_type, rule.protocol, rule.subnet, rule.subnet_size, rule.port, rule.source)
    for each in group.rules:
        if (each.ip_type, each.protocol, each.subnet, each.subnet_size, each.port, each.source) == same:
            raise ApiError(400, "rule_exists")
    group.rules = (*group.rules, rule)
    group.next_rule += 1
    group.modified = call.now
    account.touch("firewall_groups", group.id)
    return Reply(201, {"firewall_rule": _rule_wire(rule)})


def _rule(group: FirewallGroup, rule_id: str) -> FirewallRule:
    for each in group.rules:
        if str(each.id) == rule_id:
            return each
    raise NotFound("firewall_rule")


def _get_rule(account: Account, call: Call, ids: list[str]) -> Reply:
    return Reply(200, {"firewall_rule": _rule_wire(_rule(_group(account, ids[0]), ids[1]))})


def _delete_rule(account: Account, call: Call, ids: list[str]) -> Reply:
    group = _group(account, ids[0])
    rule = _rule(group, ids[1])
    group.rules = tuple(each for each in group.rules if each is not rule)
    account.touch("firewall_groups", group.id)
    return Reply(204)
