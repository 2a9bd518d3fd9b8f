"""Which image a machine boots: `ami-…`, `ssm:/path/of/a/parameter`, or AWS' own Deep Learning base image with drivers.

Paths: https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html. They differ by region only in what they
name, and change with Ubuntu's versions, so several are tried.
"""

import json
import re
from dataclasses import dataclass

from gpulease.errors import InputInvalid, ProviderRejected
from gpulease.providers.aws.client import AwsClient, items, rejected, unexpected
from gpulease.providers.aws.shared import Shared

_AMI = re.compile(r"ami-[0-9a-f]{8,17}")
_PARAMETER = re.compile(r"ssm:/[A-Za-z0-9._/-]{1,120}")
_DEFAULT = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-{version}/latest/ami-id"
_UBUNTU = ("22.04", "24.04")
FRESH_SECONDS = 3600.0
USABLE_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Image:
    """`root_device` is the name of its root disk."""

    id: str
    root_device: str


def checked(image: str | None) -> str:
    """The image as given; empty = the default. Raises InputInvalid(field="image")."""
    if image is None or _AMI.fullmatch(image) or _PARAMETER.fullmatch(image):
        return image or ""
    raise InputInvalid(f"image {image!r}: on AWS use ami-… or ssm:/path/of/a/parameter", field="image")


class Images:
    """Images of one account, looked up once an hour for all workers."""

    def __init__(self, client: AwsClient, shared: Shared, default: str = "") -> None:
        self._client = client
        self._shared = shared
        self._default = default

    def resolve(self, image: str | None, region: str, cpu_arch: str) -> Image:
        """The image of that region. Raises ProviderRejected where there is none that can be booted."""
        wanted = checked(image) or self._default
        text = self._shared.read(
            f"image/{region}/{wanted or cpu_arch}",
            lambda: _text(self._resolve(wanted, region, cpu_arch)),
            fresh_seconds=FRESH_SECONDS,
            usable_seconds=USABLE_SECONDS,
        )
        return Image(*json.loads(text))

    def _resolve(self, wanted: str, region: str, cpu_arch: str) -> Image:
        if _AMI.fullmatch(wanted):
            return self._image(wanted, region)
        if wanted:
            paths = [wanted.removeprefix("ssm:")]
        else:
            paths = [_DEFAULT.format(arch=cpu_arch, version=version) for version in _UBUNTU]
        for path in paths:
            named = self._parameter(path, region)
            if named:
                return self._image(named, region)
        raise rejected(f"no image: {' and '.join(paths)} name none in {region}", region)

    def _parameter(self, path: str, region: str) -> str:
        try:
            answer = self._client.read(region, "get_parameter", service="ssm", Name=path)
        except ProviderRejected as error:
            if error.facts.code == "ParameterNotFound":
                return ""
            raise
        value = str(answer.get("Parameter", {}).get("Value", ""))
        if not _AMI.fullmatch(value):
            unexpected(f"{path} does not hold the id of an image", region, "get_parameter")
        return value

    def _image(self, image_id: str, region: str) -> Image:
        answer = self._client.read(region, "describe_images", ImageIds=[image_id])
        found = next(iter(items(answer, "Images", region, "describe_images")), None)
        if found is None or found.get("State") != "available":
            state = found.get("State") if found else "not there"
            raise rejected(f"image {image_id} is {state} in {region}", region)
        return Image(image_id, str(found.get("RootDeviceName") or "/dev/sda1"))


def _text(image: Image) -> str:
    return json.dumps([image.id, image.root_device])
