"""Where a machine stands: its subnet, and the security group that lets SSH in.

The group is one per deployment and VPC, made when it is first needed and found by its name from then on. It costs
nothing, belongs to no lease and carries no marker, so the sweep does not look at it; a group per lease would be one
more thing to be in use for minutes after its machine is gone (C22).
"""

import threading
from dataclasses import dataclass

from gpulease.errors import ProviderError, ProviderRejected
from gpulease.providers.aws.client import AwsClient, items, rejected, unexpected
from gpulease.providers.aws.options import AwsOptions
from gpulease.providers.aws.views import DEPLOYMENT_TAG, Raw

SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class Place:
    subnet: str
    vpc: str


class Places:
    """Subnets and groups of one account, read once in the life of this process. Safe for threads."""

    def __init__(self, client: AwsClient, options: AwsOptions) -> None:
        self._client = client
        self._options = options
        self._lock = threading.Lock()
        self._places: dict[tuple[str, str], Place] = {}
        self._groups: dict[tuple[str, str, str], str] = {}

    def forget(self) -> None:
        """What was read may have been deleted since."""
        with self._lock:
            self._places.clear()
            self._groups.clear()

    def place(self, region: str, zone: str) -> Place:
        """Raises ProviderRejected where there is no subnet in that zone."""
        known = self._places.get((region, zone))
        if known is not None:
            return known
        found = self._place(region, zone)
        with self._lock:
            self._places[region, zone] = found
        return found

    def vpc(self, region: str) -> str:
        """The VPC of the region in which machines are made."""
        zones = sorted(zone for zone in self._options.subnets if zone.startswith(region))
        if zones:
            return self.place(region, zones[0]).vpc
        return self.place(region, "").vpc

    def group(self, region: str, vpc: str, deployment: str) -> str:
        """The security group that lets SSH in."""
        if self._options.security_group:
            return self._options.security_group
        key = (region, vpc, deployment)
        if key not in self._groups:
            found = self._group(region, vpc, deployment)
            with self._lock:
                self._groups[key] = found
        return self._groups[key]

    def _place(self, region: str, zone: str) -> Place:
        subnet = self._options.subnets.get(zone, "")
        if subnet:
            read = self._client.read(region, "describe_subnets", SubnetIds=[subnet])
        elif self._options.subnets:
            raise rejected(f"no subnet is configured for {zone or region}", region)
        else:
            filters = [{"Name": "default-for-az", "Values": ["true"]}]
            if zone:
                filters.append({"Name": "availability-zone", "Values": [zone]})
            read = self._client.read(region, "describe_subnets", Filters=filters)
        found = items(read, "Subnets", region, "describe_subnets")
        if not found:
            raise rejected(f"no default subnet in {zone or region}: make one, or configure subnets", region)
        first = min(found, key=lambda each: str(each["SubnetId"]))
        return Place(str(first["SubnetId"]), str(first["VpcId"]))

    def _group(self, region: str, vpc: str, deployment: str) -> str:
        name = f"gpulease-{deployment or 'machines'}"
        found = self._find(region, vpc, name)
        if found is None:
            found = self._make(region, vpc, name, deployment)
        group = str(found["GroupId"])
        if not any(rule.get("FromPort") == SSH_PORT for rule in found.get("IpPermissions", ())):
            # Also one whose maker was cut off after making it.
            self._open(region, group)
        return group

    def _find(self, region: str, vpc: str, name: str) -> Raw | None:
        filters = [{"Name": "group-name", "Values": [name]}, {"Name": "vpc-id", "Values": [vpc]}]
        found = self._client.listing(region, "describe_security_groups", "SecurityGroups", Filters=filters)
        return found[0] if found else None

    def _make(self, region: str, vpc: str, name: str, deployment: str) -> Raw:
        specification = {"ResourceType": "security-group", "Tags": [{"Key": DEPLOYMENT_TAG, "Value": deployment}]}
        try:
            made = self._client.change(
                region,
                "create_security_group",
                GroupName=name,
                Description="SSH to machines of gpulease",
                VpcId=vpc,
                **({"TagSpecifications": [specification]} if deployment else {}),
            )
        except ProviderError as error:
            # Somebody else made it meanwhile, or the answer was lost.
            found = self._find(region, vpc, name)
            if found is None:
                raise error
            return found
        if not made.get("GroupId"):
            unexpected("the new group has no id", region, "create_security_group")
        return {"GroupId": made["GroupId"]}

    def _open(self, region: str, group: str) -> None:
        rule = {
            "IpProtocol": "tcp",
            "FromPort": SSH_PORT,
            "ToPort": SSH_PORT,
            "IpRanges": [{"CidrIp": "0.0.0.0/0", "Description": "SSH"}],
        }
        allow(self._client, region, group, rule)


def allow(client: AwsClient, region: str, group: str, rule: dict[str, object]) -> None:
    """Add a rule; there already = fine."""
    try:
        client.change(region, "authorize_security_group_ingress", GroupId=group, IpPermissions=[rule])
    except ProviderRejected as error:
        if error.facts.code != "InvalidPermission.Duplicate":
            raise
