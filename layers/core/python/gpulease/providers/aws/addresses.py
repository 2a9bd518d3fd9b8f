"""Elastic IP addresses with a marker of ours. None are asked for today; what is billed is found and given back."""

from gpulease.domain.observation import Absent, Observation
from gpulease.errors import ProviderBusy, ProviderError, ProviderUnexpected
from gpulease.ports import Ref
from gpulease.providers.aws.client import AwsClient, is_absent, items
from gpulease.providers.aws.views import DEPLOYMENT_TAG, MARKER_TAG, Raw, by_tag, observed_address
from gpulease.providers.http import explained


class Addresses:
    """Addresses of one account. Their list has no pages."""

    def __init__(self, client: AwsClient) -> None:
        self._client = client

    def observe(self, ref: Ref) -> Observation | Absent:
        found = self._read(ref.region, {"Name": "allocation-id", "Values": [ref.provider_id]})
        return observed_address(found[0], ref.region) if found else Absent("by_id: in no list")

    def find(self, ref: Ref) -> list[Observation]:
        found = self._read(ref.region, by_tag(MARKER_TAG, ref.marker))
        return [seen for seen in (observed_address(raw, ref.region) for raw in found) if seen.marker == ref.marker]

    def owned(self, region: str, deployment: str) -> list[Observation]:
        return [observed_address(raw, region) for raw in self._read(region, by_tag(DEPLOYMENT_TAG, deployment))]

    def destroy(self, ref: Ref) -> None:
        """One ReleaseAddress."""
        try:
            self._client.change(ref.region, "release_address", AllocationId=ref.provider_id)
        except ProviderUnexpected as error:
            raise explained(error, ProviderBusy, "refused with a code we do not know").at(region=ref.region) from None
        except ProviderError as error:
            if not is_absent(error):
                raise error.at(region=ref.region, resource_id=ref.provider_id) from None

    def _read(self, region: str, wanted: dict[str, object]) -> list[Raw]:
        answer = self._client.read(region, "describe_addresses", Filters=[wanted])
        return list(items(answer, "Addresses", region, "describe_addresses"))
