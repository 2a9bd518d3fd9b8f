"""Private networks. The VPC is one already; what keeps its machines apart are security groups, so a private network is
a group whose members may reach each other on every port.

Free of charge, joined by a running machine without a restart. A group cannot be deleted while a network interface
holds it, which outlives its machine by minutes (C22): "not now", and tried again.
"""

from typing import Any

from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.errors import ProviderBusy, ProviderError, ProviderRejected, ProviderUnexpected
from gpulease.ports import NetworkRequest, Ref
from gpulease.providers.aws.client import AwsClient, is_absent, rejected, unexpected
from gpulease.providers.aws.machines import Machines
from gpulease.providers.aws.places import Places, allow
from gpulease.providers.aws.views import (
    DEPLOYMENT_TAG,
    MARKER_TAG,
    Raw,
    by_tag,
    groups_of,
    observed_group,
    state_of,
    tags,
)
from gpulease.providers.http import explained


class Networks:
    """Security groups of one account that are private networks."""

    def __init__(self, client: AwsClient, machines: Machines, places: Places) -> None:
        self._client = client
        self._machines = machines
        self._places = places

    def create(self, request: NetworkRequest) -> Observation:
        """One CreateSecurityGroup, named by the marker: EC2 makes no second one of that name."""
        region = request.region
        vpc = self._places.vpc(region)
        try:
            made = self._client.change(
                region,
                "create_security_group",
                GroupName=request.marker,
                Description="private network of gpulease",
                VpcId=vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": tags(request.marker)}],
            )
        except (ProviderRejected, ProviderUnexpected) as error:
            found = self._marked(request.marker, region)
            if found:
                return found[0]
            raise error.at(region=region) from None
        if not made.get("GroupId"):
            unexpected("the new group has no id", region, "create_security_group")
        return observed_group({"GroupId": made["GroupId"], "Tags": tags(request.marker)}, region)

    def attach(self, instance: Ref, network: Ref) -> None:
        """Raises ProviderBusy while the machine is on its way, ProviderRejected where it cannot be."""
        allow(self._client, network.region, network.provider_id, _among(network.provider_id))
        raw = self._machines.raw(instance)
        if raw is None:
            raise self._not_now("the machine is not shown", instance)
        groups = groups_of(raw)
        if network.provider_id in groups:
            return
        if not groups or state_of(raw) in ("shutting-down", "terminated"):
            raise rejected(f"the machine is {state_of(raw)}", instance.region, instance.provider_id)
        try:
            self._client.change(
                instance.region,
                "modify_instance_attribute",
                InstanceId=instance.provider_id,
                Groups=[*groups, network.provider_id],
            )
        except ProviderUnexpected as error:
            raise explained(error, ProviderBusy, "refused with a code we do not know").at(
                region=instance.region, resource_id=instance.provider_id
            ) from None

    def observe(self, ref: Ref) -> Observation | Absent:
        try:
            found = self._read(ref.region, GroupIds=[ref.provider_id])
        except ProviderError as error:
            if not is_absent(error):
                raise error.at(resource_id=ref.provider_id) from None
            found = []
        if not found:
            by_id = [{"Name": "group-id", "Values": [ref.provider_id]}]
            found = self._read(ref.region, Filters=by_id)
        if not found:
            return Absent("by_id: not found, and in no list")
        if found[0].get("GroupId") != ref.provider_id:
            unexpected("the answer is about another group", ref.region, "describe_security_groups")
        return observed_group(found[0], ref.region)

    def find(self, ref: Ref) -> list[Observation]:
        return self._marked(ref.marker, ref.region)

    def owned(self, region: str, deployment: str) -> list[Observation]:
        """All of the deployment; not the group that all its machines have for SSH, which has no marker."""
        found = self._read(region, Filters=[by_tag(DEPLOYMENT_TAG, deployment)])
        return [seen for seen in (observed_group(raw, region) for raw in found) if seen.marker]

    def destroy(self, ref: Ref) -> None:
        """One DeleteSecurityGroup. Raises ProviderBusy while something holds it."""
        try:
            self._client.change(ref.region, "delete_security_group", GroupId=ref.provider_id)
        except ProviderError as error:
            if is_absent(error):
                return
            if not isinstance(error, ProviderUnexpected):
                raise error.at(region=ref.region, resource_id=ref.provider_id) from None
            seen = self.observe(ref)
            if isinstance(seen, Observation) and seen.condition is not Condition.DELETING:
                raise explained(error, ProviderBusy, "refused with a code we do not know; it still exists") from None

    def _marked(self, marker: str, region: str) -> list[Observation]:
        found = self._read(region, Filters=[by_tag(MARKER_TAG, marker)])
        return [seen for seen in (observed_group(raw, region) for raw in found) if seen.marker == marker]

    def _read(self, region: str, **params: Any) -> list[Raw]:
        return self._client.listing(region, "describe_security_groups", "SecurityGroups", **params)

    def _not_now(self, why: str, ref: Ref) -> ProviderError:
        refused = rejected(why, ref.region, ref.provider_id)
        return ProviderBusy(refused.facts)


def _among(group: str) -> dict[str, object]:
    return {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
