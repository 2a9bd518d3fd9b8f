"""EC2 instances: looked at, stopped, started and terminated.

- A terminated instance is shown for about an hour: it is absent, told by what is shown and not by what is missing.
- "Not found" by id is absence only where a list by the same id does not have it either.
- One id per call: one that is unknown would refuse the call for all of them (C13).
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from gpulease.domain.observation import Absent, Observation
from gpulease.errors import ProviderBusy, ProviderError, ProviderRejected, ProviderUnexpected
from gpulease.ports import Ref
from gpulease.providers.aws.client import AwsClient, is_absent, unexpected
from gpulease.providers.aws.errors import reason_of
from gpulease.providers.aws.spot import FILTER_VALUES, REQUEST_PREFIX, SpotRequests
from gpulease.providers.aws.views import (
    DEPLOYMENT_TAG,
    LIVE_STATES,
    MARKER_TAG,
    MOVING_STATES,
    Raw,
    by_tag,
    checks_of,
    disk_marker,
    observed_instance,
    oldest_first,
    state_of,
    state_reason,
    tag_of,
)
from gpulease.providers.http import explained

STATUS_IDS = 100
"""The most ids that one call for status checks takes."""
NOT_APPLICABLE = "not-applicable"
CHECKS_NOT_OK = ("initializing", "impaired", "insufficient-data", NOT_APPLICABLE)
"""https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceStatusSummary.html"""
_GOING = frozenset({"shutting-down", "terminated"})
_LIVE = {"Name": "instance-state-name", "Values": list(LIVE_STATES)}


class Machines:
    """Instances of one account."""

    def __init__(self, client: AwsClient) -> None:
        self._client = client
        self._requests = SpotRequests(client)

    # --- read ---

    def observe(self, ref: Ref) -> Observation | Absent:
        """One instance by its id, with its status checks where it runs."""
        if ref.provider_id.startswith(REQUEST_PREFIX):
            return self._requests.observe(ref.provider_id, ref.region)
        raw = self._one(ref.provider_id, ref.region)
        if raw is None:
            return Absent("by_id: not found, and in no list")
        if state_of(raw) == "terminated":
            why = state_reason(raw)
            return Absent(f"by_id: terminated {why}".rstrip(), ended=True, reason=reason_of(why))
        checks = self._checks([raw], ref.region).get(ref.provider_id, "")
        return observed_instance(raw, ref.region, checks, "" if tag_of(raw, MARKER_TAG) else ref.marker)

    def find(self, ref: Ref) -> list[Observation]:
        """All live ones with exactly this marker, also those that only their spot request tells of."""
        marked = by_tag(MARKER_TAG, ref.marker)
        found = [observed_instance(raw, ref.region) for raw in self._listed([marked, _LIVE], ref.region)]
        found = [seen for seen in found if seen.marker == ref.marker]
        known = {seen.provider_id for seen in found}
        found += (seen for seen in self._requests.machines([marked], ref.region, known) if seen.marker == ref.marker)
        return oldest_first(found)

    def owned(self, region: str, deployment: str) -> list[Observation]:
        """All live ones of the deployment."""
        marked = by_tag(DEPLOYMENT_TAG, deployment)
        found = [observed_instance(raw, region) for raw in self._listed([marked, _LIVE], region)]
        known = {seen.provider_id for seen in found}
        return oldest_first([*found, *self._requests.machines([marked], region, known)])

    def in_motion(self, region: str) -> list[Observation]:
        """Those with a marker, of any deployment, that are on their way somewhere: pending, stopping, shutting down, or
        running without both checks ok. Costs what is in motion and not what exists: one call, and one per 200 found."""
        statuses = self._client.listing(
            region,
            "describe_instance_status",
            "InstanceStatuses",
            # Of those that do not run, the status is told as not applicable.
            IncludeAllInstances=True,
            Filters=[
                {"Name": "instance-status.status", "Values": list(CHECKS_NOT_OK)},
                {"Name": "instance-state-name", "Values": list(MOVING_STATES)},
            ],
        )
        checks = {str(each["InstanceId"]): checks_of(each) for each in statuses}
        marked = {"Name": "tag-key", "Values": [MARKER_TAG]}
        ids, found = sorted(checks), []
        for first in range(0, len(ids), FILTER_VALUES):
            some = {"Name": "instance-id", "Values": ids[first : first + FILTER_VALUES]}
            for raw in self._listed([marked, some, _LIVE], region):
                # One that began to run in between has no checks yet that were told.
                told = checks[str(raw["InstanceId"])]
                found.append(observed_instance(raw, region, "" if NOT_APPLICABLE in told else told))
        return found

    # --- change ---

    def stop(self, ref: Ref) -> None:
        """Raises ProviderBusy (still pending), ProviderRejected (cannot be stopped, or is not there)."""
        try:
            self._client.change(ref.region, "stop_instances", InstanceIds=[ref.provider_id])
        except (ProviderBusy, ProviderRejected, ProviderUnexpected) as error:
            self._judge(error, ref, done={"stopping", "stopped"}, later={"pending", "running"})

    def start(self, ref: Ref) -> None:
        """Raises CapacityRefused, QuotaRefused, ProviderBusy (still stopping)."""
        try:
            self._client.change(ref.region, "start_instances", InstanceIds=[ref.provider_id])
        except (ProviderBusy, ProviderUnexpected) as error:
            self._judge(error, ref, done={"pending", "running"}, later={"stopping"})

    def _judge(self, error: ProviderError, ref: Ref, *, done: set[str], later: set[str]) -> None:
        """A refusal that may mean "it is so already", or "not now": by the state of the instance."""
        if error.facts.code and isinstance(error, ProviderRejected) and not is_absent(error):
            raise error
        raw = self._one(ref.provider_id, ref.region)
        state = state_of(raw) if raw is not None else "not found"
        if state in done:
            return
        error = error.at(resource_id=ref.provider_id)
        if isinstance(error, ProviderBusy) and state not in _GOING:
            raise error
        if state in later:
            raise explained(error, ProviderBusy, f"the instance is {state}")
        if state in _GOING:
            raise explained(error, ProviderRejected, f"the instance is {state}")
        raise error

    def destroy(self, ref: Ref) -> None:
        """Terminate it. A persistent spot request is cancelled first, disks of its own go with it."""
        region, machine = ref.region, ref.provider_id
        if machine.startswith(REQUEST_PREFIX):
            self._requests.cancel(machine, region, only_persistent=False)
            for each in self._requests.machines_of(machine, region):
                self._terminate(each, region)
            return
        raw = self._one(machine, region)
        if raw is not None:
            request = str(raw.get("SpotInstanceRequestId", "") or "")
            if request:
                self._requests.cancel(request, region, only_persistent=True)
            if state_of(raw) in _GOING:
                return
            # A machine costs more than its disk: whatever is refused here, it goes, and the sweep finds what is left.
            with suppress(ProviderError):
                self._take_disks_along(raw, region, ref.marker)
        self._terminate(machine, region)

    def _terminate(self, machine: str, region: str) -> None:
        try:
            self._client.change(region, "terminate_instances", InstanceIds=[machine])
        except ProviderError as error:
            if is_absent(error):
                return
            if not isinstance(error, ProviderUnexpected):
                raise error.at(region=region, resource_id=machine) from None
            # A code nobody knows: done if it is gone or going, else "not now".
            raw = self._one(machine, region)
            if raw is not None and state_of(raw) not in _GOING:
                message = f"refused with a code we do not know; the instance is {state_of(raw)}"
                raise explained(error, ProviderBusy, message).at(region=region, resource_id=machine) from None

    def _take_disks_along(self, raw: Raw, region: str, marker: str) -> None:
        """Disks of the launch that would survive the machine are set to go with it. Caches are not: they carry
        markers of their own."""
        staying = {
            str(disk["Ebs"]["VolumeId"]): str(disk["DeviceName"])
            for disk in raw.get("BlockDeviceMappings", ())
            if disk.get("Ebs", {}).get("VolumeId") and disk["Ebs"].get("DeleteOnTermination") is False
        }
        if not staying:
            return
        own = disk_marker(tag_of(raw, MARKER_TAG) or marker)
        volumes = self._client.listing(region, "describe_volumes", "Volumes", VolumeIds=sorted(staying))
        devices = [staying[str(v["VolumeId"])] for v in volumes if own and tag_of(v, MARKER_TAG) == own]
        if not devices:
            return
        mappings = [{"DeviceName": device, "Ebs": {"DeleteOnTermination": True}} for device in sorted(devices)]
        self._client.change(
            region, "modify_instance_attribute", InstanceId=str(raw["InstanceId"]), BlockDeviceMappings=mappings
        )

    # --- parts ---

    def raw(self, ref: Ref) -> Raw | None:
        """The instance as EC2 shows it; None = not there."""
        return self._one(ref.provider_id, ref.region)

    def _one(self, machine: str, region: str) -> Raw | None:
        try:
            found = _instances(
                self._client.listing(region, "describe_instances", "Reservations", InstanceIds=[machine])
            )
        except ProviderError as error:
            if not is_absent(error):
                raise error.at(resource_id=machine) from None
            found = []
        # Reads by id and lists are not of one moment: what neither shows is not there.
        found = found or self._listed([{"Name": "instance-id", "Values": [machine]}], region)
        if not found:
            return None
        if len(found) > 1 or found[0].get("InstanceId") != machine:
            unexpected("the answer is about another instance", region, "describe_instances")
        return found[0]

    def _listed(self, filters: list[dict[str, Any]], region: str) -> list[Raw]:
        return _instances(self._client.listing(region, "describe_instances", "Reservations", Filters=filters))

    def _checks(self, raws: list[Raw], region: str) -> dict[str, str]:
        """Instance to the word for its status checks, for those that run. Some may be missing: not known yet."""
        running = sorted(str(raw["InstanceId"]) for raw in raws if state_of(raw) == "running")
        checks: dict[str, str] = {}
        for first in range(0, len(running), STATUS_IDS):
            some = running[first : first + STATUS_IDS]
            try:
                statuses = self._client.listing(
                    region, "describe_instance_status", "InstanceStatuses", InstanceIds=some
                )
            except ProviderError as error:
                if not is_absent(error):
                    raise
                # One of them is not known there yet, or any more; the others are asked again at the next look.
                continue
            checks |= {str(each["InstanceId"]): checks_of(each) for each in statuses}
        return checks


def _instances(reservations: Iterable[Raw]) -> list[Raw]:
    return [raw for reservation in reservations for raw in reservation.get("Instances", ())]
