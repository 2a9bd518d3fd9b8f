"""A simulated AWS account as a stack in virtual time uses it: the real boto3, ending in this process.

`around` stands between boto3 and the account, so that a run can see, count and spoil each call.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Protocol

from gpulease.providers.aws.options import AwsOptions, CatalogueRow
from gpulease_sim.aws import AwsCloud, SimResponse, connect
from gpulease_sim.aws.prices import HOURLY, SPOT_SHARE, factor

from gpulease_local.deps import Account
from gpulease_local.sim_transport import NoTransport

REGIONS = ("us-east-1", "us-west-2", "eu-central-1")
GPUS: Mapping[str, tuple[str, int, float, int, float]] = {
    "g4dn.xlarge": ("T4", 1, 16, 4, 16),
    "g4dn.12xlarge": ("T4", 4, 16, 48, 192),
    "g5.xlarge": ("A10G", 1, 24, 4, 16),
    "g5.12xlarge": ("A10G", 4, 24, 48, 192),
    "g6.xlarge": ("L4", 1, 24, 4, 16),
    "g6.12xlarge": ("L4", 4, 24, 48, 192),
    "g6e.xlarge": ("L40S", 1, 48, 4, 32),
    "p4d.24xlarge": ("A100", 8, 40, 96, 1152),
    "p5.48xlarge": ("H100", 8, 80, 192, 2048),
}
"""Model, count, GiB per GPU, vCPUs and GiB: https://aws.amazon.com/ec2/instance-types/#Accelerated_Computing."""


class Handler(Protocol):
    """What answers a signed request: the account, or what stands before it."""

    def handle(self, headers: Mapping[str, str], body: bytes) -> SimResponse: ...


Around = Callable[[Handler], Handler]


def catalogue(regions: Sequence[str] = REGIONS) -> list[CatalogueRow]:
    """Prices as the simulated account asks them, on demand and spot."""
    rows = []
    for plan, (model, count, memory, vcpus, memory_gib) in GPUS.items():
        for region in regions:
            price = HOURLY[plan] * factor(region)
            rows += [
                CatalogueRow(
                    plan=plan,
                    region=region,
                    price_per_hour_usd=(price * (SPOT_SHARE if spot else Decimal(1))).quantize(Decimal("0.0001")),
                    vcpus=vcpus,
                    memory_gib=memory_gib,
                    gpu_model=model,
                    gpu_count=count,
                    gpu_memory_gib=memory,
                    spot=spot,
                )
                for spot in (False, True)
            ]
    return rows


def aws_account(
    cloud: AwsCloud,
    *,
    passed: Callable[[float], None],
    around: Around = lambda inner: inner,
    regions: Sequence[str] = REGIONS,
) -> Account:
    """The account; `passed(seconds)` is told how long each call took."""
    handler = around(cloud)
    options = AwsOptions(
        regions=tuple(regions),
        catalogue=lambda: catalogue(regions),
        connect=lambda client: connect(client, handler, passed=passed),  # type: ignore[arg-type]
    )
    return Account("aws", NoTransport(), options=options)
