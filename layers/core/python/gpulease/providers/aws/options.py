"""What the AWS adapter is told besides its account: where, as whom, with which image, and how to reach a stand-in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

CATALOGUE_URL = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3"
"""Where gpuhunt 0.1.34 publishes its catalogues."""


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """One instance type in one region at one price, as the catalogue has it; `gpu_memory_gib` is per GPU."""

    plan: str
    region: str
    price_per_hour_usd: Decimal
    vcpus: int
    memory_gib: float
    gpu_model: str
    gpu_count: int
    gpu_memory_gib: float
    spot: bool = False
    cpu_arch: str = "x86_64"


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """Settings of one AWS account."""

    regions: tuple[str, ...] = ()
    """Where machines are offered. What the ledger holds elsewhere is watched and given back all the same."""
    subnets: Mapping[str, str] = field(default_factory=dict)
    """Zone to subnet. Empty = the default subnets of the default VPC; else only these zones are offered."""
    security_group: str = ""
    """Empty = one group per VPC that lets SSH in, made when it is first needed."""
    image: str = ""
    """`ami-…` or `ssm:/path`; empty = AWS' Deep Learning base image."""
    role_arn: str = ""
    """Assumed for every call; empty = the identity that this process has anyway."""
    external_id: str = ""
    profile: str = ""
    """Of the user's AWS configuration; empty = the default chain."""
    catalogue: Callable[[], Sequence[CatalogueRow]] | None = None
    """Where prices come from; None = gpuhunt's published catalogue."""
    catalogue_url: str = CATALOGUE_URL
    page_size: int = 500
    """Of lists; the most that all of EC2's lists take."""
    connect: Callable[[Any], None] | None = None
    """Told of each new boto3 client: points it at a stand-in in this process, so that nothing leaves it."""


def parse_subnets(text: str) -> dict[str, str]:
    """`us-east-1a=subnet-1,us-east-1b=subnet-2` by zone. Raises ValueError."""
    pairs = [entry.strip().partition("=") for entry in text.split(",") if entry.strip()]
    for zone, _, subnet in pairs:
        if not zone[-1:].isalpha() or not subnet.startswith("subnet-"):
            raise ValueError(f"{zone}={subnet}: must be ZONE=subnet-…, comma separated")
    return {zone: subnet for zone, _, subnet in pairs}


def parse_roles(text: str) -> dict[str, tuple[str, str]]:
    """`aws-research=arn:aws:iam::…:role/name|external-id` by account: role and external id. Raises ValueError."""
    roles: dict[str, tuple[str, str]] = {}
    for entry in (entry.strip() for entry in text.split(",") if entry.strip()):
        account, _, rest = entry.partition("=")
        arn, _, external_id = rest.partition("|")
        if not account or not arn.startswith("arn:") or ":role/" not in arn:
            raise ValueError(f"{account}: must be ACCOUNT=arn:…:role/…, with |EXTERNAL-ID where one is needed")
        roles[account] = (arn, external_id)
    return roles
