"""What a machine boots: our names for images, and the fields of a create call they stand for.

`ubuntu-22.04` `ubuntu-24.04` `debian-12` `os:<id>` `app:<id>` (one-click application) `image:<id>` (marketplace).
"""

import re

from gpulease.domain.offer import PlanKind
from gpulease.errors import InputInvalid

# Ids of GET /os, 2026.
SYSTEMS: dict[str, int] = {"ubuntu-22.04": 1743, "ubuntu-24.04": 2284, "debian-12": 2136}

DEFAULTS: dict[PlanKind, dict[str, int | str]] = {
    # GPU VMs of Ubuntu 22.04 come with Docker and what the GPU needs (dstack uses it); nothing is known of others.
    PlanKind.VM: {"os_id": SYSTEMS["ubuntu-22.04"]},
    # On bare metal the plain system has no Docker, the marketplace image "docker" (Ubuntu 22.04) has (same source).
    PlanKind.BARE_METAL: {"image_id": "docker"},
}

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def boot_fields(image: str | None, kind: PlanKind) -> dict[str, int | str]:
    """The fields of the create call for this image. Raises InputInvalid(field="image")."""
    if image is None:
        return dict(DEFAULTS[kind])
    if image in SYSTEMS:
        return {"os_id": SYSTEMS[image]}
    form, _, value = image.partition(":")
    if form in ("os", "app") and _NUMBER.fullmatch(value):
        return {f"{form}_id": int(value)}
    if form == "image" and _WORD.fullmatch(value):
        return {"image_id": value}
    known = ", ".join([*SYSTEMS, "os:<id>", "app:<id>", "image:<marketplace id>"])
    raise InputInvalid(f"image {image!r} is of no form that Vultr knows; use one of: {known}", field="image")
