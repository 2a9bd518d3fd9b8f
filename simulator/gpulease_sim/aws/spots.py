"""Spot requests as objects of their own: they outlive instances, and persistent ones make new instances."""

import functools

from gpulease_sim.aws import instances, launches
from gpulease_sim.aws.account import Account, Machine, SpotRequest
from gpulease_sim.aws.wire import ApiError, Call, element, items, matches, moment, tag_set, wanted

OPEN_STATES = ("open", "active", "disabled")
_TEXTS = {
    "fulfilled": "Your Spot request is fulfilled.",
    "marked-for-stop": "Your Spot Instance is marked for stop.",
    "marked-for-termination": "Your Spot Instance is marked for termination.",
    "instance-stopped-by-user": "Your Spot Instance was stopped by user.",
    "instance-stopped-no-capacity": "Your Spot Instance was stopped due to no capacity.",
    "instance-terminated-by-user": "Your Spot Instance was terminated due to user-initiated termination.",
    "instance-terminated-no-capacity": "Your Spot Instance was terminated due to no capacity.",
    "request-canceled-and-instance-running": "Your Spot request is canceled, but your instance is still running.",
    "canceled-before-fulfillment": "Your Spot request is canceled before it was fulfilled.",
}


def _become(account: Account, request: SpotRequest, state: str, code: str) -> None:
    request.state, request.code, request.updated = state, code, account.now
    if state in ("closed", "cancelled", "failed"):
        account.book.entry(request.id).destroy(account.now)


def marked(account: Account, machine: Machine) -> None:
    """EC2 wants the instance back."""
    request = machine.request
    if request is not None and request.state == "active":
        stops = request.interruption != "terminate"
        _become(account, request, "active", "marked-for-stop" if stops else "marked-for-termination")


def instance_stops(account: Account, machine: Machine) -> None:
    """Its instance is stopping."""
    if machine.request is not None and machine.request.state == "active":
        _become(account, machine.request, "active", "marked-for-stop")


def instance_stopped(account: Account, machine: Machine) -> None:
    """Its instance has stopped: the request follows after a while."""
    request = machine.request
    if request is None or request.state != "active":
        return
    seconds = machine.draws.between(account.settings.spot_disabled_seconds, f"disabled {machine.boots}")
    code = "instance-stopped-no-capacity" if machine.interrupted else "instance-stopped-by-user"
    instances.later(
        account, machine, account.now + seconds, functools.partial(_become, account, request, "disabled", code)
    )
    if machine.interrupted:
        again = machine.draws.between(account.settings.spot_restart_seconds, f"restart {machine.boots}")
        instances.later(
            account, machine, account.now + seconds + again, functools.partial(_restart, account, machine, request)
        )


def _restart(account: Account, machine: Machine, request: SpotRequest) -> None:
    if request.state == "disabled":
        started(account, machine)
        instances.launch(account, machine)


def check_stop(machine: Machine) -> None:
    """Raises UnsupportedOperation where this instance cannot be stopped."""
    request = machine.request
    if request is not None and not (request.persistent and request.state in OPEN_STATES):
        what = f"You can't stop the Spot Instance '{machine.id}' because it is associated with a one-time Spot"
        raise ApiError("UnsupportedOperation", what=f"{what} Instance request or its request was cancelled.")


def check_start(machine: Machine) -> None:
    """Raises IncorrectSpotRequestState where this stopped instance cannot be started by a user (now)."""
    request = machine.request
    if request is not None and (request.state, request.code) != ("disabled", "instance-stopped-by-user"):
        raise ApiError("IncorrectSpotRequestState", id=machine.id, request=request.id)


def started(account: Account, machine: Machine) -> None:
    """Its instance is being started again."""
    if machine.request is not None:
        _become(account, machine.request, "active", "fulfilled")


def instance_ended(account: Account, machine: Machine) -> None:
    """Its instance is gone. A persistent request makes another one, without tags."""
    request = machine.request
    if request is None or request.state not in OPEN_STATES or request.instance_id != machine.id:
        return
    code = "instance-terminated-no-capacity" if machine.interrupted else "instance-terminated-by-user"
    if not request.persistent:
        _become(account, request, "closed", code)
        return
    request.instance_id = None
    _become(account, request, "open", code)
    seconds = machine.draws.between(account.settings.spot_relaunch_seconds, "relaunch")
    account.at(account.now + seconds, functools.partial(_relaunch, account, request))


def _relaunch(account: Account, request: SpotRequest) -> None:
    if request.state != "open":
        return
    try:
        launches.check_room(account, request.zone, request.params["InstanceType"], spot=True)
    except ApiError:
        account.at(account.now + 60, functools.partial(_relaunch, account, request))
        return
    _become(account, request, "active", "fulfilled")
    machine = launches.make(account, request.region, request.zone, request.params, request)[0]
    request.instance_id = machine.id


# --- calls ---


def describe(account: Account, call: Call) -> str:
    """DescribeSpotInstanceRequests."""
    asked = call.params.listed("SpotInstanceRequestId")
    for each in asked:
        _find(account, call.region, each)
    filters = wanted(call.params, _known)
    found = [
        request
        for request in account.requests.values()
        if request.region == call.region
        and (not asked or request.id in asked)
        and matches(filters, functools.partial(_value, request))
    ]
    return items("spotInstanceRequestSet", (_wire(each) for each in found))


def cancel(account: Account, call: Call) -> str:
    """CancelSpotInstanceRequests: running instances stay, stopped ones go after a while."""
    found = [_find(account, call.region, each) for each in call.params.listed("SpotInstanceRequestId")]
    for request in found:
        if request.state not in OPEN_STATES:
            continue
        before = request.state
        running = request.instance_id is not None and before != "open"
        code = "request-canceled-and-instance-running" if running else "canceled-before-fulfillment"
        _become(account, request, "cancelled", code)
        machine = account.machines.get(request.instance_id or "")
        if machine is not None and machine.state == "stopped":
            seconds = machine.draws.between(account.settings.cancel_lag_seconds, "cancelled")
            instances.later(
                account,
                machine,
                account.now + seconds,
                functools.partial(instances.terminate, account, machine),
            )
    return items(
        "spotInstanceRequestSet",
        (element("spotInstanceRequestId", each.id) + element("state", each.state) for each in found),
    )


def _find(account: Account, region: str, request_id: str) -> SpotRequest:
    found = account.requests.get(request_id)
    if found is None or found.region != region:
        raise ApiError("InvalidSpotInstanceRequestID.NotFound", id=request_id)
    return found


_FILTERS = {
    "spot-instance-request-id": lambda r: r.id,
    "state": lambda r: r.state,
    "status-code": lambda r: r.code,
    "instance-id": lambda r: r.instance_id,
    "type": lambda r: "persistent" if r.persistent else "one-time",
    "launched-availability-zone": lambda r: r.zone,
    "launch.instance-type": lambda r: r.params["InstanceType"],
    "tag-key": lambda r: list(r.tags),
}


def _known(name: str) -> bool:
    return name in _FILTERS or name.startswith("tag:")


def _value(request: SpotRequest, name: str) -> list[str] | str | None:
    if name.startswith("tag:"):
        return request.tags.get(name[4:])
    found: list[str] | str | None = _FILTERS[name](request)  # type: ignore[no-untyped-call]
    return found


def _wire(request: SpotRequest) -> str:
    return (
        element("spotInstanceRequestId", request.id)
        + element("type", "persistent" if request.persistent else "one-time")
        + element("state", request.state)
        + f"<status>{element('code', request.code)}{element('updateTime', moment(request.updated))}"
        + f"{element('message', _TEXTS.get(request.code, request.code))}</status>"
        + f"<launchSpecification>{element('imageId', request.params.get('ImageId'))}"
        + f"{element('instanceType', request.params['InstanceType'])}</launchSpecification>"
        + element("instanceId", request.instance_id)
        + element("createTime", moment(request.created))
        + element("productDescription", "Linux/UNIX")
        + element("launchedAvailabilityZone", request.zone)
        + element("instanceInterruptionBehavior", request.interruption)
        + tag_set(request.tags)
    )
