"""The AWS adapter: EC2 instances, EBS volumes, and security groups as private networks, of one account.

- A machine's marker is a tag inside its create call, with a token that makes one launch of many calls.
- "Absent" comes only from what is shown as terminated, or from two reads of different kinds that do not show it.
- What a call answered proves nothing of what it did; `observe` tells.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from gpulease.domain.observation import Absent, Observation
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.resource import BillingRule, ResourceKind
from gpulease.errors import InputInvalid
from gpulease.ports import Capabilities, InstanceRequest, NetworkRequest, Once, Ref, VolumeRequest
from gpulease.providers.aws import catalogue
from gpulease.providers.aws.addresses import Addresses
from gpulease.providers.aws.client import PROVIDER, AwsClient, rejected, unexpected
from gpulease.providers.aws.images import Images, checked
from gpulease.providers.aws.launch import MAX_USER_DATA_BYTES, Launches
from gpulease.providers.aws.machines import Machines
from gpulease.providers.aws.networks import Networks
from gpulease.providers.aws.options import AwsOptions
from gpulease.providers.aws.places import Places
from gpulease.providers.aws.prices import disk_per_hour, per_gb_month, speed_per_month
from gpulease.providers.aws.session import DEFAULT_REGION, Sessions
from gpulease.providers.aws.shared import Shared
from gpulease.providers.aws.shop import Shop
from gpulease.providers.aws.spot_prices import SpotPrices
from gpulease.providers.aws.volumes import Volumes, check_volume
from gpulease.providers.registry import AdapterContext

READY_DEADLINE_SECONDS = 900.0
"""Status checks take 2 to 5 minutes."""
METAL_READY_DEADLINE_SECONDS = 2400.0
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_ID = re.compile(r"(i|vol|sir|sg|eipalloc)-[0-9a-z-]{6,40}")
_XEN = re.compile(r"(g2|g3|g3s|p2|p3)\.")
"""GPU types that are not Nitro: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-nitro-instances.html"""
_FREE = frozenset({ResourceKind.NETWORK, ResourceKind.SPOT_REQUEST})


class AwsProvider:
    """`ports.Provider` for one AWS account."""

    name = PROVIDER
    capabilities = Capabilities(
        look_every_seconds=10,
        plan_kinds=frozenset({PlanKind.VM}),
        stop_stops_billing=True,
        private_networks=True,
        max_user_data_bytes=MAX_USER_DATA_BYTES,
        create_timeout_seconds=40.0,
        # Launches are given back at 2 per second; a quarter of this is what creates may take.
        requests_per_second=8.0,
    )
    # "Not found" of a fresh id is usual for seconds, and reported for minutes.
    visibility_window_seconds = 300.0

    def __init__(self, context: AdapterContext) -> None:
        self.account = context.account
        options = context.options if isinstance(context.options, AwsOptions) else AwsOptions()
        self._options = options
        sessions = Sessions(options, context.clock, context.base_url)
        self._client = AwsClient(sessions, context.sleep, options.page_size)
        shared = Shared(context.shared, context.clock, context.log, context.account)
        places = Places(self._client, options)
        self._machines = Machines(self._client)
        self._volumes = Volumes(self._client, self._machines)
        self._networks = Networks(self._client, self._machines, places)
        self._addresses = Addresses(self._client)
        images = Images(self._client, shared, options.image)
        self._launches = Launches(self._client, self._machines, places, images)
        rows = options.catalogue or (lambda: catalogue.download(context.transport, options.catalogue_url, context.log))
        spot_prices = SpotPrices(self._client, shared, context.clock, context.log)
        self._shop = Shop(self._client, options, shared, spot_prices, rows, context.log)
        self._identity: tuple[int, str] | None = None

    def __repr__(self) -> str:
        return f"AwsProvider({self.account}, {self._client!r})"

    # --- catalogue ---

    def identity(self) -> str:
        """The account's number. Asked once per credentials."""
        generation = self._client.generation
        if self._identity is None or self._identity[0] != generation:
            region = self._options.regions[0] if self._options.regions else DEFAULT_REGION
            answer = self._client.read(region, "get_caller_identity", service="sts")
            number = str(answer.get("Account", ""))
            if not number:
                unexpected("the answer names no account", region, "get_caller_identity")
            self._identity = (self._client.generation, number)
        return self._identity[1]

    def offers(self) -> list[Offer]:
        """All GPU types of the catalogue, in the zones of the configured regions that offer them."""
        return self._shop.offers()

    def live(self, offer: Offer) -> Offer:
        """`in_stock` False = the zone does not have the type; capacity is not told before it is asked for."""
        return self._shop.live(offer)

    def priced(self, offers: Sequence[Offer]) -> list[Offer]:
        """With spot prices as of the last five minutes: one call per region and set of types."""
        return self._shop.priced(offers) if offers else []

    def regions(self) -> list[str]:
        """The configured ones, sorted."""
        return sorted(self._options.regions)

    def ready_deadline_seconds(self, offer: Offer) -> float:
        """15 minutes; 40 for types without a hypervisor."""
        return METAL_READY_DEADLINE_SECONDS if ".metal" in offer.plan else READY_DEADLINE_SECONDS

    def billing_rule(self, kind: ResourceKind) -> BillingRule:
        """By the second; security groups and spot requests cost nothing."""
        return BillingRule.FREE if kind in _FREE else BillingRule.PER_SECOND

    def check_image(self, image: str | None, kind: PlanKind) -> None:
        """`ami-…` or `ssm:/path`. Raises InputInvalid(field="image")."""
        checked(image)

    def can_stop(self, offer: Offer) -> bool:
        """On-demand machines. One-time spot machines cannot be stopped."""
        return not offer.spot

    def stopped_price_per_hour(self, offer: Offer) -> Decimal:
        """The root disk's; the public address is given back by the stop."""
        return disk_per_hour(offer.region, offer.disk_gb)

    def can_attach_volume(self, offer: Offer, region: str, zone: str) -> bool:
        """Volumes stand in one zone. A disk on Xen does not say which volume it is, so no machine there gets one."""
        return offer.region == region and bool(zone) and offer.zone == zone and not _XEN.match(offer.plan)

    def volume_price_per_month(self, region: str, size_gb: int, throughput_mibps: int | None = None) -> Decimal:
        """Of gp3. Raises InputInvalid(field="size_gb", "region" or "throughput_mibps")."""
        check_volume(size_gb, throughput_mibps)
        if not _REGION.fullmatch(region):
            raise InputInvalid(f"AWS has no region {region!r}", field="region")
        return per_gb_month(region) * size_gb + speed_per_month(region, throughput_mibps)

    # --- machines ---

    def create_instance(self, request: InstanceRequest) -> Observation:
        """One RunInstances, after reads for image, subnet and group."""
        self._require(request.marker, request.offer.region)
        return self._launches.launch(request)

    def stop(self, instance: Ref) -> None:
        """One StopInstances; the data of instance-store disks is lost by it."""
        self._machines.stop(self._known(instance))

    def start(self, instance: Ref) -> None:
        """One StartInstances; it may land on another host, and gets another public address."""
        self._machines.start(self._known(instance))

    # --- networks and volumes ---

    def create_network(self, request: NetworkRequest) -> Observation:
        """One CreateSecurityGroup."""
        self._require(request.marker, request.region)
        return self._networks.create(request)

    def attach_network(self, instance: Ref, network: Ref) -> None:
        """Takes effect at once, without a restart."""
        self._networks.attach(self._known(instance), self._known(network))

    def create_volume(self, request: VolumeRequest) -> Observation:
        """One CreateVolume, encrypted, in one zone."""
        self._require(request.marker, request.region)
        return self._volumes.create(request)

    def attach_volume(self, volume: Ref, instance: Ref) -> None:
        """Under the first free device name."""
        self._volumes.attach(self._known(volume), self._known(instance))

    def detach_volume(self, volume: Ref, instance: Ref) -> None:
        """Never by force. A volume that somebody else holds stays where it is."""
        self._volumes.detach(self._known(volume), self._known(instance))

    # --- all kinds ---

    def observe(self, ref: Ref) -> Observation | Absent:
        """By id; where that says "not found", also by a list."""
        if not ref.provider_id:
            found = self.find(ref)
            return found[0] if found else Absent("by_marker: not in a complete list")
        return self._of(ref).observe(self._known(ref))

    def find(self, ref: Ref) -> list[Observation]:
        """All in the region that carry exactly this marker, oldest first; what is terminated is not there."""
        self._require(ref.marker, ref.region)
        return self._of(ref).find(ref)

    def destroy(self, ref: Ref) -> None:
        """Ask for its end once; gone already = fine."""
        if not ref.provider_id:
            for seen in self.find(ref):
                self.destroy(replace(ref, provider_id=seen.provider_id))
            return
        self._of(ref).destroy(self._known(ref))

    def list_of(self, ref: Ref) -> str:
        """The region: each has a list of its own."""
        return ref.region if ref.kind is ResourceKind.INSTANCE else ""

    def list_machines(self, name: str) -> list[Observation]:
        """Those of that region that are on their way somewhere; who waits for one that is not, reads it directly."""
        self._require_region(name)
        return [replace(seen, network_ids=()) for seen in self._machines.in_motion(name)]

    def list_owned(self, region: str, deployment: str, *, once: Once | None = None) -> Iterator[Observation]:
        """Machines, machines to come, volumes, networks and addresses; read in full before the first is given. All
        lists are the region's own, so nothing is shared through `once`."""
        self._require_region(region)
        machines = self._machines.owned(region, deployment)
        volumes = self._volumes.owned(region, deployment, machines)
        networks = self._networks.owned(region, deployment)
        addresses = self._addresses.owned(region, deployment)
        return iter([*machines, *volumes, *networks, *addresses])

    # --- parts ---

    def _of(self, ref: Ref) -> Machines | Volumes | Networks | Addresses:
        if ref.kind in (ResourceKind.INSTANCE, ResourceKind.SPOT_REQUEST):
            return self._machines
        if ref.kind is ResourceKind.VOLUME:
            return self._volumes
        if ref.kind is ResourceKind.NETWORK:
            return self._networks
        if ref.kind is ResourceKind.ADDRESS:
            return self._addresses
        raise rejected(f"there is no {ref.kind} here", ref.region)

    def _known(self, ref: Ref) -> Ref:
        self._require_region(ref.region)
        if not _ID.fullmatch(ref.provider_id):
            raise rejected(f"{ref.provider_id!r} is no id of this provider", ref.region)
        return ref

    def _require(self, marker: str, region: str) -> None:
        self._require_region(region)
        if not marker:
            raise rejected("a resource without a marker can neither be made nor looked for", region)

    def _require_region(self, region: str) -> None:
        if not _REGION.fullmatch(region):
            raise rejected(f"{region!r} is no region", region)
