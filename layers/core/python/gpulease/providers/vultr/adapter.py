"""The Vultr adapter: VMs, bare metal, VPCs and blocks as instances, networks and volumes (those in `volumes.py`).

- A machine's marker is a tag in its create call, a VPC's marker its description; both are compared exactly.
- "Absent" comes only from an answer that says "not found" in words we know, or from a complete list without it.
- Accepted deletes prove nothing here either; `observe` tells.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.resource import BillingRule, ResourceKind, marker_for
from gpulease.errors import ProviderBusy, ProviderRejected, QuotaRefused
from gpulease.ports import Capabilities, InstanceRequest, NetworkRequest, Once, Ref
from gpulease.providers.http import ApiClient, explained
from gpulease.providers.registry import AdapterContext
from gpulease.providers.vultr.client import BASE_URL, VultrClient, failure, is_id, parsed, verdict
from gpulease.providers.vultr.errors import Meaning
from gpulease.providers.vultr.images import boot_fields
from gpulease.providers.vultr.models import AccountOwner, Machine, Vpc, VpcEntry
from gpulease.providers.vultr.refusal import why_refused
from gpulease.providers.vultr.stock import Stock
from gpulease.providers.vultr.views import METALS, VMS, Route, going, observed_machine, observed_vpc
from gpulease.providers.vultr.volumes import VultrVolumes

VPCS_PER_REGION = 5
"""Limit of the API reference."""
_READY_DEADLINE_SECONDS = {PlanKind.VM: 600.0, PlanKind.BARE_METAL: 3300.0}
"""VMs take 30 to 260 s (measured 2026); bare metal up to 40 min, and its second hour is billed from minute 60."""
_ROUTES = {PlanKind.VM: VMS, PlanKind.BARE_METAL: METALS}


class VultrProvider(VultrVolumes):
    """`ports.Provider` for one Vultr account."""

    capabilities = Capabilities(
        plan_kinds=frozenset({PlanKind.VM, PlanKind.BARE_METAL}),
        stop_stops_billing=False,
        private_networks=True,
        max_user_data_bytes=64 * 1024,
        create_timeout_seconds=60.0,
        # Per client address, by the API reference; workers that share an address must not be surprised by each other.
        requests_per_second=30.0,
    )
    # Lists show a new machine after 1 to 2 s (measured); reads by id have failed for a minute (C04).
    visibility_window_seconds = 120.0

    def __init__(self, context: AdapterContext) -> None:
        self.account = context.account
        self._secrets = context.secrets
        self._identity = ("", "")
        api = ApiClient(
            context.transport,
            provider=self.name,
            base_url=context.base_url or BASE_URL,
            key=lambda fresh: context.secrets.provider_key(context.account, fresh=fresh),
            sleep=context.sleep,
        )
        self._client = VultrClient(api)
        self._stock = Stock(
            self._client, context.clock, context.log, context.sleep, context.shared, account=context.account
        )

    def __repr__(self) -> str:
        return f"VultrProvider({self.account}, {self._client!r})"

    # --- catalogue ---

    def offers(self) -> list[Offer]:
        """All GPU plans whose GPUs are known, region by region; what is left out is logged. About 40 calls."""
        return self._stock.offers()

    def live(self, offer: Offer) -> Offer:
        """The offer with the price and stock of now. Raises ProviderRejected: no such plan or region."""
        return self._stock.live(offer)

    def priced(self, offers: Sequence[Offer]) -> list[Offer]:
        """As they are: prices of Vultr do not move."""
        return list(offers)

    def identity(self) -> str:
        """A digest of the account's name and e-mail address, which is all that Vultr tells of who it is.

        Asked once per key: a key opens one account for ever. Of the key only a digest is kept.
        """
        key = sha256(self._secrets.provider_key(self.account).encode()).hexdigest()
        if key == self._identity[0]:
            return self._identity[1]
        reply = self._client.get("/account")
        if not reply.ok:
            raise failure(reply)
        account = parsed(reply, AccountOwner, reply.value("account"))
        self._identity = (key, sha256(f"{account.name}\n{account.email}".encode()).hexdigest()[:16])
        return self._identity[1]

    def regions(self) -> list[str]:
        """All regions, sorted."""
        return self._stock.regions()

    def ready_deadline_seconds(self, offer: Offer) -> float:
        """10 minutes for VMs, 55 for bare metal."""
        return _READY_DEADLINE_SECONDS[offer.kind]

    def billing_rule(self, kind: ResourceKind) -> BillingRule:
        """Machines and blocks by the started hour, up to a month's price; VPCs cost nothing."""
        return BillingRule.FREE if kind is ResourceKind.NETWORK else BillingRule.STARTED_HOUR

    def check_image(self, image: str | None, kind: PlanKind) -> None:
        """Raises InputInvalid(field="image") for a form that `images.py` does not know."""
        boot_fields(image, kind)

    # --- create ---

    def create_instance(self, request: InstanceRequest) -> Observation:
        """One POST. Nothing was created after CapacityRefused, QuotaRefused, ProviderRejected, ProviderAuthFailed,
        ProviderThrottled; ProviderUnavailable and ProviderUnexpected leave it open."""
        offer = request.offer
        self._require_marker(request.marker)
        if len(request.user_data) > self.capabilities.max_user_data_bytes:
            raise self._rejected(f"user data of {len(request.user_data)} bytes is too long", offer.region)
        boot = boot_fields(request.image, offer.kind)
        route = _ROUTES[offer.kind]
        body: dict[str, object] = {
            "region": offer.region,
            "plan": offer.plan,
            **boot,
            "label": request.label,
            "tags": [request.marker],
            "user_data": base64.b64encode(request.user_data).decode("ascii"),
            "activation_email": False,
        }
        if route is VMS:
            body["backups"] = "disabled"
        if request.network_provider_id:
            body["attach_vpc"] = [request.network_provider_id]
        reply = self._client.post(route.path, body)
        if not reply.ok:
            if verdict(reply) is None and reply.status < 500:
                raise why_refused(reply, request, boot, self._client, self._stock).at(region=offer.region)
            raise failure(reply).at(region=offer.region)
        machine = parsed(reply, Machine, reply.value(*route.one))
        if not is_id(machine.id):
            reply.unexpected("the new machine has no proper id")
        return observed_machine(machine, route, request.marker)

    def create_network(self, request: NetworkRequest) -> Observation:
        """One POST; free of charge. Raises as `create_instance`; five VPCs per region are the limit."""
        self._require_marker(request.marker)
        reply = self._client.post("/vpcs", {"region": request.region, "description": request.marker})
        if reply.ok:
            vpc = parsed(reply, Vpc, reply.value("vpc", "network"))
            if not is_id(vpc.id):
                reply.unexpected("the new VPC has no proper id")
            return observed_vpc(vpc)
        error = failure(reply).at(region=request.region)
        if verdict(reply) is None and reply.status < 500:
            here = [vpc for vpc in self._vpcs() if vpc.region.lower() == request.region]
            if len(here) >= VPCS_PER_REGION:
                raise explained(error, QuotaRefused, f"{len(here)} VPCs exist in this region")
        raise error

    def attach_network(self, instance: Ref, network: Ref) -> None:
        """One POST; takes effect later and restarts a VM that runs. Raises NetworkUnsupported, ProviderBusy."""
        route = _ROUTES[PlanKind(instance.subkind)] if instance.subkind else VMS
        path = f"{route.path}/{self._id(instance)}/vpcs/attach"
        reply = self._client.post(path, {"vpc_id": self._id(network)})
        if reply.ok:
            return
        error = failure(reply).at(region=instance.region, resource_id=instance.provider_id)
        if verdict(reply) is not None or reply.status >= 500:
            raise error
        # Unknown refusal: hopeless only if the state says so, else the attach deadline decides.
        entries = self._entries(f"{route.path}/{self._id(instance)}/vpcs")
        joined = {entry.id.lower() for entry in entries or ()}
        if network.provider_id.lower() in joined:
            return
        seen = self.observe(network)
        if entries is None or isinstance(seen, Absent) or seen.region != instance.region:
            raise error
        if route is METALS and joined:
            raise explained(error, ProviderRejected, "a bare metal machine joins one VPC only")
        raise explained(error, ProviderBusy, "refused in words we do not know; machine and VPC are in order")

    # --- read ---

    def observe(self, ref: Ref) -> Observation | Absent:
        """One GET where the id is known; complete lists only to confirm a refusal that is not understood."""
        if not ref.provider_id:
            found = self.find(ref)
            return found[0] if found else Absent("by_marker: not in a complete list")
        if ref.kind is ResourceKind.NETWORK:
            return self._observe_vpc(ref)
        if ref.kind is ResourceKind.VOLUME:
            return self._observe_block(ref)
        absent = Absent("by_id: no route to look at")
        for route in self._routes(ref):
            seen = self._observe_machine(ref, route)
            if isinstance(seen, Observation):
                return seen
            absent = seen
        return absent

    def find(self, ref: Ref) -> list[Observation]:
        """All that carry exactly this marker in any region, oldest first."""
        self._require_marker(ref.marker)
        if ref.kind is ResourceKind.NETWORK:
            found = [observed_vpc(vpc) for vpc in self._vpcs() if vpc.description == ref.marker]
        elif ref.kind is ResourceKind.VOLUME:
            found = [seen for seen in self._marked_blocks(ref.marker) if seen.marker == ref.marker]
        else:
            found = [
                observed_machine(machine, route, ref.marker)
                for route in self._routes(ref)
                for machine in self._tagged(route, ref.marker)
                if ref.marker in machine.tags
            ]
        return sorted(found, key=lambda seen: (seen.created_at is None, seen.created_at, seen.provider_id))

    def list_of(self, ref: Ref) -> str:
        """`vm` and `bare_metal`: each list shows the whole account, 500 machines a page."""
        return ref.subkind if ref.kind is ResourceKind.INSTANCE and ref.subkind else ""

    def list_machines(self, name: str) -> list[Observation]:
        """One call per 500 machines. Of machines with a marker of ours, whatever the deployment."""
        route = _ROUTES[PlanKind(name)]

        def choose(machine: Machine) -> Observation | None:
            seen = observed_machine(machine, route)
            return replace(seen, network_ids=()) if seen.marker else None

        return self._client.chosen(route.path, route.many, Machine, choose)

    def list_owned(self, region: str, deployment: str, *, once: Once | None = None) -> Iterator[Observation]:
        """Everything of this deployment in the region, read in full before the first item is given.

        Only the list of instances can be narrowed to a region; the other lists are read once for all regions.
        """
        prefix = marker_for(deployment, "")
        once = once or Once()
        metals = once.read("bare-metals", lambda: self._marked(METALS, prefix))
        vpcs = once.read("vpcs", lambda: self._marked_vpcs(prefix))
        blocks = once.read("blocks", lambda: self._marked_blocks(prefix))
        vms = self._marked(VMS, prefix, {"region": region})
        return iter([seen for seen in (*vms, *metals, *vpcs, *blocks) if seen.region == region])

    def _marked(self, route: Route, prefix: str, filters: Mapping[str, str] | None = None) -> list[Observation]:
        """Machines with a marker that begins so; of the others nothing is kept."""

        def choose(machine: Machine) -> Observation | None:
            marker = next((tag for tag in machine.tags if tag.startswith(prefix)), "")
            return observed_machine(machine, route, marker) if marker else None

        return self._client.chosen(route.path, route.many, Machine, choose, filters)

    def _marked_vpcs(self, prefix: str) -> list[Observation]:
        def choose(vpc: Vpc) -> Observation | None:
            return observed_vpc(vpc) if vpc.description.startswith(prefix) else None

        return self._client.chosen("/vpcs", "vpcs", Vpc, choose)

    # --- delete ---

    def destroy(self, ref: Ref) -> None:
        """One DELETE (of a block after a look). Returns = accepted, on its way already, or unknown there; whether it is
        gone, `observe` tells."""
        if not ref.provider_id:
            for seen in self.find(ref):
                self.destroy(Ref(seen.kind, seen.region, seen.marker, seen.provider_id, seen.subkind))
            return
        if ref.kind is ResourceKind.NETWORK:
            self._delete(ref, f"/vpcs/{self._id(ref)}")
            return
        if ref.kind is ResourceKind.VOLUME:
            if self._must_be_free(ref):
                self._delete(ref, f"/blocks/{self._id(ref)}")
            return
        for route in self._routes(ref):
            self._delete(ref, f"{route.path}/{self._id(ref)}")

    def _delete(self, ref: Ref, path: str) -> None:
        reply = self._client.delete(path)
        known = verdict(reply) if not reply.ok else None
        if reply.ok or isinstance(known, Meaning):
            return
        error = failure(reply).at(region=ref.region, resource_id=ref.provider_id)
        if known is not None or reply.status >= 500:
            raise error
        # Unknown refusal: done if it is gone or going, else "not now".
        seen = self.observe(ref)
        if isinstance(seen, Observation) and seen.condition is not Condition.DELETING:
            raise explained(error, ProviderBusy, f"refused in words we do not know; it still exists: {seen.words}")

    # --- parts ---

    def _observe_machine(self, ref: Ref, route: Route) -> Observation | Absent:
        path = f"{route.path}/{self._id(ref)}"
        reply = self._client.get(path)
        if reply.ok:
            machine = parsed(reply, Machine, reply.value(*route.one))
            if machine.id.lower() != ref.provider_id.lower():
                reply.unexpected("the answer is about another machine")
            if machine.vpcs is None:
                machine = machine.model_copy(update={"vpcs": self._entries(f"{path}/vpcs")})
            return observed_machine(machine, route, ref.marker)
        known = verdict(reply)
        if known is Meaning.GOING:
            return going(ref, route, f"{reply.status} {reply.text}")
        if known is Meaning.NOT_FOUND:
            return Absent(f"by_id: {reply.status} {reply.text}")
        listed = self._client.listing(route.path, route.many, Machine)
        same = next((machine for machine in listed if machine.id.lower() == ref.provider_id.lower()), None)
        if same is not None:
            return observed_machine(same, route, ref.marker, f"by list; by id {reply.status}")
        return self._not_listed(reply, ref)

    def _observe_vpc(self, ref: Ref) -> Observation | Absent:
        reply = self._client.get(f"/vpcs/{self._id(ref)}")
        if reply.ok:
            vpc = parsed(reply, Vpc, reply.value("vpc", "network"))
            if vpc.id.lower() != ref.provider_id.lower():
                reply.unexpected("the answer is about another VPC")
            return observed_vpc(vpc)
        if verdict(reply) is Meaning.NOT_FOUND:
            return Absent(f"by_id: {reply.status} {reply.text}")
        same = next((vpc for vpc in self._vpcs() if vpc.id.lower() == ref.provider_id.lower()), None)
        return observed_vpc(same) if same is not None else self._not_listed(reply, ref)

    def _entries(self, path: str) -> tuple[VpcEntry, ...] | None:
        """The VPCs of a machine; None = no such machine."""
        reply = self._client.get(path)
        if reply.ok:
            raw = reply.value("vpcs")
            if not isinstance(raw, list):
                reply.unexpected("'vpcs' is no list")
            return tuple(parsed(reply, VpcEntry, entry) for entry in raw)
        if verdict(reply) is Meaning.NOT_FOUND or reply.status == 404:
            return None
        raise failure(reply)

    def _tagged(self, route: Route, marker: str) -> list[Machine]:
        if not route.filters:
            return self._client.listing(route.path, route.many, Machine)
        try:
            return self._client.listing(route.path, route.many, Machine, {"tag": marker})
        except ProviderRejected:
            # The filter is marked as deprecated in the reference; without it, all pages do.
            return self._client.listing(route.path, route.many, Machine)

    def _vpcs(self) -> list[Vpc]:
        return self._client.listing("/vpcs", "vpcs", Vpc)

    def _routes(self, ref: Ref) -> tuple[Route, ...]:
        if ref.kind is not ResourceKind.INSTANCE:
            raise self._rejected(f"there is no {ref.kind} here", ref.region)
        return (_ROUTES[PlanKind(ref.subkind)],) if ref.subkind else (VMS, METALS)
