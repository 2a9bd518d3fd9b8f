"""EBS volumes: creating, available, in-use, deleting; attachments that take time, hang, or are refused."""

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from gpulease_sim.aws import launches, prices, show
from gpulease_sim.aws.account import Account, Disk, Machine
from gpulease_sim.aws.book import Entry
from gpulease_sim.aws.settings import volume_behaviour_of
from gpulease_sim.aws.wire import ApiError, Call, Params, element, items, matches, moment, tag_set, wanted


def _later(account: Account, disk: Disk, when: float, action: Callable[[], None]) -> None:
    turn = disk.turn

    def act() -> None:
        if disk.turn == turn:
            action()

    account.at(when, act)


def _hourly(region: str, made: Any) -> Decimal:
    month = prices.STORAGE_MONTH.get(made.volume_type, prices.STORAGE_MONTH["gp3"]) * int(made.size)
    if made.volume_type == "gp3":
        month += prices.THROUGHPUT_MONTH * max(0, int(made.throughput or 0) - prices.THROUGHPUT_FREE)
        month += prices.IOPS_MONTH * max(0, int(made.iops or 0) - prices.IOPS_FREE)
    return month * prices.factor(region) / prices.MONTH_HOURS


def _check_speed(params: Params) -> None:
    """Raises what EC2 says to a throughput or IOPS that a volume cannot have."""
    if "Throughput" not in params and "Iops" not in params:
        return
    type_, size = params.get("VolumeType", "gp2"), int(params.get("Size", 0))
    throughput = int(params.get("Throughput", prices.THROUGHPUT_FREE))
    if "Throughput" in params and type_ != "gp3":
        text = f"The parameter Throughput is not supported for {type_} volumes."
        raise ApiError("InvalidParameterCombination", text=text)
    if type_ != "gp3":
        return
    iops = int(params.get("Iops", prices.IOPS_FREE))
    if not 125 <= throughput <= 1000:
        raise ApiError("InvalidParameterValue", text=f"Volume throughput of {throughput} MiB/s is not valid.")
    if not 3000 <= iops <= 16000 or (iops > 3000 and iops > 500 * size):
        raise ApiError("InvalidParameterValue", text=f"Volume iops of {iops} is not valid for {size} GiB.")
    if throughput > iops / 4:
        text = "Throughput (MiBps) to iops ratio is too high; maximum is 0.25 MiBps per iops."
        raise ApiError("InvalidParameterValue", text=text)


def _new(account: Account, region: str, made: object) -> Disk:
    volume = made
    number = account.number("volume")
    tags = account.moto.backend(region).tags[volume.id]  # type: ignore[attr-defined]
    zone, type_, size = volume.zone.name, volume.volume_type, int(volume.size)  # type: ignore[attr-defined]
    entry = account.book.add(
        Entry("volume", volume.id, region, zone, type_, tags, account.now, size_gb=size)  # type: ignore[attr-defined]
    )
    entry.begin(account.now, _hourly(region, made))
    disk = Disk(
        id=entry.id,
        number=number,
        region=region,
        zone=zone,
        moto=volume,
        behaviour=volume_behaviour_of(account.settings, type_, zone, tags, number),
        draws=account.draws("volume", number),
        created=account.now,
        tags=tags,
        entry=entry,
    )
    account.disks[disk.id] = disk
    return disk


# --- with an instance's life ---


def made_with(account: Account, machine: Machine) -> None:
    """Volumes that RunInstances made."""
    backend = account.moto.backend(machine.region)
    for device, each in list(machine.moto.block_device_mapping.items()):
        disk = _new(account, machine.region, backend.volumes[each.volume_id])
        _hold(account, disk, machine, device)


def _hold(account: Account, disk: Disk, machine: Machine, device: str) -> None:
    disk.state, disk.machine, disk.device, disk.attachment = "in-use", machine, device, "attaching"
    disk.attached_at = account.now
    disk.attachments += 1
    disk.turn += 1


def machine_runs(account: Account, machine: Machine) -> None:
    """Volumes from the launch are attached once the instance runs."""
    for disk in account.disks_of(machine):
        if disk.attachment == "attaching" and disk.attached_at <= machine.launched:
            disk.attachment = "attached"


def machine_stopped(account: Account, machine: Machine) -> None:
    """Nothing in the guest holds a volume any more: hanging detaches come to an end."""
    for disk in account.disks_of(machine):
        if disk.attachment in ("detaching", "busy"):
            _free(account, disk)


def machine_terminated(account: Account, machine: Machine) -> None:
    """Volumes go with it or become free."""
    for device, each in list(machine.moto.block_device_mapping.items()):
        disk = account.disks.get(each.volume_id)
        if disk is None:
            machine.moto.block_device_mapping.pop(device)
            continue
        goes = each.delete_on_termination
        _free(account, disk)
        if goes:
            _gone(account, disk)


def _free(account: Account, disk: Disk) -> None:
    machine, device = disk.machine, disk.device
    account.moto.detach(disk.moto)
    disk.state, disk.machine, disk.device, disk.attachment, disk.mounted = "available", None, "", "", False
    disk.turn += 1
    if machine is not None and machine.guest_up:
        seen = account.view(machine)
        for guests in list(account.guests):
            guests.volume_detached(seen, disk.id, device, account.now)


def _gone(account: Account, disk: Disk) -> None:
    disk.turn += 1
    account.moto.backend(disk.region).volumes.pop(disk.id, None)
    account.moto.backend(disk.region).tags.pop(disk.id, None)
    account.disks.pop(disk.id, None)
    disk.entry.destroy(account.now)


# --- calls ---


def create(account: Account, call: Call) -> str:
    """CreateVolume. The same token gives the same volume."""
    params = call.params
    for name in ("AvailabilityZone",):
        if name not in params:
            raise ApiError("MissingParameter", name=name)
    key, known = launches.claim(account, call, "CreateVolume", "")
    if known is not None and known.ids:
        disk = account.disks.get(known.ids[0])
        if disk is None:
            raise ApiError("InvalidVolume.NotFound", id=known.ids[0])
        return _wire(account, disk)
    launches.check_tags(params.tags("volume"))
    if not params["AvailabilityZone"].startswith(call.region):
        text = f"The zone '{params['AvailabilityZone']}' does not exist."
        raise ApiError("InvalidZone.NotFound", text=text)
    _check_speed(params)
    limit = account.settings.volume_limit
    if limit is not None and sum(1 for each in account.disks.values() if each.region == call.region) >= limit:
        raise ApiError("VolumeLimitExceeded")
    disk = _new(account, call.region, account.moto.make(call.region, call.body))
    if key is not None:
        account.tokens[key].ids = [disk.id]
    when = account.now + disk.draws.between(disk.behaviour.available_seconds, "available")
    wire = _wire(account, disk)
    _later(account, disk, when, functools.partial(_available, account, disk))
    return wire


def _available(account: Account, disk: Disk) -> None:
    disk.state = "error" if disk.behaviour.fails else "available"
    disk.turn += 1


def attach(account: Account, call: Call) -> str:
    """AttachVolume: from `available`, to an instance of the same zone that is running or stopped."""
    params = call.params
    for name in ("VolumeId", "InstanceId", "Device"):
        if name not in params:
            raise ApiError("MissingParameter", name=name)
    disk = account.disk(call.region, params["VolumeId"])
    machine = account.machine(call.region, params["InstanceId"])
    if disk.zone != machine.zone:
        raise ApiError("InvalidVolume.ZoneMismatch", id=disk.id, instance=machine.id)
    if disk.machine is not None:
        raise ApiError("VolumeInUse", id=disk.id)
    if disk.state != "available":
        raise ApiError("IncorrectState", what=f"{disk.id} is not 'available'.")
    if machine.state not in ("running", "stopped"):
        raise ApiError("IncorrectState", what=f"Instance '{machine.id}' is not 'running'.")
    device = params["Device"]
    if device in machine.moto.block_device_mapping:
        text = f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use"
        raise ApiError("InvalidParameterValue", text=text)
    if len(machine.moto.block_device_mapping) > account.settings.attach_limit:
        raise ApiError("AttachmentLimitExceeded", id=machine.id)
    account.moto.attach(disk.moto, machine.moto, device, account.now, delete_on_termination=False)
    _hold(account, disk, machine, device)
    when = account.now + disk.draws.between(disk.behaviour.attached_seconds, f"attached {disk.attachments}")
    wire = _attachment(disk)
    _later(account, disk, when, functools.partial(_attached, account, disk, machine))
    return wire


def _attached(account: Account, disk: Disk, machine: Machine) -> None:
    disk.attachment = "attached"
    disk.turn += 1
    if machine.guest_up:
        seen = account.view(machine)
        for guests in list(account.guests):
            guests.volume_attached(seen, disk.id, disk.device, account.now)


def detach(account: Account, call: Call) -> str:
    """DetachVolume: takes a while; `busy` as long as the guest has it mounted, unless forced."""
    params = call.params
    disk = account.disk(call.region, params.get("VolumeId", ""))
    machine = disk.machine
    if machine is None:
        raise ApiError("IncorrectState", what=f"Volume '{disk.id}' is in the 'available' state.")
    asked = params.get("InstanceId", machine.id)
    if asked != machine.id:
        account.machine(call.region, asked)
        raise ApiError("InvalidAttachment.NotFound", id=disk.id)
    if params.get("Device", disk.device) != disk.device:
        raise ApiError("InvalidAttachment.NotFound", id=disk.id)
    if disk.device == machine.moto.root_device_name and machine.state not in ("stopped",):
        raise ApiError("OperationNotPermitted", text="Unable to detach root volume of an instance that is not stopped")
    force = params.flag("Force")
    if disk.attachment in ("detaching", "busy") and not force:
        if disk.attachment == "busy" and not disk.mounted:
            _start_detach(account, disk)
        return _attachment(disk)
    if disk.mounted and not force:
        disk.attachment = "busy"
        disk.turn += 1
    else:
        _start_detach(account, disk, force)
    return _attachment(disk)


def _start_detach(account: Account, disk: Disk, force: bool = False) -> None:
    disk.attachment = "detaching"
    disk.turn += 1
    seconds = disk.draws.between(disk.behaviour.detached_seconds, f"detached {disk.attachments}")
    _later(
        account, disk, account.now + (min(seconds, 5.0) if force else seconds), functools.partial(_free, account, disk)
    )


def unmounted(account: Account, disk: Disk) -> None:
    """The guest let go of it: a detach that was busy goes on."""
    disk.mounted = False
    if disk.attachment == "busy":
        _start_detach(account, disk)


def delete(account: Account, call: Call) -> str:
    """DeleteVolume: only when free."""
    disk = account.disk(call.region, call.params.get("VolumeId", ""))
    if disk.machine is not None:
        raise ApiError("VolumeInUse", id=disk.id)
    if disk.state not in ("available", "error"):
        raise ApiError("IncorrectState", what=f"{disk.id} is {disk.state}.")
    disk.state = "deleting"
    disk.turn += 1
    when = account.now + disk.draws.between(disk.behaviour.deleted_seconds, "deleted")
    _later(account, disk, when, functools.partial(_gone, account, disk))
    return element("return", True)


def resized(account: Account, disk: Disk) -> None:
    """After ModifyVolume: another price."""
    size, type_ = int(disk.moto.size), disk.moto.volume_type
    hourly = _hourly(disk.region, disk.moto)
    if (size, type_, hourly) != (disk.entry.size_gb, disk.entry.type, disk.entry.spans[-1].usd_per_hour):
        disk.entry.size_gb, disk.entry.type = size, type_
        disk.entry.begin(account.now, hourly)


def describe(account: Account, call: Call) -> str:
    """DescribeVolumes."""
    params = call.params
    asked = params.listed("VolumeId")
    filters = wanted(params, _known)
    if asked:
        pool = [account.disk(call.region, each) for each in asked]
    else:
        pool = [disk for disk in account.disks.values() if disk.region == call.region and account.now >= disk.list_from]
    found = [disk for disk in pool if matches(filters, functools.partial(_value, disk))]
    page, token = show.page(params, found)
    return items("volumeSet", (_wire(account, disk) for disk in page)) + element("nextToken", token)


def _flag(disk: Disk) -> bool:
    machine = disk.machine
    if machine is None or disk.device not in machine.moto.block_device_mapping:
        return False
    return bool(machine.moto.block_device_mapping[disk.device].delete_on_termination)


_FILTERS: dict[str, Callable[[Disk], list[str] | str | None]] = {
    "volume-id": lambda d: d.id,
    "status": lambda d: d.state,
    "availability-zone": lambda d: d.zone,
    "size": lambda d: str(d.moto.size),
    "volume-type": lambda d: d.moto.volume_type,
    "snapshot-id": lambda d: d.moto.snapshot_id,
    "encrypted": lambda d: str(bool(d.moto.encrypted)).lower(),
    "create-time": lambda d: moment(d.created),
    "attachment.instance-id": lambda d: d.machine.id if d.machine else None,
    "attachment.device": lambda d: d.device or None,
    "attachment.status": lambda d: d.attachment or None,
    "attachment.delete-on-termination": lambda d: str(_flag(d)).lower() if d.machine else None,
    "tag-key": lambda d: list(d.tags),
}


def _known(name: str) -> bool:
    return name in _FILTERS or name.startswith("tag:")


def _value(disk: Disk, name: str) -> list[str] | str | None:
    return disk.tags.get(name[4:]) if name.startswith("tag:") else _FILTERS[name](disk)


def _attachment(disk: Disk) -> str:
    return (
        element("volumeId", disk.id)
        + element("instanceId", disk.machine.id if disk.machine else None)
        + element("device", disk.device)
        + element("status", disk.attachment)
        + element("attachTime", moment(disk.attached_at))
        + element("deleteOnTermination", _flag(disk))
    )


def _wire(account: Account, disk: Disk) -> str:
    volume = disk.moto
    return (
        element("volumeId", disk.id)
        + element("size", volume.size)
        + (element("snapshotId", volume.snapshot_id) or "<snapshotId/>")
        + element("availabilityZone", disk.zone)
        + element("status", disk.state)
        + element("createTime", moment(disk.created))
        + (items("attachmentSet", [_attachment(disk)]) if disk.machine else "<attachmentSet/>")
        + tag_set(disk.tags)
        + element("volumeType", volume.volume_type)
        + element("iops", volume.iops)
        + element("throughput", volume.throughput)
        + element("encrypted", bool(volume.encrypted))
        + element("kmsKeyId", volume.kms_key_id)
        + element("multiAttachEnabled", bool(volume.multi_attach_enabled))
    )


def destroy(account: Account, disk: Disk) -> None:
    """Gone at once, wherever it hangs (somebody's hand in the console)."""
    if disk.machine is not None:
        _free(account, disk)
    _gone(account, disk)
