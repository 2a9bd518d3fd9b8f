"""EC2's objects in vendor-neutral words.

- Everything of one launch carries the marker of its machine; its disks carry the same with `volume` for `instance`, so
  that one that survives the machine is known for what it is.
- An instance is ready when it runs, both status checks say `ok`, and it has a public address.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from gpulease.domain.observation import Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import ResourceKind
from gpulease.providers.aws.errors import reason_of

MARKER_TAG = "gpulease-marker"
DEPLOYMENT_TAG = "gpulease-deployment"
"""Policies allow changes only to what carries this tag."""
KEEP_TAG = "gpulease:keep"
"""The sweep leaves alone what carries it, also when nobody owns it."""
MARKER_PREFIX = "gpulease:"
LIVE_STATES = ("pending", "running", "stopping", "stopped", "shutting-down")
MOVING_STATES = ("pending", "running", "stopping", "shutting-down")
"""What runs is in motion as long as its checks are not ok."""
CHECKS_OK = "checks ok"

Raw = Mapping[str, Any]
_INSTANCE, _VOLUME = ".instance.", ".volume."
_CONDITIONS = {
    "pending": Condition.PENDING,
    "running": Condition.PENDING,
    "stopping": Condition.STOPPING,
    "stopped": Condition.STOPPED,
    "shutting-down": Condition.DELETING,
    "terminated": Condition.DELETING,
}


def deployment_of(marker: str) -> str:
    """The deployment that a marker names; empty for one that is not ours."""
    prefix, _, rest = marker.partition(":")
    return rest.partition(":")[0] if prefix == MARKER_PREFIX[:-1] else ""


def disk_marker(machine_marker: str) -> str:
    """The marker of the disks that come with a machine."""
    return machine_marker.replace(_INSTANCE, _VOLUME)


def token_of(*parts: str) -> str:
    """An idempotency token: the same parts give the same one, at most 64 characters."""
    return sha256("|".join(parts).encode()).hexdigest()


def tags(marker: str, label: str = "") -> list[dict[str, str]]:
    """The tags of a new object."""
    deployment = deployment_of(marker)
    named = {MARKER_TAG: marker, DEPLOYMENT_TAG: deployment, "Name": label}
    return [{"Key": key, "Value": value} for key, value in named.items() if value]


def tag_of(raw: Raw, key: str) -> str:
    """The value of one tag; empty where there is none."""
    return next((str(tag.get("Value", "")) for tag in raw.get("Tags", ()) if tag.get("Key") == key), "")


def _exempt(raw: Raw) -> bool:
    return any(tag.get("Key") == KEEP_TAG for tag in raw.get("Tags", ()))


def state_of(instance: Raw) -> str:
    return str(instance.get("State", {}).get("Name", ""))


def checks_of(status: Raw) -> str:
    """Both status checks of an instance in a word."""
    words = {str(status.get(name, {}).get("Status", "")) for name in ("InstanceStatus", "SystemStatus")}
    if words == {"ok"}:
        return CHECKS_OK
    return "checks impaired" if "impaired" in words else "checks " + "/".join(sorted(words - {"ok"}) or ["unknown"])


def observed_instance(raw: Raw, region: str, checks: str = "", marker: str = "") -> Observation:
    """An instance of an answer. `checks` as of `checks_of`; empty = not asked. `marker` where it has no tags."""
    state = state_of(raw)
    address = str(raw.get("PublicIpAddress", "") or "") if state == "running" else ""
    condition = _CONDITIONS.get(state, Condition.PENDING)
    if state == "running" and checks == CHECKS_OK and address:
        condition = Condition.READY
    why = state_reason(raw) if state == "stopped" else ""
    words = "/".join(word for word in (state, checks if state == "running" else "", why) if word)
    return Observation(
        kind=ResourceKind.INSTANCE,
        provider_id=str(raw["InstanceId"]),
        region=region,
        marker=marker or tag_of(raw, MARKER_TAG),
        condition=condition,
        words=words,
        subkind=PlanKind.VM.value,
        plan=str(raw.get("InstanceType", "")),
        address=address,
        created_at=_time(raw.get("LaunchTime")),
        network_ids=tuple(sorted(private_groups(raw))),
        zone=zone_of(raw),
        spot=raw.get("InstanceLifecycle") == "spot",
        exempt=_exempt(raw),
        volume_ids=_hanging(raw),
        reason=reason_of(why),
    )


def _hanging(instance: Raw) -> tuple[str, ...] | None:
    """Volumes that hang at an instance, and are not on their way from it."""
    shown = instance.get("BlockDeviceMappings")
    if shown is None:
        return None
    disks = [each.get("Ebs") or {} for each in shown]
    return tuple(str(disk.get("VolumeId", "")) for disk in disks if disk.get("Status") not in ("detaching", "detached"))


def state_reason(raw: Raw) -> str:
    """EC2's code for why an instance is in its state."""
    return str(raw.get("StateReason", {}).get("Code", "") or "")


def zone_of(raw: Raw) -> str:
    return str(raw.get("Placement", {}).get("AvailabilityZone", "") or raw.get("AvailabilityZone", "") or "")


def groups_of(raw: Raw) -> list[str]:
    """Ids of all security groups of an instance."""
    return [str(group["GroupId"]) for group in raw.get("SecurityGroups", ()) if group.get("GroupId")]


def private_groups(raw: Raw) -> set[str]:
    """Ids of those of its security groups that are private networks of ours: their name is their marker."""
    named = raw.get("SecurityGroups", ())
    return {str(group["GroupId"]) for group in named if str(group.get("GroupName", "")).startswith(MARKER_PREFIX)}


def observed_request(raw: Raw, region: str) -> Observation:
    """A spot request that may launch a machine: a machine to come, under the request's id."""
    return Observation(
        kind=ResourceKind.INSTANCE,
        provider_id=str(raw["SpotInstanceRequestId"]),
        region=region,
        marker=tag_of(raw, MARKER_TAG),
        condition=Condition.PENDING,
        words=f"spot request {raw.get('State', '')}",
        subkind=PlanKind.VM.value,
        plan=str(raw.get("LaunchSpecification", {}).get("InstanceType", "")),
        created_at=_time(raw.get("CreateTime")),
        zone=str(raw.get("LaunchedAvailabilityZone", "") or ""),
        spot=True,
        exempt=_exempt(raw),
    )


def observed_volume(raw: Raw, region: str) -> Observation:
    """A volume of an answer."""
    state = str(raw.get("State", ""))
    holder = next((each for each in raw.get("Attachments", ()) if each.get("State") != "detached"), None)
    holding = str(holder.get("State", "")) if holder else ""
    conditions = {"creating": Condition.PENDING, "deleting": Condition.DELETING, "error": Condition.FAILED}
    return Observation(
        kind=ResourceKind.VOLUME,
        provider_id=str(raw["VolumeId"]),
        region=region,
        marker=tag_of(raw, MARKER_TAG),
        condition=conditions.get(state, Condition.READY),
        words="/".join(word for word in (state, holding) if word),
        created_at=_time(raw.get("CreateTime")),
        zone=zone_of(raw),
        # In use by nobody we can name: not free for sure.
        attached_to=str(holder.get("InstanceId") or "unknown") if holder else ("unknown" if state == "in-use" else ""),
        attached=holding == "attached",
        size_gb=int(raw.get("Size", 0) or 0),
        exempt=_exempt(raw),
    )


def observed_group(raw: Raw, region: str) -> Observation:
    """A security group that is a private network; it has no states."""
    return Observation(
        kind=ResourceKind.NETWORK,
        provider_id=str(raw["GroupId"]),
        region=region,
        marker=tag_of(raw, MARKER_TAG),
        condition=Condition.READY,
        words="exists",
        exempt=_exempt(raw),
    )


def observed_address(raw: Raw, region: str) -> Observation:
    """An Elastic IP address; billed whether used or not."""
    return Observation(
        kind=ResourceKind.ADDRESS,
        provider_id=str(raw["AllocationId"]),
        region=region,
        marker=tag_of(raw, MARKER_TAG),
        condition=Condition.READY,
        words="associated" if raw.get("AssociationId") else "allocated",
        address=str(raw.get("PublicIp", "") or ""),
        exempt=_exempt(raw),
    )


def oldest_first(found: Iterable[Observation]) -> list[Observation]:
    return sorted(found, key=lambda seen: (seen.created_at is None, seen.created_at, seen.provider_id))


def by_tag(key: str, value: str) -> dict[str, Any]:
    """A filter for exactly this value: `*` and `?` mean themselves."""
    return {"Name": f"tag:{key}", "Values": ["".join("\\" + c if c in "*?\\" else c for c in value)]}


def _time(value: object) -> datetime | None:
    return value.astimezone(UTC) if isinstance(value, datetime) else None
