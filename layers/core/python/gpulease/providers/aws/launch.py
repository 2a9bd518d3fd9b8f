"""The one create call: RunInstances for one machine, with all that marks it as ours inside it.

The token makes one launch of many calls: it is derived from the intent and from what is asked for where, so that a
repeated call is the same launch and another offer is another one (C08). "Launched already under this token, with other
parameters" is read as what it says (C07).
"""

from decimal import ROUND_DOWN, Decimal
from typing import Any

from gpulease.domain.observation import Observation
from gpulease.domain.resource import ResourceKind
from gpulease.errors import ProviderError, ProviderRejected, ProviderUnexpected
from gpulease.ports import InstanceRequest, Ref
from gpulease.providers.aws.client import AwsClient, items, rejected, unexpected
from gpulease.providers.aws.errors import LAUNCHED
from gpulease.providers.aws.images import Image, Images
from gpulease.providers.aws.machines import Machines
from gpulease.providers.aws.places import Places
from gpulease.providers.aws.prices import ROOT_DISK_GB, besides_compute_per_hour
from gpulease.providers.aws.views import deployment_of, disk_marker, observed_instance, tags, token_of
from gpulease.providers.http import explained

MAX_USER_DATA_BYTES = 16 * 1024
"""Before base64."""
_MAY_HAVE_BEEN_DELETED = frozenset({"InvalidGroup.NotFound", "InvalidSubnetID.NotFound", "InvalidGroupId.NotFound"})


class Launches:
    """Launches of one account."""

    def __init__(self, client: AwsClient, machines: Machines, places: Places, images: Images) -> None:
        self._client = client
        self._machines = machines
        self._places = places
        self._images = images

    def launch(self, request: InstanceRequest) -> Observation:
        """One RunInstances. What is raised means the same as in `ports.Provider.create_instance`."""
        offer = request.offer
        if len(request.user_data) > MAX_USER_DATA_BYTES:
            raise rejected(
                f"user data of {len(request.user_data)} bytes; EC2 takes {MAX_USER_DATA_BYTES}", offer.region
            )
        asked = self._prepared(request)
        try:
            answer = self._client.change(offer.region, "run_instances", **asked)
        except (ProviderRejected, ProviderUnexpected) as error:
            return self._after_refusal(error, request)
        made = items(answer, "Instances", offer.region, "run_instances")
        if len(made) != 1 or not str(made[0].get("InstanceId", "")).startswith("i-"):
            unexpected("the answer does not name one instance", offer.region, "run_instances")
        return observed_instance(made[0], offer.region, marker=request.marker)

    def _prepared(self, request: InstanceRequest) -> dict[str, Any]:
        """The parameters. What is read for them fails as a read: nothing was created."""
        offer = request.offer
        try:
            image = self._images.resolve(request.image, offer.region, offer.cpu_arch)
            place = self._places.place(offer.region, offer.zone)
            groups = [self._places.group(offer.region, place.vpc, deployment_of(request.marker))]
        except ProviderUnexpected as error:
            # Else it would be looked for, as something that may have been created.
            raise explained(error, ProviderRejected, "before anything was asked for") from None
        if request.network_provider_id:
            groups.append(request.network_provider_id)
        return _parameters(request, image, place.subnet, groups)

    def _after_refusal(self, error: ProviderError, request: InstanceRequest) -> Observation:
        """A launch that was made before under this token, or a code that nobody knows: the marker tells."""
        if error.facts.code in _MAY_HAVE_BEEN_DELETED:
            self._places.forget()
        if error.facts.code not in LAUNCHED and not isinstance(error, ProviderUnexpected):
            raise error
        found = self._machines.find(Ref(ResourceKind.INSTANCE, request.offer.region, request.marker))
        if found:
            return found[0]
        raise explained(error, ProviderUnexpected, "no machine with its marker is shown (yet)")


def _most(request: InstanceRequest) -> dict[str, str]:
    """What a spot machine's compute may cost at most: what the user's limit leaves for it. Without a limit nothing is
    sent, which to AWS means the on-demand price.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_SpotMarketOptions.html
    """
    offer, limit = request.offer, request.max_price_per_hour_usd
    if limit is None:
        return {}
    left = limit - besides_compute_per_hour(offer.region, offer.disk_gb or ROOT_DISK_GB)
    if left <= 0:
        raise rejected(f"disk and address alone cost more than ${limit} per hour", offer.region)
    return {"MaxPrice": str(left.quantize(Decimal("0.000001"), ROUND_DOWN))}


def _parameters(request: InstanceRequest, image: Image, subnet: str, groups: list[str]) -> dict[str, Any]:
    offer = request.offer
    marked = {
        "instance": tags(request.marker, request.label),
        "volume": tags(disk_marker(request.marker), request.label),
        "network-interface": tags(request.marker, request.label),
    }
    asked: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": image.id,
        "InstanceType": offer.plan,
        "UserData": request.user_data,
        # Whoever shuts it down from inside pauses it; what cannot be started again ends.
        "InstanceInitiatedShutdownBehavior": "terminate" if offer.spot else "stop",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "BlockDeviceMappings": [
            {
                "DeviceName": image.root_device,
                "Ebs": {
                    "VolumeSize": offer.disk_gb or ROOT_DISK_GB,
                    "VolumeType": "gp3",
                    "DeleteOnTermination": True,
                },
            }
        ],
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": subnet,
                "Groups": groups,
                "AssociatePublicIpAddress": True,
                "DeleteOnTermination": True,
            }
        ],
    }
    if request.idempotency_token:
        kind = "spot" if offer.spot else "on-demand"
        asked["ClientToken"] = token_of(request.idempotency_token, offer.region, offer.zone, offer.plan, kind)
    if offer.spot:
        options = {"SpotInstanceType": "one-time", **_most(request)}
        asked["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
        marked["spot-instances-request"] = tags(request.marker, request.label)
    asked["TagSpecifications"] = [{"ResourceType": kind, "Tags": each} for kind, each in marked.items()]
    return asked
