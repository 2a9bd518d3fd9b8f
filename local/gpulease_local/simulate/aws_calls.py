"""What a request of the AWS protocol asks for: as much as is needed to judge it and to spoil it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

_CREDENTIAL = re.compile(r"Credential=[^/]+/[^/]*/([^/]+)/([^/]+)/aws4_request")
_READS = ("Describe", "Get", "List")
CREATES = {
    "RunInstances": ("instance", "machine"),
    "CreateVolume": ("volume", "volume"),
    "CreateSecurityGroup": ("security-group", "network"),
}
"""Action to the resource type of its tags, and to the role of what it makes."""
MARKER_TAG = "gpulease-marker"
_TARGETS = ("InstanceId", "VolumeId", "GroupId", "SpotInstanceRequestId", "AllocationId")


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """One request. `params` are flat, as sent."""

    service: str
    region: str
    action: str
    params: Mapping[str, str]

    @property
    def is_read(self) -> bool:
        return self.action.startswith(_READS)

    @property
    def names_ids(self) -> bool:
        """Whether it asks for things by their ids."""
        return bool(self.targets())

    def targets(self) -> tuple[str, ...]:
        """Ids that it is about."""
        return tuple(value for name, value in self.params.items() if name.partition(".")[0] in _TARGETS)

    def marker(self) -> str:
        """The marker that a create carries; empty = none."""
        kind, _ = CREATES.get(self.action, ("", ""))
        types = [name for name, value in self.params.items() if name.endswith(".ResourceType") and value == kind]
        for name in types:
            start = name.removesuffix("ResourceType")
            for key, value in self.params.items():
                if key.startswith(start + "Tag.") and key.endswith(".Key") and value == MARKER_TAG:
                    return self.params.get(key.removesuffix("Key") + "Value", "")
        return ""


def aws_request(headers: Mapping[str, str], body: bytes) -> AwsRequest:
    """Raises ValueError for what is no signed request."""
    found = _CREDENTIAL.search(headers.get("Authorization", ""))
    if found is None:
        raise ValueError("not signed")
    region, service = found.groups()
    target = headers.get("X-Amz-Target", "")
    if target:
        data = json.loads(body or b"{}")
        return AwsRequest(service, region, target.rpartition(".")[2], {key: str(value) for key, value in data.items()})
    params = dict(parse_qsl(body.decode(), keep_blank_values=True))
    return AwsRequest(service, region, params.get("Action", ""), params)
