"""What a call is about, whichever provider's: as much as the invariants need."""

import json
from dataclasses import dataclass
from typing import Any

from gpulease_local.simulate.aws_calls import CREATES as AWS_CREATES
from gpulease_local.simulate.aws_calls import AwsRequest
from gpulease_local.simulate.clouds import MACHINE, NETWORK, VOLUME
from gpulease_local.simulate.effects import CREATES as VULTR_CREATES

_MARKER_FIELDS = {"vpc": "description", "block": "label"}
_DELETES = {"TerminateInstances": MACHINE, "DeleteVolume": VOLUME, "DeleteSecurityGroup": NETWORK}


@dataclass(frozen=True, slots=True)
class Call:
    """A call that changes something."""

    text: str
    kind: str = ""
    """Of what it makes, in the provider's word; empty = it makes nothing of ours."""
    markers: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    """Ids of the things that it names."""
    deletes: str = ""
    """Role of what it deletes."""
    volume: str = ""
    """Id of the volume that it is about."""
    attach_to: str = ""
    """Id of the machine that is to get the volume."""
    detaches: bool = False
    """It takes the volume from the machine that has it."""


def vultr_call(method: str, path: str, body: bytes) -> Call | None:
    """None = a read."""
    if method == "GET":
        return None
    text = f"{method} {path}"
    kind = VULTR_CREATES.get(path, "") if method == "POST" else ""
    if kind:
        asked: dict[str, Any] = json.loads(body)
        markers = [asked.get(_MARKER_FIELDS[kind], "")] if kind in _MARKER_FIELDS else list(asked.get("tags") or ())
        return Call(text, kind, tuple(markers))
    parts = path.strip("/").split("/")
    target = parts[1] if len(parts) > 1 else ""
    role = {"instances": MACHINE, "bare-metals": MACHINE, "vpcs": NETWORK, "blocks": VOLUME}.get(parts[0], "")
    attach_to = json.loads(body).get("instance_id", "") if role == VOLUME and path.endswith("/attach") else ""
    return Call(
        text,
        targets=(target,) if target else (),
        deletes=role if method == "DELETE" else "",
        volume=target if role == VOLUME else "",
        attach_to=attach_to,
        detaches=role == VOLUME and path.endswith("/detach"),
    )


def aws_call(asked: AwsRequest) -> Call | None:
    """None = a read."""
    if asked.is_read:
        return None
    text = f"{asked.action} {asked.region}"
    kind, role = AWS_CREATES.get(asked.action, ("", ""))
    marker = asked.marker()
    # The group that all machines have for SSH carries no marker: it is free, and shared by all of a deployment.
    if kind and (marker or role != NETWORK):
        return Call(text, kind, (marker,))
    return Call(
        text,
        targets=asked.targets(),
        deletes=_DELETES.get(asked.action, ""),
        volume=asked.params.get("VolumeId", "") if asked.action.endswith("Volume") else "",
        attach_to=asked.params.get("InstanceId", "") if asked.action == "AttachVolume" else "",
        detaches=asked.action == "DetachVolume",
    )
