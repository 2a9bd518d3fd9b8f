"""EBS volumes: caches, and disks that survived their machine.

Invariants: attached and free are what the volume itself shows, never what a call answered; detaching names the
instance, so that a volume that moved on meanwhile stays where it is; only a free volume is deleted.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from typing import Any

from gpulease.domain.observation import Absent, Observation
from gpulease.errors import (
    InputInvalid,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderUnexpected,
    QuotaRefused,
)
from gpulease.ports import Ref, VolumeRequest
from gpulease.providers.aws.client import AwsClient, is_absent, rejected, unexpected
from gpulease.providers.aws.errors import LAUNCHED
from gpulease.providers.aws.machines import Machines
from gpulease.providers.aws.prices import (
    BASE_IOPS,
    BASE_MIBPS,
    IOPS_PER_GB,
    IOPS_PER_MIBPS,
    MAX_MIBPS,
    MAX_VOLUME_GB,
    iops_for,
)
from gpulease.providers.aws.views import (
    DEPLOYMENT_TAG,
    MARKER_TAG,
    Raw,
    by_tag,
    disk_marker,
    observed_volume,
    oldest_first,
    tags,
    token_of,
)
from gpulease.providers.http import explained

DEVICES = tuple(f"/dev/sd{letter}" for letter in "fghijklmnop")
"""https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/device_naming.html"""
MAX_DEVICE_TRIES = 3
"""A name may be taken although the instance does not show it yet."""
_DEVICE_CODES = frozenset({"InvalidParameterValue", "InvalidDevice.InUse"})


class Volumes:
    """Volumes of one account."""

    def __init__(self, client: AwsClient, machines: Machines) -> None:
        self._client = client
        self._machines = machines

    def create(self, request: VolumeRequest) -> Observation:
        """One CreateVolume."""
        check_volume(request.size_gb, request.throughput_mibps)
        if not request.zone:
            raise rejected("a volume stands in one zone; none is given", request.region)
        asked: dict[str, Any] = {
            "AvailabilityZone": request.zone,
            "Size": request.size_gb,
            "VolumeType": "gp3",
            "Encrypted": True,
            "TagSpecifications": [{"ResourceType": "volume", "Tags": tags(request.marker, request.label)}],
        }
        if request.throughput_mibps is not None:
            asked |= {"Throughput": request.throughput_mibps, "Iops": iops_for(request.throughput_mibps)}
        if request.idempotency_token:
            asked["ClientToken"] = token_of(request.idempotency_token, request.zone, str(request.size_gb))
        try:
            made = self._client.change(request.region, "create_volume", **asked)
        except (ProviderRejected, ProviderUnexpected) as error:
            if error.facts.code not in LAUNCHED and not isinstance(error, ProviderUnexpected):
                raise
            # Made already under this token, or who knows: the marker tells.
            found = self._marked(request.marker, request.region)
            if found:
                return found[0]
            raise explained(error, ProviderUnexpected, "no volume with its marker is shown (yet)") from None
        if not made.get("VolumeId"):
            unexpected("the new volume has no id", request.region, "create_volume")
        seen = observed_volume(made, request.region)
        return seen if seen.marker else replace(seen, marker=request.marker)

    def observe(self, ref: Ref) -> Observation | Absent:
        raw = self._one(ref)
        return Absent("by_id: not found, and in no list") if raw is None else observed_volume(raw, ref.region)

    def find(self, ref: Ref) -> list[Observation]:
        return self._marked(ref.marker, ref.region)

    def owned(self, region: str, deployment: str, machines: Iterable[Observation]) -> list[Observation]:
        """All of the deployment. A disk that came with a machine is part of it as long as it hangs on it."""
        own = {machine.provider_id: disk_marker(machine.marker) for machine in machines}
        found = self._listed([by_tag(DEPLOYMENT_TAG, deployment)], region)
        return [seen for seen in found if not seen.attached_to or own.get(seen.attached_to) != seen.marker]

    def attach(self, volume: Ref, instance: Ref) -> None:
        """Raises ProviderBusy (not now), ProviderRejected (never)."""
        tried: set[str] = set()
        while True:
            device = self._free_device(instance, tried)
            try:
                self._client.change(
                    volume.region,
                    "attach_volume",
                    VolumeId=volume.provider_id,
                    InstanceId=instance.provider_id,
                    Device=device,
                )
                return
            except ProviderError as error:
                if isinstance(error, QuotaRefused):
                    raise explained(error, ProviderRejected, "the machine takes no more volumes") from None
                if not isinstance(error, ProviderBusy | ProviderRejected | ProviderUnexpected):
                    raise
                tried.add(device)
                again = error.facts.code in _DEVICE_CODES and len(tried) < MAX_DEVICE_TRIES
                if self._is_attached(error, volume, instance, again=again):
                    return

    def _is_attached(self, error: ProviderError, volume: Ref, instance: Ref, *, again: bool) -> bool:
        """By what volume and machine show: attached there already; not, and another device name may help (`again`);
        else raise."""
        raw = self._one(volume)
        machine = self._machines.raw(instance)
        error = error.at(region=volume.region, resource_id=volume.provider_id)
        if raw is None or machine is None:
            # Fresh ones may not be known there yet; the deadline of the attachment decides.
            raise explained(error, ProviderBusy, "volume or machine is not shown") from None
        seen = observed_volume(raw, volume.region)
        if seen.attached_to == instance.provider_id:
            return True
        state = str(machine.get("State", {}).get("Name", ""))
        zone = str(machine.get("Placement", {}).get("AvailabilityZone", ""))
        if seen.zone != zone or state in ("shutting-down", "terminated"):
            raise explained(error, ProviderRejected, f"volume in {seen.zone}, machine {state} in {zone}") from None
        if seen.attached_to or state not in ("running", "stopped") or raw.get("State") != "available":
            why = f"the volume is {seen.words}, the machine {state}"
            raise explained(error, ProviderBusy, why) from None
        if again:
            return False
        known = error.facts.code and not isinstance(error, ProviderUnexpected)
        raise error if known else explained(error, ProviderBusy, "volume and machine are in order")

    def detach(self, volume: Ref, instance: Ref) -> None:
        """Raises ProviderBusy (try again)."""
        try:
            self._client.change(
                volume.region,
                "detach_volume",
                VolumeId=volume.provider_id,
                InstanceId=instance.provider_id,
            )
        except (ProviderBusy, ProviderRejected, ProviderUnexpected) as error:
            raw = self._one(volume)
            if raw is None or observed_volume(raw, volume.region).attached_to not in (instance.provider_id, "unknown"):
                return
            message = f"the volume is {observed_volume(raw, volume.region).words}"
            raise explained(error, ProviderBusy, message).at(resource_id=volume.provider_id) from None

    def destroy(self, ref: Ref) -> None:
        """One DeleteVolume. Raises ProviderBusy while it is attached."""
        try:
            self._client.change(ref.region, "delete_volume", VolumeId=ref.provider_id)
        except ProviderError as error:
            if is_absent(error):
                return
            if not isinstance(error, ProviderRejected | ProviderUnexpected):
                raise error.at(resource_id=ref.provider_id) from None
            raw = self._one(ref)
            if raw is not None and raw.get("State") != "deleting":
                message = f"the volume is {raw.get('State')}"
                raise explained(error, ProviderBusy, message).at(resource_id=ref.provider_id) from None

    def _free_device(self, instance: Ref, tried: set[str]) -> str:
        raw = self._machines.raw(instance)
        taken = {str(disk.get("DeviceName", "")) for disk in (raw or {}).get("BlockDeviceMappings", ())}
        for device in DEVICES:
            # `/dev/xvdf` and `/dev/sdf` are one.
            if device not in tried and not taken & {device, device.replace("/sd", "/xvd")}:
                return device
        raise rejected("the machine has no device name left", instance.region, instance.provider_id)

    def _one(self, ref: Ref) -> Raw | None:
        try:
            found = self._client.listing(ref.region, "describe_volumes", "Volumes", VolumeIds=[ref.provider_id])
        except ProviderError as error:
            if not is_absent(error):
                raise error.at(resource_id=ref.provider_id) from None
            found = []
        if not found:
            by_id = [{"Name": "volume-id", "Values": [ref.provider_id]}]
            found = self._client.listing(ref.region, "describe_volumes", "Volumes", Filters=by_id)
        found = [raw for raw in found if raw.get("State") != "deleted"]
        if found and found[0].get("VolumeId") != ref.provider_id:
            unexpected("the answer is about another volume", ref.region, "describe_volumes")
        return found[0] if found else None

    def _marked(self, marker: str, region: str) -> list[Observation]:
        found = self._listed([by_tag(MARKER_TAG, marker)], region)
        return [seen for seen in found if seen.marker == marker]

    def _listed(self, filters: list[dict[str, Any]], region: str) -> list[Observation]:
        raws = self._client.listing(region, "describe_volumes", "Volumes", Filters=filters)
        return oldest_first(observed_volume(raw, region) for raw in raws if raw.get("State") != "deleted")


def check_volume(size_gb: int, throughput_mibps: int | None) -> None:
    """Raises InputInvalid(field="size_gb" or "throughput_mibps")."""
    if not 1 <= size_gb <= MAX_VOLUME_GB:
        raise InputInvalid(f"a volume has 1 to {MAX_VOLUME_GB} GB, not {size_gb}", field="size_gb")
    if throughput_mibps is None:
        return
    if not BASE_MIBPS <= throughput_mibps <= MAX_MIBPS:
        text = f"an EBS gp3 volume gives {BASE_MIBPS} to {MAX_MIBPS} MiB/s, not {throughput_mibps}"
        raise InputInvalid(text, field="throughput_mibps")
    least = ceil(iops_for(throughput_mibps) / IOPS_PER_GB)
    if size_gb < least and throughput_mibps * IOPS_PER_MIBPS > BASE_IOPS:
        text = f"{throughput_mibps} MiB/s needs a volume of {least} GB at least, not {size_gb}"
        raise InputInvalid(text, field="throughput_mibps")
