"""What a machine costs besides its instance type: its disk and its public address. US dollars.

As of 2026-11; source: https://aws.amazon.com/ebs/pricing/ and https://aws.amazon.com/vpc/pricing/. A region that is not
listed is taken as dear as the dearest usual one, so that nobody pays more than was shown.
"""

from decimal import Decimal

HOURS_PER_MONTH = Decimal(730)
PUBLIC_ADDRESS_PER_HOUR = Decimal("0.005")
MAX_VOLUME_GB = 16384
"""Of gp3."""
ROOT_DISK_GB = 100
"""The Deep Learning image needs some 40."""

_GP3_PER_GB_MONTH: dict[str, Decimal] = {
    region: Decimal(price)
    for region, price in {
        "us-east-1": "0.08",
        "us-east-2": "0.08",
        "us-west-1": "0.096",
        "us-west-2": "0.08",
        "ca-central-1": "0.088",
        "eu-central-1": "0.0952",
        "eu-west-1": "0.088",
        "eu-west-2": "0.0928",
        "eu-west-3": "0.0928",
        "eu-south-1": "0.0924",
        "eu-north-1": "0.0836",
        "ap-east-1": "0.1056",
        "ap-northeast-1": "0.096",
        "ap-northeast-2": "0.0912",
        "ap-northeast-3": "0.096",
        "ap-south-1": "0.0912",
        "ap-southeast-1": "0.096",
        "ap-southeast-2": "0.096",
        "sa-east-1": "0.152",
    }.items()
}
_ELSEWHERE = Decimal("0.152")


def per_gb_month(region: str) -> Decimal:
    """Of gp3."""
    return _GP3_PER_GB_MONTH.get(region, _ELSEWHERE)


def disk_per_hour(region: str, size_gb: int) -> Decimal:
    """Of a gp3 disk, used or not."""
    return (per_gb_month(region) * size_gb / HOURS_PER_MONTH).quantize(Decimal("0.000001"))


def besides_compute_per_hour(region: str, disk_gb: int) -> Decimal:
    """Of the disk and the public address of a machine that runs."""
    return disk_per_hour(region, disk_gb) + PUBLIC_ADDRESS_PER_HOUR
