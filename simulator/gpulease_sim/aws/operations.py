"""Which call is answered by what. Calls that are not named here go to moto as they came."""

from collections.abc import Callable

from gpulease_sim.answers import SimResponse
from gpulease_sim.aws import instances, launches, prices, show, spot_prices, spots, volumes
from gpulease_sim.aws.account import Account, Machine
from gpulease_sim.aws.book import Entry
from gpulease_sim.aws.wire import ApiError, Call, PassedOn, element

Operation = Callable[[Account, Call], str]


def _run(account: Account, call: Call) -> str:
    return show.reservation(account, launches.run(account, call))


def _named(account: Account, call: Call) -> list[Machine]:
    """All instances of the call; one unknown id fails the whole call."""
    asked = list(dict.fromkeys(call.params.listed("InstanceId")))
    if not asked:
        raise ApiError("MissingParameter", name="instanceIds")
    return [account.machine(call.region, each) for each in asked]


def _stop(account: Account, call: Call) -> str:
    found = _named(account, call)
    force = call.params.flag("Force")
    for machine in found:
        if machine.state not in ("running", "stopping", "stopped"):
            raise ApiError("IncorrectInstanceState", id=machine.id, verb="stopped")
        spots.check_stop(machine)
        if machine.moto.disable_api_stop is True:
            raise ApiError("OperationNotPermitted", id=machine.id)
    before = [(machine, machine.state) for machine in found]
    for machine in found:
        if machine.state == "running":
            instances.stop(account, machine, force=force)
        elif machine.state == "stopping" and force:
            instances.force_stop(account, machine)
    return show.changes(before)


def _start(account: Account, call: Call) -> str:
    found = _named(account, call)
    for machine in found:
        if machine.state not in ("stopped", "pending", "running"):
            raise ApiError("IncorrectInstanceState", id=machine.id, verb="started")
        if machine.state == "stopped":
            spots.check_start(machine)
            launches.check_room(account, machine.zone, machine.type, spot=machine.spot)
    before = [(machine, machine.state) for machine in found]
    for machine in found:
        if machine.state == "stopped":
            spots.started(account, machine)
            instances.launch(account, machine)
    return show.changes(before)


def _terminate(account: Account, call: Call) -> str:
    found = _named(account, call)
    for machine in found:
        if machine.live and machine.moto.disable_api_termination is True:
            raise ApiError("OperationNotPermitted", id=machine.id)
    before = [(machine, machine.state) for machine in found]
    for machine in found:
        if machine.terminates_ignored < machine.behaviour.terminates_ignored:
            machine.terminates_ignored += 1
            continue
        instances.terminate(account, machine)
    return show.changes(before)


def _reboot(account: Account, call: Call) -> str:
    for machine in _named(account, call):
        if machine.state != "running":
            raise ApiError("IncorrectInstanceState", id=machine.id, verb="rebooted")
        instances.reboot(account, machine)
    return element("return", True)


def _status(account: Account, call: Call) -> str:
    return show.describe_status(account, call, instances.checks)


def _modify(account: Account, call: Call) -> str:
    params = call.params
    machine = account.machine(call.region, params.get("InstanceId", ""))
    if not machine.live:
        raise ApiError("IncorrectInstanceState", id=machine.id, verb="modified")
    for each in params.groups("BlockDeviceMapping"):
        if each.get("DeviceName") not in machine.moto.block_device_mapping:
            text = f"No device is currently mapped at {each.get('DeviceName')}"
            raise ApiError("InvalidInstanceAttributeValue", text=text)
    behaviour = params.get("InstanceInitiatedShutdownBehavior.Value")
    if behaviour is not None:
        machine.moto.instance_initiated_shutdown_behavior = behaviour
        return element("return", True)
    if "InstanceType.Value" in params and machine.state != "stopped":
        raise ApiError("IncorrectInstanceState", id=machine.id, verb="modified")
    _passed(account, call)
    machine.type = machine.moto.instance_type
    return element("return", True)


def _attribute(account: Account, call: Call) -> SimResponse:
    account.machine(call.region, call.params.get("InstanceId", ""))
    return account.moto.ask(call.service, call.region, call.headers, call.body)


def _tag(account: Account, call: Call) -> str:
    for each in call.params.listed("ResourceId"):
        if each.startswith("i-"):
            account.machine(call.region, each)
        elif each.startswith("vol-"):
            account.disk(call.region, each)
        elif each in account.requests and call.action == "CreateTags":
            request = account.requests[each]
            request.tags = account.moto.backend(call.region).tags[each]
    if call.action == "CreateTags":
        launches.check_tags({each["Key"]: each.get("Value", "") for each in call.params.groups("Tag")})
    _passed(account, call)
    return element("return", True)


def _delete_group(account: Account, call: Call) -> str:
    group = call.params.get("GroupId", "")
    if account.moto.holders_of_group(call.region, group):
        raise ApiError("DependencyViolation", id=group)
    _passed(account, call)
    return element("return", True)


def _delete_interface(account: Account, call: Call) -> str:
    nic_id = call.params.get("NetworkInterfaceId", "")
    nic = account.moto.backend(call.region).enis.get(nic_id)
    if nic is not None and nic.instance is not None:
        text = f"Network interface '{nic_id}' is currently in use."
        raise ApiError("InvalidParameterValue", text=text)
    _passed(account, call)
    return element("return", True)


def _modify_volume(account: Account, call: Call) -> SimResponse:
    disk = account.disk(call.region, call.params.get("VolumeId", ""))
    answered = account.moto.ask(call.service, call.region, call.headers, call.body)
    volumes.resized(account, disk)
    return answered


def _passed(account: Account, call: Call) -> SimResponse:
    """moto's answer to the call. Raises PassedOn where it refuses."""
    answered = account.moto.ask(call.service, call.region, call.headers, call.body)
    if answered.status >= 400:
        raise PassedOn(answered.status, answered.body)
    return answered


def _unsupported(account: Account, call: Call) -> str:
    raise ApiError("UnsupportedOperation", what=f"{call.action} is not simulated.")


OWN: dict[str, Operation] = {
    "RunInstances": _run,
    "StartInstances": _start,
    "StopInstances": _stop,
    "TerminateInstances": _terminate,
    "RebootInstances": _reboot,
    "DescribeInstances": show.describe_instances,
    "DescribeInstanceStatus": _status,
    "ModifyInstanceAttribute": _modify,
    "CreateTags": _tag,
    "DeleteTags": _tag,
    "CreateVolume": volumes.create,
    "AttachVolume": volumes.attach,
    "DetachVolume": volumes.detach,
    "DeleteVolume": volumes.delete,
    "DescribeVolumes": volumes.describe,
    "DescribeSpotInstanceRequests": spots.describe,
    "CancelSpotInstanceRequests": spots.cancel,
    "DescribeSpotPriceHistory": spot_prices.describe,
    "DeleteSecurityGroup": _delete_group,
    "DeleteNetworkInterface": _delete_interface,
    "RequestSpotInstances": _unsupported,
    "RequestSpotFleet": _unsupported,
    "CreateFleet": _unsupported,
}
CHECKED: dict[str, Callable[[Account, Call], SimResponse]] = {
    "DescribeInstanceAttribute": _attribute,
    "ModifyVolume": _modify_volume,
}
PAID_ELSEWHERE = frozenset(
    {"AllocateAddress", "ReleaseAddress", "CreateSnapshot", "CreateSnapshots", "CopySnapshot", "DeleteSnapshot"}
)


def other(account: Account, call: Call) -> SimResponse:
    """A call that is moto's; what it made or ended is written into the book."""
    answered = account.moto.ask(call.service, call.region, call.headers, call.body)
    if call.action in PAID_ELSEWHERE:
        _keep_book(account, call.region)
    return answered


def _keep_book(account: Account, region: str) -> None:
    backend = account.moto.backend(region)
    there = {each.allocation_id: each for each in backend.addresses}
    for address_id in there:
        if account.book.find(address_id) is None:
            tags = backend.tags[address_id]
            entry = account.book.add(Entry("address", address_id, region, "", "elastic-ip", tags, account.now))
            entry.begin(account.now, prices.ADDRESS_HOUR)
    own = {each.id: each for each in backend.snapshots.values() if each.owner_id == backend.account_id}
    own = {key: each for key, each in own.items() if not each.from_ami}
    for snapshot in own.values():
        if account.book.find(snapshot.id) is None:
            size = int(snapshot.volume.size)
            tags = backend.tags[snapshot.id]
            entry = account.book.add(
                Entry("snapshot", snapshot.id, region, "", "standard", tags, account.now, size_gb=size)
            )
            entry.begin(account.now, prices.SNAPSHOT_MONTH * size / prices.MONTH_HOURS)
    for entry in account.book:
        if entry.kind in ("address", "snapshot") and entry.region == region and entry.id not in there | own:
            entry.destroy(account.now)
