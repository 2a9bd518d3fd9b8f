"""Why a create was refused when nobody knows the text: decided by what the provider's own lists say.

4xx means that nothing was created. The account's limits cannot be read at Vultr, so a limit is what is left when plan,
region, image and stock are all in order.
"""

from gpulease.errors import (
    CapacityRefused,
    LedgerUnavailable,
    NetworkUnsupported,
    ProviderError,
    ProviderRejected,
    ProviderThrottled,
    ProviderUnexpected,
    QuotaRefused,
)
from gpulease.ports import InstanceRequest
from gpulease.providers.http import Reply, explained
from gpulease.providers.vultr.client import VultrClient, failure
from gpulease.providers.vultr.errors import CAPACITY_WORDS
from gpulease.providers.vultr.models import Application, OperatingSystem
from gpulease.providers.vultr.stock import Stock


def why_refused(
    reply: Reply, request: InstanceRequest, boot: dict[str, int | str], client: VultrClient, stock: Stock
) -> ProviderError:
    """The error for a 4xx answer to a create with a text that is in no row of the table.

    ProviderUnexpected when the lists cannot be read: then the create is treated as unclear and looked up by its marker.
    """
    refused = failure(reply)
    try:
        kind, why = _by_state(reply.text, request, boot, client, stock)
    except ProviderThrottled:
        # Throttled lists must not be mistaken for a throttled create.
        return explained(refused, ProviderUnexpected, "could not find out why: throttled")
    except LedgerUnavailable:
        # Lists are shared between workers by way of a store, which may fail as well.
        return explained(refused, ProviderUnexpected, "could not find out why: shared lists unavailable")
    except ProviderError as exc:
        return explained(refused, ProviderUnexpected, f"could not find out why: {exc.reason}")
    return explained(refused, kind, why)


def _by_state(
    text: str, request: InstanceRequest, boot: dict[str, int | str], client: VultrClient, stock: Stock
) -> tuple[type[ProviderError], str]:
    offer = request.offer
    plan = stock.plan(offer.plan, offer.kind)
    if plan is None:
        return ProviderRejected, "there is no such plan"
    if offer.region not in stock.regions():
        return ProviderRejected, "there is no such region"
    if not stock.in_stock(plan, offer.region):
        return CapacityRefused, "the plan is not in stock in this region"
    if not _image_exists(boot, client):
        return ProviderRejected, "there is no such image"
    if CAPACITY_WORDS.search(text):
        return CapacityRefused, "inferred from the words; the plan is listed as in stock"
    if request.network_provider_id:
        # What else was asked for is in order, so it is the network or a limit; without the network the answer is clear.
        return NetworkUnsupported, "inferred: plan, region, image and stock are in order, and a VPC was asked for"
    return QuotaRefused, "inferred: plan, region, image and stock are in order, so a limit of the account is left"


def _image_exists(boot: dict[str, int | str], client: VultrClient) -> bool:
    if "os_id" in boot:
        return any(each.id == boot["os_id"] for each in client.listing("/os", "os", OperatingSystem))
    apps = client.listing("/applications", "applications", Application, {"type": "all"})
    return any(each.id == boot.get("app_id") or each.image_id == boot.get("image_id", "-") for each in apps)
