"""Routes of instances and bare metals."""

from functools import partial
from typing import Any

from gpulease_sim.vultr import catalog
from gpulease_sim.vultr.account import Account, Job
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
)
from gpulease_sim.vultr.create import checked_tags, checked_user_data, choose_image, create, join
from gpulease_sim.vultr.machines import NEVER, NO_ADDRESS, Machine
from gpulease_sim.vultr.wire import machine_wire, pending_charges, plan_line, vpcs_wire

REFUSED = 500
"""State conflicts are this status with a text, not 409."""
JOB_SECONDS = (2.0, 10.0)
PLAN_CHANGE_SECONDS = (10.0, 60.0)


def add_routes(routes: Routes) -> None:
    """Register everything of this module."""
    for collection, metal in (("/instances", False), ("/bare-metals", True)):
        one = f"{collection}/{{}}"
        routes.add("POST", collection, partial(_create, metal))
        routes.add("GET", collection, _list_metals if metal else _list_instances)
        routes.add("GET", one, partial(_get, metal))
        routes.add("PATCH", one, partial(_update, metal))
        routes.add("DELETE", one, partial(_delete, metal))
        for action in ("halt", "start", "reboot"):
            routes.add("POST", f"{one}/{action}", partial(_act, metal, action))
            routes.add("POST", f"{collection}/{action}", partial(_act_on_many, metal, action))
        routes.add("POST", f"{one}/reinstall", partial(_reinstall, metal))
        routes.add("GET", f"{one}/user-data", partial(_user_data, metal))
        routes.add("GET", f"{one}/upgrades", partial(_upgrades, metal))
        routes.add("GET", f"{one}/vpcs", partial(_list_vpcs, metal))
        routes.add("POST", f"{one}/vpcs/attach", partial(_attach_vpc, metal))
        routes.add("POST", f"{one}/vpcs/detach", partial(_detach_vpc, metal))
        routes.add("GET", f"{one}/ipv4", partial(_ipv4, metal))
    routes.add("GET", "/instances/jobs/{}", _job)


def _key(metal: bool) -> str:
    return "bare_metal" if metal else "instance"


def _create(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = create(account, call, metal)
    return Reply(202, {_key(metal): machine_wire(account, machine, call.now, created=True)})


def _get(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = account.machine(call, ids[0], metal)
    if machine.destroying_get_fails and machine.is_destroying(call.now):
        raise ApiError(account.settings.destruction_get_status, "destroying")
    return Reply(200, {_key(metal): machine_wire(account, machine, call.now)})


def _list_metals(account: Account, call: Call, ids: list[str]) -> Reply:
    now = call.now
    machines = account.listed_machines(now, metal=True)
    return page(account, call, "bare_metals", machines, lambda each: machine_wire(account, each, now))


def _list_instances(account: Account, call: Call, ids: list[str]) -> Reply:
    now, query = call.now, call.query
    region = query.get("region")
    if region is not None and region not in catalog.REGIONS:
        raise ApiError(422, "bad_filter")
    label, tag, hostname = query.get("label"), query.get("tag"), query.get("hostname")
    group, main_ip = query.get("firewall_group_id"), query.get("main_ip")
    folded = tag.casefold() if tag is not None else ""
    found = [
        each
        for each in account.listed_machines(now, metal=False)
        if (label is None or each.label == label)
        and (tag is None or any(one.casefold() == folded for one in each.tags))
        and (region is None or each.region == region)
        and (hostname is None or each.hostname == hostname)
        and (group is None or each.firewall_group_id == group)
        and (main_ip is None or each.shown_address(now) == main_ip)
    ]
    charges = query.get("show_pending_charges") == "true"

    def wire(machine: Machine) -> Json:
        item = machine_wire(account, machine, now)
        if charges:
            item["pending_charges"] = pending_charges(account, machine, now)
        return item

    return page(account, call, "instances", found, wire)


def _delete(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = account.machine(call, ids[0], metal)
    now, behaviour = call.now, machine.behaviour
    age = now - machine.created
    if machine.is_destroying(now):
        machine.refused_deletes += 1
        raise ApiError(REFUSED, "already_destroying")
    pending = machine.is_pending(now) and age < behaviour.pending_refusal_limit_seconds
    if pending or age < behaviour.not_active_until_seconds:
        raise ApiError(REFUSED, "not_active")
    if machine.is_locked(now) or age < behaviour.locked_until_seconds:
        raise ApiError(REFUSED, "destroy_locked")
    machine.deletes_seen += 1
    if machine.deletes_seen > behaviour.deletes_ignored:
        machine.request_destruction(now)
    account.machine_changed(machine)
    return Reply(204)


def _ready_for(account: Account, call: Call, machine_id: str, metal: bool, action: str) -> Machine:
    machine = account.machine(call, machine_id, metal)
    if machine.is_destroying(call.now):
        raise ApiError(REFUSED, "destroying")
    if machine.is_pending(call.now):
        raise ApiError(REFUSED, "action_inactive", action=action)
    if machine.is_locked(call.now):
        raise ApiError(REFUSED, "action_locked", action=action)
    return machine


def _act(metal: bool, action: str, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = _ready_for(account, call, ids[0], metal, action)
    _run_action(machine, action, call.now)
    account.machine_changed(machine)
    return Reply(204)


def _act_on_many(metal: bool, action: str, account: Account, call: Call, ids: list[str]) -> Reply:
    wanted = texts_field(call.json(), "baremetal_ids" if metal else "instance_ids")
    if wanted is None:
        raise ApiError(400, "missing_field", name="baremetal_ids" if metal else "instance_ids")
    machines = [_ready_for(account, call, each, metal, action) for each in wanted]
    for machine in machines:
        _run_action(machine, action, call.now)
        account.machine_changed(machine)
    return Reply(204)


def _run_action(machine: Machine, action: str, now: float) -> None:
    if action == "halt":
        machine.halt(now)
    elif action == "start":
        machine.start(now)
    else:
        machine.reboot(now)


def _reinstall(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = _ready_for(account, call, ids[0], metal, "reinstall")
    machine.hostname = text_field(call.json(), "hostname", machine.hostname)
    machine.reinstall(call.now)
    account.machine_changed(machine)
    return Reply(202, {_key(metal): machine_wire(account, machine, call.now)})


def _update(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = account.machine(call, ids[0], metal)
    body, now = call.json(), call.now
    if machine.is_destroying(now):
        raise ApiError(REFUSED, "destroying")
    tags = texts_field(body, "tags")
    if tags is not None:
        machine.tags = checked_tags(tags)
    machine.label = text_field(body, "label", machine.label)
    if body.get("user_data") is not None:
        machine.user_data = checked_user_data(body)
        entry = account.book.entry(machine.id)
        entry.user_data = machine.user_data
    machine.user_scheme = text_field(body, "user_scheme", machine.user_scheme)
    machine.ipv6 = machine.ipv6 or bool(body.get("enable_ipv6"))
    if metal:
        machine.mdisk_mode = text_field(body, "mdisk_mode", machine.mdisk_mode)
    else:
        _update_vm(account, call, machine, body)
    if any(int_field(body, name) if name != "image_id" else body.get(name) for name in ("os_id", "app_id", "image_id")):
        _ready_for(account, call, machine.id, metal, "reinstall")
        machine.os_id, machine.os, machine.app_id, machine.image_id, machine.snapshot_id = choose_image(account, body)
        machine.reinstall(now)
    account.machine_changed(machine)
    reply: Json = {_key(metal): machine_wire(account, machine, now)}
    if not metal:
        reply["job_ids"] = [_start_job(account, now)]
    return Reply(202, reply)


def _update_vm(account: Account, call: Call, machine: Machine, body: Json) -> None:
    group = body.get("firewall_group_id")
    if group is not None:
        if group and group not in account.firewall_groups:
            raise ApiError(400, "firewall_group")
        machine.firewall_group_id = group
    if "backups" in body:
        machine.backups = body["backups"] == "enabled"
    plan_id = text_field(body, "plan")
    if plan_id and plan_id != machine.plan:
        if plan_id not in [plan["id"] for plan in _larger_plans(account, machine, call.now)]:
            raise ApiError(400, "upgrade")
        delay = machine.draws.between(PLAN_CHANGE_SECONDS, f"plan-{plan_id}")
        if machine.plan_change is not None:
            machine.plan = machine.plan_change[1]
        machine.plan_change = (call.now + delay, plan_id)
        plan, factor = catalog.PLANS[plan_id], catalog.REGIONS[machine.region].price_factor
        account.book.entry(machine.id).rates.append(
            (call.now + delay, round(plan.billed_hourly_usd * factor, 3), round(plan.monthly_usd * factor, 2))
        )
    for vpc_id in texts_field(body, "attach_vpc") or ():
        _attach(account, call, machine, vpc_id)
    for vpc_id in texts_field(body, "detach_vpc") or ():
        _detach(call, machine, vpc_id)


def _start_job(account: Account, now: float) -> str:
    number = account.next_number()
    draws = account.draws(number)
    job = Job(draws.identifier("id"), number, now + draws.between(JOB_SECONDS, "job"))
    account.jobs[job.id] = job
    account.touch("jobs", job.id)
    return job.id


def _job(account: Account, call: Call, ids: list[str]) -> Reply:
    job = account.jobs.get(ids[0])
    if job is None:
        raise NotFound("job")
    state = "success" if call.now >= job.done_at else "processing"
    return Reply(200, {"job": {"id": job.id, "state": state}, "state": state})


def _user_data(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = account.machine(call, ids[0], metal)
    return Reply(200, {"user_data": {"data": machine.user_data}})


def _larger_plans(account: Account, machine: Machine, now: float) -> list[Json]:
    present = account.plan(machine, now)
    return [
        plan.wire()
        for plan in catalog.PLANS.values()
        if not machine.metal
        and plan.on_demand
        and plan_line(plan.id) == plan_line(present.id)
        and plan.monthly_usd > present.monthly_usd
    ]


def _upgrades(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = account.machine(call, ids[0], metal)
    upgrades: dict[str, Any] = {
        "os": list(catalog.SYSTEMS.values()),
        "applications": list(catalog.APPLICATIONS),
        "plans": [plan["id"] for plan in _larger_plans(account, machine, call.now)],
    }
    kind = call.query.get("type", "all")
    return Reply(200, {"upgrades": upgrades if kind == "all" else {kind: upgrades.get(kind, [])}})


def _ipv4(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = account.machine(call, ids[0], metal)
    address = machine.shown_address(call.now)
    shown = address not in ("", NO_ADDRESS)
    addresses = [{"ip": address, "netmask": "255.255.254.0", "type": "main_ip", "reverse": ""}] if shown else []
    meta = {"total": len(addresses), "links": {"next": "", "prev": ""}}
    return Reply(200, {"ipv4s": addresses, "meta": meta})


# Private networks of a machine


def _list_vpcs(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    try:
        machine = account.machine(call, ids[0], metal)
    except NotFound:
        raise NotFound("bare_metal" if metal else "instance_vpcs") from None
    vpcs = vpcs_wire(machine, call.now)
    reply: Json = {"vpcs": vpcs}
    if not metal:
        reply["meta"] = {"total": len(vpcs), "links": {"next": "", "prev": ""}}
    return Reply(200, reply)


def _attach_vpc(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = account.machine(call, ids[0], metal)
    _attach(account, call, machine, text_field(call.json(), "vpc_id"))
    account.machine_changed(machine)
    return Reply(204)


def _detach_vpc(metal: bool, account: Account, call: Call, ids: list[str]) -> Reply:
    machine = account.machine(call, ids[0], metal)
    _detach(call, machine, text_field(call.json(), "vpc_id"))
    account.machine_changed(machine)
    return Reply(204)


def _attach(account: Account, call: Call, machine: Machine, vpc_id: str) -> None:
    now = call.now
    vpc = account.vpc(vpc_id)
    if vpc.region != machine.region:
        raise NotFound("vpc")
    if machine.is_destroying(now):
        raise ApiError(REFUSED, "destroying")
    if account.plan(machine, now).id in account.settings.plans_without_vpc:
        raise ApiError(account.settings.no_vpc_status, "attach_no_support")
    present = [each for each in machine.attachments if now < each.removed_at]
    if any(each.vpc_id == vpc_id for each in present):
        raise ApiError(400, "attach_twice")
    if machine.metal and present:
        raise ApiError(REFUSED, "attach_second")
    if machine.is_pending(now) or machine.is_locked(now):
        raise ApiError(REFUSED, "attach")
    failures = machine.behaviour.attach_failures
    machine.attach_calls += 1
    account.touch("machines", machine.id)
    if failures[0] == NEVER or machine.attach_calls <= machine.draws.integer(failures, "attach-failures"):
        raise ApiError(REFUSED, "attach")
    delay = machine.draws.between(machine.behaviour.attach_seconds, f"attach-{machine.attach_calls}")
    join(account, machine, vpc, now, now + delay)
    if not machine.metal and machine.moment(now).power == "running":
        machine.reboot(now)


def _detach(call: Call, machine: Machine, vpc_id: str) -> None:
    for each in machine.attachments:
        if each.vpc_id == vpc_id and call.now < each.removed_at:
            delay = machine.draws.between(machine.behaviour.detach_seconds, f"detach-{vpc_id}")
            each.removed_at = min(each.removed_at, call.now + delay)
            return
    raise ApiError(400, "vpc_not_attached")
