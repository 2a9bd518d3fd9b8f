"""Stopping and block storage: the part of the adapter that keeps data while no machine runs.

- A halted machine is billed in full (Vultr, "Cloud Compute FAQ"), so none is ever stopped to save money.
- A block has no tags; its marker is its whole label, set in the create call and compared exactly.
- Attach and detach name no reason that could be relied on: a refusal in unknown words is decided by what the block and
  the machine show. An attach that was accepted shows some seconds later only.
- A block may be deleted only while it is free. What the API does with one in use is not documented, so it is not tried.
"""

from decimal import Decimal
from typing import TYPE_CHECKING

from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import Offer, PlanKind
from gpulease.errors import (
    CapacityRefused,
    InputInvalid,
    ProviderBusy,
    ProviderError,
    ProviderFacts,
    ProviderRejected,
    ProviderUnexpected,
    QuotaRefused,
)
from gpulease.ports import Ref, VolumeRequest
from gpulease.providers.http import Reply, explained
from gpulease.providers.vultr.blocks import BlockSort, block_sort, checked_size
from gpulease.providers.vultr.client import VultrClient, failure, is_id, parsed, verdict
from gpulease.providers.vultr.errors import CAPACITY_WORDS, Meaning
from gpulease.providers.vultr.models import Block, Region
from gpulease.providers.vultr.views import VMS, observed_block

MAX_LABEL_CHARACTERS = 128
"""Of the lengths at which the API has been measured to cut other texts without a word, the shortest."""
_BILLED_WHILE_HALTED = "a halted machine is billed in full here: stopping saves nothing"


class VultrVolumes:
    """The calls of `ports.Provider` about stopping and volumes."""

    name = "vultr"
    _client: VultrClient

    if TYPE_CHECKING:

        def observe(self, ref: Ref) -> Observation | Absent: ...

    # --- stopping ---

    def can_stop(self, offer: Offer) -> bool:
        """Never: the bill goes on."""
        return False

    def stopped_price_per_hour(self, offer: Offer) -> Decimal:
        """Raises ProviderRejected: there is no such state."""
        raise self._rejected(_BILLED_WHILE_HALTED, offer.region)

    def stop(self, instance: Ref) -> None:
        """Raises ProviderRejected, without a call."""
        raise self._rejected(_BILLED_WHILE_HALTED, instance.region)

    def start(self, instance: Ref) -> None:
        """Raises ProviderRejected, without a call."""
        raise self._rejected(_BILLED_WHILE_HALTED, instance.region)

    # --- volumes ---

    def can_attach_volume(self, offer: Offer, region: str, zone: str) -> bool:
        """VMs of the same region; bare metal takes none (Vultr's CSI driver refuses it too). There are no zones."""
        return offer.kind is PlanKind.VM and offer.region == region and not zone

    def volume_price_per_month(self, region: str, size_gb: int, throughput_mibps: int | None = None) -> Decimal:
        """The list price. Raises InputInvalid(field="region", "size_gb" or "throughput_mibps")."""
        _no_speed(throughput_mibps)
        sort = block_sort(region)
        return sort.usd_per_gb_month * checked_size(sort, region, size_gb)

    def create_volume(self, request: VolumeRequest) -> Observation:
        """One POST. Raises InputInvalid before it, else as `create_instance`."""
        self._require_marker(request.marker)
        if len(request.marker) > MAX_LABEL_CHARACTERS:
            raise self._rejected(f"a marker of {len(request.marker)} characters might be cut", request.region)
        if request.zone:
            raise InputInvalid(f"Vultr has no zones, {request.zone!r} is none", field="zone")
        _no_speed(request.throughput_mibps)
        sort = block_sort(request.region)
        size_gb = checked_size(sort, request.region, request.size_gb)
        body = {"region": request.region, "size_gb": size_gb, "block_type": sort.name, "label": request.marker}
        reply = self._client.post("/blocks", body)
        if not reply.ok:
            raise self._why_no_volume(reply, request.region, sort).at(region=request.region)
        block = parsed(reply, Block, reply.value("block"))
        if not is_id(block.id):
            reply.unexpected("the new block has no proper id")
        return observed_block(block)

    def _why_no_volume(self, reply: Reply, region: str, sort: BlockSort) -> ProviderError:
        """A refusal in unknown words: not sold there any more, no stock, or a limit. 4xx: nothing was created.

        ProviderUnexpected where the provider's list cannot be read: then the create counts as unclear.
        """
        error = failure(reply)
        if verdict(reply) is not None or reply.status >= 500:
            return error
        try:
            regions = self._client.listing("/regions", "regions", Region)
        except ProviderError as exc:
            return explained(error, ProviderUnexpected, f"could not find out why: {exc.reason}")
        if not any(each.id.lower() == region and f"block_storage_{sort.name}" in each.options for each in regions):
            return explained(error, ProviderRejected, f"{sort.name} block storage is not sold in this region")
        if CAPACITY_WORDS.search(reply.text):
            return explained(error, CapacityRefused, "inferred from the words; it is sold in this region")
        return explained(
            error, QuotaRefused, "inferred: region and size are in order, so a limit of the account is left"
        )

    def attach_volume(self, volume: Ref, instance: Ref) -> None:
        """One POST, without a restart; it shows some seconds later. Raises ProviderBusy, ProviderRejected."""
        if instance.subkind == PlanKind.BARE_METAL.value:
            raise self._rejected("bare metal takes no block storage", instance.region)
        if volume.region != instance.region:
            raise self._rejected(f"a block in {volume.region} cannot serve a machine elsewhere", instance.region)
        body = {"instance_id": self._id(instance), "live": True}
        reply = self._client.post(f"/blocks/{self._id(volume)}/attach", body)
        if reply.ok:
            return
        error = failure(reply).at(region=volume.region, resource_id=volume.provider_id)
        if verdict(reply) is not None or reply.status > 500:
            raise error
        self._judge_attach(error, volume, instance)

    def _judge_attach(self, error: ProviderError, volume: Ref, instance: Ref) -> None:
        """Return: it is attached. Hopeless only if block or machine say so; else the caller's deadline decides."""
        seen = self.observe(volume)
        if isinstance(seen, Absent):
            raise explained(error, ProviderRejected, "there is no such block")
        if seen.attached_to == instance.provider_id.lower():
            return
        if seen.attached_to:
            raise explained(error, ProviderBusy, f"the block is attached to {seen.attached_to}")
        machine = self.observe(
            Ref(instance.kind, instance.region, instance.marker, instance.provider_id, VMS.kind.value)
        )
        if isinstance(machine, Absent):
            raise explained(error, ProviderRejected, "there is no such VM")
        if machine.condition in (Condition.DELETING, Condition.FAILED):
            raise explained(error, ProviderRejected, f"the machine is {machine.condition.value}: {machine.words}")
        if seen.region != machine.region:
            raise explained(error, ProviderRejected, f"the block is in {seen.region}, the machine in {machine.region}")
        raise explained(error, ProviderBusy, f"not now: the block is {seen.words}, the machine {machine.words}")

    def detach_volume(self, volume: Ref, instance: Ref) -> None:
        """One POST, unless another machine has it. Raises ProviderBusy. Whether it is free, `observe` tells.

        Sent also while the block shows no machine: an attach that was just accepted does not show yet.
        """
        seen = self.observe(volume)
        if isinstance(seen, Absent):
            return
        if instance.provider_id and seen.attached_to not in ("", instance.provider_id.lower()):
            return
        reply = self._client.post(f"/blocks/{self._id(volume)}/detach", {"live": True})
        known = verdict(reply) if not reply.ok else None
        if reply.ok or isinstance(known, Meaning):
            return
        error = failure(reply).at(region=volume.region, resource_id=volume.provider_id)
        if known is not None or reply.status > 500:
            raise error
        again = self.observe(volume)
        if isinstance(again, Observation) and again.attached_to:
            raise explained(error, ProviderBusy, f"refused in words we do not know; attached to {again.attached_to}")

    def _must_be_free(self, ref: Ref) -> bool:
        """Whether there is a block to delete. Raises ProviderBusy while a machine has it."""
        seen = self._observe_block(ref)
        if isinstance(seen, Absent):
            return False
        if seen.attached_to:
            facts = ProviderFacts(self.name, f"attached to {seen.attached_to}", ref.region, ref.provider_id)
            raise ProviderBusy(facts)
        return True

    def _observe_block(self, ref: Ref) -> Observation | Absent:
        reply = self._client.get(f"/blocks/{self._id(ref)}")
        if reply.ok:
            block = parsed(reply, Block, reply.value("block"))
            if block.id.lower() != ref.provider_id.lower():
                reply.unexpected("the answer is about another block")
            return observed_block(block)
        if verdict(reply) is Meaning.NOT_FOUND:
            return Absent(f"by_id: {reply.status} {reply.text}")
        same = next((block for block in self._blocks() if block.id.lower() == ref.provider_id.lower()), None)
        return observed_block(same, f"by list; by id {reply.status}") if same else self._not_listed(reply, ref)

    def _blocks(self) -> list[Block]:
        return self._client.listing("/blocks", "blocks", Block)

    def _marked_blocks(self, prefix: str) -> list[Observation]:
        def choose(block: Block) -> Observation | None:
            return observed_block(block) if block.label.startswith(prefix) else None

        return self._client.chosen("/blocks", "blocks", Block, choose)

    # --- parts that the other calls share ---

    def _not_listed(self, reply: Reply, ref: Ref) -> Absent:
        """A read by id was refused in unknown words and a complete list does not have it either."""
        if reply.status in (400, 404, 410, 422):
            return Absent(f"by_id: {reply.status} {reply.text}; not in a complete list")
        raise failure(reply).at(region=ref.region, resource_id=ref.provider_id)

    def _id(self, ref: Ref) -> str:
        if not is_id(ref.provider_id):
            raise self._rejected(f"{ref.provider_id!r} is no id of a machine, VPC or block", ref.region)
        return ref.provider_id

    def _require_marker(self, marker: str) -> None:
        if not marker:
            raise self._rejected("a resource without a marker can neither be made nor looked for", "")

    def _rejected(self, why: str, region: str) -> ProviderRejected:
        return ProviderRejected(ProviderFacts(self.name, why[:300], region=region))


def _no_speed(throughput_mibps: int | None) -> None:
    if throughput_mibps is not None:
        text = "Vultr's block storage is as fast as its sort is in that region, with no speed to buy: leave it out"
        raise InputInvalid(text, field="throughput_mibps")
