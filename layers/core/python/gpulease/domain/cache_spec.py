"""What a cache is, and how a lease uses one. The rules are in `domain/cache.py`."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gpulease.domain.model import STORED, Model

MAX_MOUNTS = 20
SYSTEMS_OWN = (
    *("/proc", "/sys", "/dev", "/boot", "/etc", "/run", "/var/run", "/snap"),
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64"),
    *("/root/.ssh", "/var/lib/gpulease", "/var/lib/cloud"),
)
HOLDS_THE_SYSTEM = frozenset({"/usr", "/usr/local", "/var", "/var/lib", "/var/log", "/root", "/home", "/opt"})
"""With one machine's files of these in its place another one does not work, or lets nobody in; what lies in them can be
kept."""
_NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
_PATH = r"^/[A-Za-z0-9._/@+-]+$"
_ENDPOINT = r"^(https?://[A-Za-z0-9.:_-]+)?$"
_BUCKET = r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$"
_PREFIX = r"^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$"
_STORE_REGION = r"^[A-Za-z0-9-]+$"
_SECRET = r"^[A-Za-z0-9._-]*$"  # noqa: S105 - a pattern
FORMS = {
    _NAME: "small letters, digits and -, with a letter or digit at both ends",
    _PATH: "an absolute path of letters, digits, . _ / @ + -",
    _ENDPOINT: "an address without a path, such as https://s3.example.com",
    _BUCKET: "a bucket's name: 3 to 63 small letters, digits, . and -",
    _PREFIX: "a prefix without a slash at its ends: letters, digits, . _ - and / between",
    _STORE_REGION: "a region's name, such as us-east-1",
    _SECRET: "a secret's name: letters, digits, . _ -",
}
"""What is right, in words, by pattern."""
CacheName = Annotated[str, Field(min_length=1, max_length=63, pattern=_NAME)]
MountPath = Annotated[str, Field(min_length=2, max_length=256, pattern=_PATH)]


class ObjectStore(Model):
    """An S3-compatible place for a cache's content. Keys are not here: they are the secret `credentials`."""

    endpoint: str = Field(default="", max_length=256, pattern=_ENDPOINT)
    """Empty = AWS S3."""
    region: str = Field(default="us-east-1", min_length=1, max_length=64, pattern=_STORE_REGION)
    bucket: str = Field(min_length=3, max_length=63, pattern=_BUCKET)
    prefix: str = Field(default="", max_length=256, pattern=_PREFIX)
    credentials: str = Field(default="", max_length=64, pattern=_SECRET)
    """Name of the secret with the access key; empty = what the machine's image brings."""


class CacheSpec(Model):
    """One cache. With a place it has a volume there; with an object store its content can go anywhere; or both."""

    user: str
    """Its owner. The record itself is listed under another name, so that no listing of leases shows it."""
    size_gb: int = Field(ge=1, le=16384)
    provider: str = ""
    """Empty = no volume."""
    account: str = ""
    region: str = ""
    zone: str = ""
    throughput_mibps: int | None = Field(default=None, ge=1)
    """MiB per second that its volume is paid to give; None = what such a volume gives anyway."""
    object_store: ObjectStore | None = None
    expire_after_seconds: int | None = Field(default=14 * 86400, ge=3600, le=366 * 86400)
    """Removed after having been unused for so long; None = never."""

    @property
    def has_volume(self) -> bool:
        return bool(self.provider)


class CacheUse(Model):
    """What a lease wants of a cache."""

    name: CacheName
    mounts: tuple[MountPath, ...] = Field(default=(), max_length=MAX_MOUNTS)
    """Directories of the machine that are kept in the cache."""
    docker: bool = False
    """Keep Docker's own data there too."""

    @field_validator("mounts")
    @classmethod
    def _plain(cls, paths: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if info.context == STORED:
            return paths
        for path in paths:
            if any(part in ("", ".", "..") for part in path[1:].split("/")):
                raise ValueError(f"{path}: must be an absolute path without empty parts, . or ..")
            below = any((path + "/").startswith(own + "/") for own in SYSTEMS_OWN)
            if below or path in HOLDS_THE_SYSTEM:
                raise ValueError(f"{path}: is the system's own and cannot be kept in a cache")
        for path in paths:
            if any(other != path and path.startswith(other + "/") for other in paths):
                raise ValueError(f"{path}: lies inside another path of the same cache")
        if len(set(paths)) != len(paths):
            raise ValueError("names a path twice")
        return paths

    @model_validator(mode="after")
    def _something(self) -> "CacheUse":
        if not self.mounts and not self.docker:
            raise ValueError("cache: give at least one path, or docker: true")
        return self
