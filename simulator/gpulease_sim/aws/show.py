"""DescribeInstances and DescribeInstanceStatus, written out quickly: thousands of instances are listed often."""

import base64
import binascii
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from gpulease_sim.aws.account import CODES, Account, Machine
from gpulease_sim.aws.wire import ApiError, Call, Params, element, escape, items, matches, moment, tag_set, wanted


class Numbered(Protocol):
    """Something in the order of creation."""

    @property
    def number(self) -> int:
        """Counts up with creation."""
        ...


T = TypeVar("T", bound=Numbered)


def page(params: Params, found: Sequence[T]) -> tuple[Sequence[T], str | None]:
    """The page that is asked for, and the token of the next one."""
    start = 0
    if token := params.get("NextToken"):
        try:
            after = int(base64.b64decode(token, validate=True).decode())
        except (binascii.Error, ValueError):
            raise ApiError("InvalidParameterValue", text="Unable to parse pagination token") from None
        start = next((i for i, each in enumerate(found) if each.number > after), len(found))
    size = int(params.get("MaxResults", 0)) or len(found)
    shown = found[start : start + size]
    more = start + size < len(found)
    return shown, base64.b64encode(str(shown[-1].number).encode()).decode() if more else None


def _pool(account: Account, call: Call) -> list[Machine]:
    asked = call.params.listed("InstanceId")
    if asked:
        if "MaxResults" in call.params:
            text = "The parameter instancesSet cannot be used with the parameter maxResults"
            raise ApiError("InvalidParameterCombination", text=text)
        return [account.machine(call.region, each) for each in dict.fromkeys(asked)]
    return [each for each in account.machines_of(call.region) if account.now >= each.list_from]


def describe_instances(account: Account, call: Call) -> str:
    """DescribeInstances."""
    filters = wanted(call.params, _known)
    pool = _pool(account, call)
    found = [each for each in pool if matches(filters, functools.partial(_value, account, each))]
    shown, token = page(call.params, found)
    reservations: dict[str, list[Machine]] = {}
    for machine in shown:
        reservations.setdefault(machine.reservation_id, []).append(machine)
    return items("reservationSet", (reservation(account, each) for each in reservations.values())) + element(
        "nextToken", token
    )


def reservation(account: Account, machines: Sequence[Machine]) -> str:
    """One reservation with its instances."""
    owner = account.settings.account_id
    return f"<reservationId>{machines[0].reservation_id}</reservationId><ownerId>{owner}</ownerId><groupSet/>" + items(
        "instancesSet", (instance(account, each) for each in machines)
    )


def state(name: str, tag: str = "instanceState") -> str:
    """A state with its code."""
    return f"<{tag}><code>{CODES[name]}</code><name>{name}</name></{tag}>"


def changes(pairs: Iterable[tuple[Machine, str]]) -> str:
    """Answer of start, stop and terminate: the machines as they are, with their states before."""
    return items(
        "instancesSet",
        (
            f"<instanceId>{each.id}</instanceId>{state(each.state, 'currentState')}{state(before, 'previousState')}"
            for each, before in pairs
        ),
    )


def instance(account: Account, machine: Machine) -> str:
    """One instance."""
    moto, gone = machine.moto, machine.state == "terminated"
    public = machine.public_ip
    public_name = moto.public_dns_name if public else ""
    request = machine.request
    parts = [
        f"<instanceId>{machine.id}</instanceId><imageId>{moto.image_id}</imageId>{state(machine.state)}",
        f"<privateDnsName>{'' if gone else moto.private_dns_name}</privateDnsName><dnsName>{public_name}</dnsName>",
        f"<reason>{escape(machine.transition_reason)}</reason>",
        element("keyName", moto.key_name),
        f"<amiLaunchIndex>{moto.ami_launch_index}</amiLaunchIndex><productCodes/>",
        f"<instanceType>{machine.type}</instanceType><launchTime>{moment(machine.launched)}</launchTime>",
        f"<placement><availabilityZone>{machine.zone}</availabilityZone><groupName/><tenancy>default</tenancy>"
        f"</placement><monitoring><state>{moto.monitoring_state}</state></monitoring>",
    ]
    if not gone:
        parts.append(f"<subnetId>{moto.subnet_id}</subnetId><vpcId>{moto.vpc_id}</vpcId>")
        parts.append(f"<privateIpAddress>{moto.private_ip}</privateIpAddress>{element('ipAddress', public)}")
    if machine.reason is not None:
        code, text = machine.reason
        parts.append(f"<stateReason><code>{escape(code)}</code><message>{escape(text)}</message></stateReason>")
    brief = account.settings.brief
    parts += [
        "" if brief else _groups(machine),
        f"<architecture>{moto.architecture}</architecture><rootDeviceType>ebs</rootDeviceType>"
        f"<rootDeviceName>{moto.root_device_name}</rootDeviceName>",
        _mappings(account, machine),
        f"<virtualizationType>{moto.virtualization_type}</virtualizationType>",
        element("instanceLifecycle", "spot" if request is not None else None),
        element("spotInstanceRequestId", request.id if request is not None else None),
        f"<clientToken>{escape(moto.client_token or '')}</clientToken>{tag_set(machine.tags)}",
        "<hypervisor>xen</hypervisor>",
        "<networkInterfaceSet/>" if gone or brief else items("networkInterfaceSet", (_nic(account, machine, public),)),
        f"<ebsOptimized>{escape(bool(moto.ebs_optimized))}</ebsOptimized>",
        f"<sourceDestCheck>{escape(bool(moto.source_dest_check))}</sourceDestCheck>",
        "" if brief else _metadata(machine),
    ]
    return "".join(parts)


def _groups(machine: Machine) -> str:
    if machine.state == "terminated":
        return "<groupSet/>"
    # Groups that the launch gave to its interface are in moto's interface alone.
    groups = machine.moto.security_groups or machine.moto.nics[0]._group_set
    return items(
        "groupSet",
        (f"<groupId>{each.id}</groupId><groupName>{escape(each.name)}</groupName>" for each in groups),
    )


def _metadata(machine: Machine) -> str:
    given = machine.moto.metadata_options
    return (
        f"<metadataOptions><state>{given.state}</state><httpTokens>{given.http_tokens}</httpTokens>"
        f"<httpPutResponseHopLimit>{given.http_put_response_hop_limit}</httpPutResponseHopLimit>"
        f"<httpEndpoint>{given.http_endpoint}</httpEndpoint><httpProtocolIpv6>{given.http_protocol_ipv6}"
        f"</httpProtocolIpv6><instanceMetadataTags>{given.instance_metadata_tags}</instanceMetadataTags>"
        "</metadataOptions>"
    )


def _mappings(account: Account, machine: Machine) -> str:
    shown = []
    for device, each in machine.moto.block_device_mapping.items():
        disk = account.disks.get(each.volume_id)
        if disk is None:
            continue
        shown.append(
            f"<deviceName>{escape(device)}</deviceName><ebs><volumeId>{disk.id}</volumeId><status>{disk.attachment}"
            f"</status><attachTime>{moment(disk.attached_at)}</attachTime>"
            f"<deleteOnTermination>{escape(bool(each.delete_on_termination))}</deleteOnTermination></ebs>"
        )
    return items("blockDeviceMapping", shown)


def _nic(account: Account, machine: Machine, public: str | None) -> str:
    nic = machine.moto.nics[0]
    owner = account.settings.account_id
    association = ""
    if public:
        association = (
            f"<association><publicIp>{public}</publicIp><publicDnsName>{machine.moto.public_dns_name}</publicDnsName>"
            f"<ipOwnerId>{owner}</ipOwnerId></association>"
        )
    return (
        f"<networkInterfaceId>{nic.id}</networkInterfaceId><subnetId>{nic.subnet.id}</subnetId>"
        f"<vpcId>{nic.subnet.vpc_id}</vpcId>"
        f"<description>{escape(nic.description)}</description><ownerId>{owner}</ownerId><status>in-use</status>"
        f"<macAddress>{nic.mac_address}</macAddress><privateIpAddress>{nic.private_ip_address}</privateIpAddress>"
        f"<sourceDestCheck>true</sourceDestCheck>{_groups(machine)}"
        f"<attachment><attachmentId>{nic.attachment_id}</attachmentId><deviceIndex>0</deviceIndex>"
        f"<status>attached</status><attachTime>{moment(machine.created)}</attachTime>"
        f"<deleteOnTermination>true</deleteOnTermination><networkCardIndex>0</networkCardIndex></attachment>"
        f"{association}<privateIpAddressesSet><item><privateIpAddress>{nic.private_ip_address}</privateIpAddress>"
        f"<primary>true</primary>{association}</item></privateIpAddressesSet><ipv6AddressesSet/>"
        "<interfaceType>interface</interfaceType>"
    )


_FILTERS: dict[str, Callable[[Account, Machine], list[str] | str | None]] = {
    "instance-id": lambda a, m: m.id,
    "instance-state-name": lambda a, m: m.state,
    "instance-state-code": lambda a, m: str(CODES[m.state]),
    "instance-type": lambda a, m: m.type,
    "instance-lifecycle": lambda a, m: "spot" if m.spot else None,
    "spot-instance-request-id": lambda a, m: m.request.id if m.request else None,
    "availability-zone": lambda a, m: m.zone,
    "client-token": lambda a, m: m.moto.client_token,
    "image-id": lambda a, m: m.moto.image_id,
    "key-name": lambda a, m: m.moto.key_name,
    "subnet-id": lambda a, m: m.moto.subnet_id,
    "vpc-id": lambda a, m: m.moto.vpc_id,
    "reservation-id": lambda a, m: m.reservation_id,
    "owner-id": lambda a, m: a.settings.account_id,
    "architecture": lambda a, m: m.moto.architecture,
    "root-device-name": lambda a, m: m.moto.root_device_name,
    "state-reason-code": lambda a, m: m.reason[0] if m.reason else None,
    "private-ip-address": lambda a, m: m.moto.private_ip,
    "ip-address": lambda a, m: m.public_ip,
    "launch-time": lambda a, m: moment(m.launched),
    "instance.group-id": lambda a, m: [each.id for each in m.moto.security_groups],
    "instance.group-name": lambda a, m: [each.name for each in m.moto.security_groups],
    "network-interface.network-interface-id": lambda a, m: [each.id for each in m.moto.nics.values()],
    "block-device-mapping.volume-id": lambda a, m: [d.id for d in a.disks_of(m)],
    "block-device-mapping.device-name": lambda a, m: list(m.moto.block_device_mapping),
    "tag-key": lambda a, m: list(m.tags),
}


def _known(name: str) -> bool:
    return name in _FILTERS or name.startswith("tag:")


def _value(account: Account, machine: Machine, name: str) -> list[str] | str | None:
    return machine.tags.get(name[4:]) if name.startswith("tag:") else _FILTERS[name](account, machine)


# --- status checks ---


def describe_status(account: Account, call: Call, checks: Callable[[Account, Machine], str]) -> str:
    """DescribeInstanceStatus: running ones only, unless all are asked for."""
    filters = wanted(call.params, _known_status)
    everything = call.params.flag("IncludeAllInstances")
    pool = [each for each in _pool(account, call) if everything or each.state == "running"]

    def value(machine: Machine, name: str) -> list[str] | str | None:
        if name in ("instance-status.status", "system-status.status"):
            return checks(account, machine)
        return _FILTERS[name](account, machine)

    found = [each for each in pool if matches(filters, functools.partial(value, each))]
    shown, token = page(call.params, found)
    return items("instanceStatusSet", (_status(each, checks(account, each)) for each in shown)) + element(
        "nextToken", token
    )


def _known_status(name: str) -> bool:
    return name in (
        "instance-status.status",
        "system-status.status",
        "instance-state-name",
        "instance-state-code",
        "availability-zone",
    )


def _status(machine: Machine, status: str) -> str:
    passed = {"ok": "passed", "initializing": "initializing", "impaired": "failed"}.get(status)
    details = f"<details><item><name>reachability</name><status>{passed}</status></item></details>" if passed else ""
    return (
        f"<instanceId>{machine.id}</instanceId><availabilityZone>{machine.zone}</availabilityZone>{state(machine.state)}"
        f"<systemStatus><status>{status}</status>{details}</systemStatus>"
        f"<instanceStatus><status>{status}</status>{details}</instanceStatus>"
    )
