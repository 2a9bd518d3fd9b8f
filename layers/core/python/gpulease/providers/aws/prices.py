"""What a machine costs besides its instance type: its disk and its public address. US dollars.

As of 2026-11; source: https://aws.amazon.com/ebs/pricing/ and https://aws.amazon.com/vpc/pricing/. A region that is not
listed is taken as dear as the dearest usual one, so that nobody pays more than was shown.
"""

from decimal import ROUND_UP, Decimal

HOURS_PER_MONTH = Decimal(730)
PUBLIC_ADDRESS_PER_HOUR = Decimal("0.005")
MAX_VOLUME_GB = 16384
"""Of gp3."""
BASE_MIBPS, MAX_MIBPS = 125, 1000
"""Of gp3: what every volume gives, and the most that CreateVolume is known to take everywhere."""
BASE_IOPS = 3000
IOPS_PER_MIBPS, IOPS_PER_GB = 4, 500
"""Of gp3: a volume gives at most a quarter of a MiB per second for each of its IOPS, and at most 500 IOPS per GB.
Source: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"""
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


def iops_for(throughput_mibps: int | None) -> int:
    """Of a gp3 volume that gives so much."""
    return max(BASE_IOPS, (throughput_mibps or BASE_MIBPS) * IOPS_PER_MIBPS)


def speed_per_month(region: str, throughput_mibps: int | None) -> Decimal:
    """Of what a gp3 volume gives over 125 MiB per second, and of the IOPS over 3,000 that this needs.

    In us-east-1 $0.040 for each MiB/s and $0.005 for each IOPS; elsewhere in proportion to the price of a GB, as in
    Amazon's list, rounded up.
    """
    if throughput_mibps is None:
        return Decimal(0)
    gb = per_gb_month(region)
    mibps = (gb / 2).quantize(Decimal("0.001"), ROUND_UP)
    iops = (gb / 16).quantize(Decimal("0.0001"), ROUND_UP)
    return mibps * (throughput_mibps - BASE_MIBPS) + iops * (iops_for(throughput_mibps) - BASE_IOPS)


def disk_per_hour(region: str, size_gb: int) -> Decimal:
    """Of a gp3 disk, used or not."""
    return (per_gb_month(region) * size_gb / HOURS_PER_MONTH).quantize(Decimal("0.000001"))


def besides_compute_per_hour(region: str, disk_gb: int) -> Decimal:
    """Of the disk and the public address of a machine that runs."""
    return disk_per_hour(region, disk_gb) + PUBLIC_ADDRESS_PER_HOUR
