"""Spot requests: what may launch machines after the ones that we know of.

Ours are one-time and end with their machine. A persistent one launches another, untagged machine in place of one that
was terminated (C25), so it is cancelled before anything is terminated, and machines are found through their requests
as well as by their own tags.
"""

from collections.abc import Iterable

from gpulease.domain.observation import Absent, Observation
from gpulease.errors import ProviderBusy, ProviderError, ProviderFacts
from gpulease.providers.aws.client import PROVIDER, AwsClient, is_absent
from gpulease.providers.aws.views import (
    LIVE_STATES,
    MARKER_TAG,
    Raw,
    observed_instance,
    observed_request,
    tag_of,
)

REQUEST_PREFIX = "sir-"
FILTER_VALUES = 200
"""The most that one filter takes."""
_OPEN = frozenset({"open", "active", "disabled"})
"""States in which a persistent request launches again."""


class SpotRequests:
    """Requests of one account."""

    def __init__(self, client: AwsClient) -> None:
        self._client = client

    def observe(self, request_id: str, region: str) -> Observation | Absent:
        """A request under which no machine is known: there as long as it may launch one or has one."""
        request = self._one(request_id, region)
        if request is None:
            return Absent("by_id: no such spot request")
        if request.get("State") in _OPEN or self._machines([request], region):
            return observed_request(request, region)
        return Absent(f"by_id: spot request {request.get('State')}", ended=True)

    def machines(self, filters: list[dict[str, object]], region: str, known: set[str]) -> list[Observation]:
        """Machines of ours that only their request tells of, and requests that may launch one.

        `filters`: which requests; `known`: ids of the instances that are known by their own tags.
        """
        requests = self._client.listing(
            region, "describe_spot_instance_requests", "SpotInstanceRequests", Filters=filters
        )
        strangers = [each for each in requests if each.get("InstanceId") and each["InstanceId"] not in known]
        markers = {str(each["InstanceId"]): tag_of(each, MARKER_TAG) for each in strangers}
        live = self._machines(strangers, region)
        found = [observed_instance(raw, region, marker=markers[str(raw["InstanceId"])]) for raw in live]
        running = known | {seen.provider_id for seen in found}
        for each in requests:
            if _launches(each) and each.get("InstanceId") not in running:
                found.append(observed_request(each, region))
        return found

    def cancel(self, request_id: str, region: str, *, only_persistent: bool) -> None:
        """Cancel it and read that it is. Raises ProviderBusy while it may still launch a machine."""
        request = self._one(request_id, region)
        if request is None or request.get("State") not in _OPEN:
            return
        if only_persistent and request.get("Type") != "persistent":
            return
        try:
            self._client.change(region, "cancel_spot_instance_requests", SpotInstanceRequestIds=[request_id])
        except ProviderError as error:
            if not is_absent(error):
                raise
        after = self._one(request_id, region)
        if after is not None and after.get("State") in _OPEN:
            message = f"spot request {request_id} is still {after.get('State')}; its machine would come again"
            raise ProviderBusy(ProviderFacts(PROVIDER, message, region=region, resource_id=request_id))

    def machines_of(self, request_id: str, region: str) -> list[str]:
        """Ids of its live instances."""
        request = self._one(request_id, region)
        return [str(raw["InstanceId"]) for raw in self._machines([request] if request else [], region)]

    def _one(self, request_id: str, region: str) -> Raw | None:
        try:
            found = self._client.listing(
                region,
                "describe_spot_instance_requests",
                "SpotInstanceRequests",
                SpotInstanceRequestIds=[request_id],
            )
        except ProviderError as error:
            if is_absent(error):
                return None
            raise
        return found[0] if found else None

    def _machines(self, requests: Iterable[Raw], region: str) -> list[Raw]:
        ids = sorted({str(each["InstanceId"]) for each in requests if each.get("InstanceId")})
        live = {"Name": "instance-state-name", "Values": list(LIVE_STATES)}
        found: list[Raw] = []
        for first in range(0, len(ids), FILTER_VALUES):
            some = {"Name": "instance-id", "Values": ids[first : first + FILTER_VALUES]}
            reservations = self._client.listing(region, "describe_instances", "Reservations", Filters=[some, live])
            found.extend(raw for reservation in reservations for raw in reservation.get("Instances", ()))
        return found


def _launches(request: Raw) -> bool:
    return request.get("State") == "open" or (request.get("Type") == "persistent" and request.get("State") in _OPEN)
