"""RunInstances: tokens, checks, capacity, and the making of instances and spot requests."""

import base64
import hashlib
import json
import re
from urllib.parse import urlencode

from gpulease_sim.aws import instances, spot_prices, volumes
from gpulease_sim.aws.account import Account, Machine, SpotRequest, Token
from gpulease_sim.aws.book import Entry
from gpulease_sim.aws.moto_side import vcpus
from gpulease_sim.aws.settings import behaviour_of
from gpulease_sim.aws.wire import ApiError, Call, Params
from gpulease_sim.draws import Draws

USER_DATA_BYTES = 16_384
_NOT_COMPARED = ("Action", "Version", "ClientToken", "DryRun")
_ROOT_GB = 75
_GROUP_OF_INTERFACE = re.compile(r"NetworkInterface\.\d+\.SecurityGroupId\.\d+")


def fingerprint(params: Params) -> str:
    """What has to be the same when a token is used again."""
    kept = sorted((key, value) for key, value in params.items() if key not in _NOT_COMPARED)
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()


def run(account: Account, call: Call) -> list[Machine]:
    """RunInstances. The same token gives the same instances, whatever became of them."""
    params = call.params
    for name in ("ImageId", "InstanceType", "MinCount", "MaxCount"):
        if name not in params:
            raise ApiError("MissingParameter", name=name)
    key, known = claim(account, call, "RunInstances", params.get("Placement.AvailabilityZone", ""))
    if known is not None and known.ids:
        found = [account.machines.get(each) for each in known.ids]
        made = [each for each in found if each is not None and each.live]
        if len(made) < len(found):
            raise ApiError("IdempotentInstanceTerminated")
        return made
    _check(account, call.region, params)
    spot = _market(params)
    zone = _zone(account, call.region, params, spot)
    check_room(account, zone, params["InstanceType"], spot=spot, count=int(params["MaxCount"]))
    if spot:
        spot_prices.check_most(account, params, zone)
    request = _request(account, call.region, zone, params) if spot else None
    try:
        made = make(account, call.region, zone, params, request)
    except Exception:
        if request is not None:
            account.requests.pop(request.id, None)
        raise
    if request is not None:
        request.instance_id = made[0].id
        account.requests[request.id] = request
        account.book.add(
            Entry("spot_request", request.id, call.region, zone, params["InstanceType"], request.tags, account.now)
        )
    if key is not None:
        account.tokens[key].ids = [each.id for each in made]
    return made


def claim(account: Account, call: Call, action: str, scope: str) -> tuple[tuple[str, ...] | None, Token | None]:
    """The token's key and what it was used for before. Raises IdempotentParameterMismatch."""
    token = call.params.get("ClientToken")
    if not token:
        return None, None
    if len(token) > 64:
        raise ApiError("InvalidParameterValue", text="ClientToken is longer than 64 characters")
    key = (action, call.region, scope, token)
    print_ = fingerprint(call.params)
    known = account.tokens.setdefault(key, Token(print_))
    if known.params != print_:
        raise ApiError("IdempotentParameterMismatch")
    return key, known


def _check(account: Account, region: str, params: Params) -> None:
    backend = account.moto.backend(region)
    if params["ImageId"] not in backend.amis:
        raise ApiError("InvalidAMIID.NotFound", id=params["ImageId"])
    if vcpus(params["InstanceType"]) is None:
        raise ApiError("InvalidParameterValue", text=f"Invalid value '{params['InstanceType']}' for InstanceType.")
    if not 1 <= int(params["MinCount"]) <= int(params["MaxCount"]):
        raise ApiError("InvalidParameterValue", text="MinCount and MaxCount do not fit together")
    user_data = params.get("UserData", "")
    if len(base64.b64decode(user_data)) > USER_DATA_BYTES:
        raise ApiError("InvalidParameterValue", text=f"User data is limited to {USER_DATA_BYTES} bytes")
    for type_ in ("instance", "volume", "network-interface", "spot-instances-request"):
        check_tags(params.tags(type_))
    for name, group in params.items():
        # Of a launch's own groups moto knows it; those of its interfaces it takes as they come.
        if _GROUP_OF_INTERFACE.fullmatch(name) and backend.get_security_group_from_id(group) is None:
            raise ApiError("InvalidGroup.NotFound", text=f"The security group '{group}' does not exist")


def check_tags(tags: dict[str, str]) -> None:
    """Raises what EC2 says to too many, too long or reserved tags."""
    if len(tags) > 50:
        raise ApiError("TagLimitExceeded", text="The maximum number of Tags for a resource has been reached.")
    for key, value in tags.items():
        if key.lower().startswith("aws:"):
            raise ApiError("InvalidParameterValue", text=f"Tag keys starting with 'aws:' are reserved: {key}")
        if len(key) > 127 or len(value) > 255:
            raise ApiError("InvalidParameterValue", text=f"Tag too long: {key}")


def _market(params: Params) -> bool:
    prefix = "InstanceMarketOptions."
    if params.get(prefix + "MarketType") != "spot":
        return False
    persistent = params.get(prefix + "SpotOptions.SpotInstanceType", "one-time") == "persistent"
    interruption = params.get(prefix + "SpotOptions.InstanceInterruptionBehavior", "terminate")
    if persistent == (interruption == "terminate"):
        raise ApiError(
            "InvalidParameterCombination",
            text="Interruption behavior stop or hibernate goes with persistent Spot requests, and only with them.",
        )
    return True


def _zone(account: Account, region: str, params: Params, spot: bool) -> str:
    """The zone that the call names, or one with room."""
    backend = account.moto.backend(region)
    subnet = params.get("SubnetId") or params.get("NetworkInterface.1.SubnetId")
    if subnet:
        if not any(subnet in by_id for by_id in backend.subnets.values()):
            raise ApiError("InvalidSubnetID.NotFound", text=f"The subnet ID '{subnet}' does not exist")
        found: str = backend.get_subnet(subnet).availability_zone
        return found
    named = params.get("Placement.AvailabilityZone")
    zones: list[str] = sorted(backend.get_default_subnets())
    if named:
        if named not in zones:
            raise ApiError("InvalidParameterValue", text=f"Invalid availability zone: [{named}]")
        return named
    first = account.draws("zone", account.number("draw")).integer((0, len(zones) - 1), "zone")
    for zone in [*zones[first:], *zones[:first]]:
        if _free(account, zone, params["InstanceType"]) > 0 and not _unsupported(account, zone, params["InstanceType"]):
            return zone
    return zones[first]


def _unsupported(account: Account, zone: str, type_: str) -> bool:
    return bool({f"{zone}/{type_}", f"{zone[:-1]}/{type_}"} & account.settings.not_offered)


def _free(account: Account, zone: str, type_: str) -> float:
    rooms = [
        (place, kind, account.settings.capacity[f"{place}/{kind}"])
        for place in (zone, zone[:-1], "*")
        for kind in (type_, "*")
        if f"{place}/{kind}" in account.settings.capacity
    ]
    if not rooms:
        return 1_000_000
    used = [each for each in account.machines.values() if each.state in ("pending", "running")]
    return min(
        room - sum(1 for m in used if place in (m.zone, m.zone[:-1], "*") and kind in (m.type, "*"))
        for place, kind, room in rooms
    )


def check_room(account: Account, zone: str, type_: str, *, spot: bool, count: int = 1) -> None:
    """Raises what EC2 says when there is no room: not offered, capacity, quota."""
    settings = account.settings
    if _unsupported(account, zone, type_):
        raise ApiError("Unsupported", type=type_, zone=zone)
    limit = settings.spot_vcpu_limit if spot else settings.vcpu_limit
    if limit is not None:
        used = sum(
            vcpus(each.type) or 0
            for each in account.machines_of(zone[:-1])
            if each.state in ("pending", "running") and each.spot == spot
        )
        if used + count * (vcpus(type_) or 0) > limit:
            raise ApiError("MaxSpotInstanceCountExceeded" if spot else "VcpuLimitExceeded", limit=str(limit))
    if _free(account, zone, type_) < count or account.happens(settings.no_capacity_probability):
        raise ApiError("InsufficientInstanceCapacity", status=settings.no_capacity_status, type=type_, zone=zone)


def _request(account: Account, region: str, zone: str, params: Params) -> SpotRequest:
    options = "InstanceMarketOptions.SpotOptions."
    number = account.number("request")
    kept = Params((k, v) for k, v in params.items() if not k.startswith(("TagSpecification.", "ClientToken")))
    tags = params.tags("spot-instances-request")
    request_id = f"sir-{Draws(account.seed, f'request/{number}').text('id', 8)}"
    if tags:
        account.moto.backend(region).tags[request_id] = tags
    return SpotRequest(
        request_id,
        region,
        zone,
        params.get(options + "SpotInstanceType", "one-time") == "persistent",
        params.get(options + "InstanceInterruptionBehavior", "terminate"),
        kept,
        tags,
        account.now,
        updated=account.now,
    )


def make(account: Account, region: str, zone: str, params: Params, request: SpotRequest | None) -> list[Machine]:
    """Let moto make the instances, and begin their lives."""
    body = urlencode(_complete(account, region, zone, params)).encode()
    reservation = account.moto.make(region, body)
    made = []
    for each in reservation.instances:
        number = account.number("instance")
        tags = account.moto.backend(region).tags[each.id]
        type_ = params["InstanceType"]
        entry = account.book.add(
            Entry("instance", each.id, region, zone, type_, tags, account.now, user_data=params.get("UserData", ""))
        )
        entry.spot = request is not None
        machine = Machine(
            id=each.id,
            number=number,
            region=region,
            zone=zone,
            type=type_,
            moto=each,
            reservation_id=reservation.id,
            behaviour=behaviour_of(account.settings, type_, zone, request is not None, tags, number),
            draws=account.draws("instance", number),
            created=account.now,
            tags=tags,
            entry=entry,
            request=request,
        )
        account.machines[machine.id] = machine
        account.moto.tag_interfaces(region, each, params.tags("network-interface"))
        volumes.made_with(account, machine)
        instances.launch(account, machine)
        made.append(machine)
    return made


def _complete(account: Account, region: str, zone: str, params: Params) -> Params:
    """What EC2 adds by itself and moto does not: subnet, security group, the image's root volume and its deletion."""
    backend = account.moto.backend(region)
    sent = Params(params)
    sent["MinCount"] = sent["MaxCount"]
    if "SubnetId" not in sent and "NetworkInterface.1.DeviceIndex" not in sent:
        sent["SubnetId"] = backend.get_default_subnets()[zone].id
        sent.pop("Placement.AvailabilityZone", None)
    if not any(key.startswith(("SecurityGroup", "NetworkInterface.")) for key in sent):
        vpc = backend.get_subnet(sent["SubnetId"]).vpc_id
        sent["SecurityGroupId.1"] = backend.get_default_security_group(vpc).id
    root = backend.amis[params["ImageId"]].root_device_name
    mappings = params.groups("BlockDeviceMapping")
    index = next((i for i, each in enumerate(mappings, 1) if each.get("DeviceName") == root), len(mappings) + 1)
    name = f"BlockDeviceMapping.{index}."
    sent[name + "DeviceName"] = root
    sent.setdefault(name + "Ebs.VolumeSize", str(_ROOT_GB))
    sent.setdefault(name + "Ebs.VolumeType", "gp3")
    sent.setdefault(name + "Ebs.DeleteOnTermination", "true")
    for i in range(1, len(mappings) + 1):
        sent.setdefault(f"BlockDeviceMapping.{i}.Ebs.VolumeType", "gp3")
        sent.setdefault(f"BlockDeviceMapping.{i}.Ebs.DeleteOnTermination", "true")
    return sent
