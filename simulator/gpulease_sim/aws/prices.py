"""What AWS asks, in USD: on demand per hour, storage per GB-month. Public list prices of late 2025, us-east-1; rounded
regional factors. They are the simulator's own and need not equal any catalogue."""

from decimal import Decimal

HOURLY: dict[str, Decimal] = {
    name: Decimal(price)
    for name, price in {
        "t3.micro": "0.0104",
        "g4dn.xlarge": "0.526",
        "g4dn.2xlarge": "0.752",
        "g4dn.12xlarge": "3.912",
        "g5.xlarge": "1.006",
        "g5.2xlarge": "1.212",
        "g5.12xlarge": "5.672",
        "g5.48xlarge": "16.288",
        "g6.xlarge": "0.8048",
        "g6.2xlarge": "0.9776",
        "g6.12xlarge": "4.6016",
        "g6.48xlarge": "13.3504",
        "g6e.xlarge": "1.861",
        "g6e.12xlarge": "10.4926",
        "p3.2xlarge": "3.06",
        "p4d.24xlarge": "21.9576",
        "p5.48xlarge": "55.04",
    }.items()
}
OTHER = Decimal("2.00")
"""For a type that is not listed."""
SPOT_SHARE = Decimal("0.4")
"""Of the on-demand price."""
STORAGE_MONTH: dict[str, Decimal] = {
    "gp3": Decimal("0.08"),
    "gp2": Decimal("0.10"),
    "io1": Decimal("0.125"),
    "io2": Decimal("0.125"),
    "st1": Decimal("0.045"),
    "sc1": Decimal("0.015"),
    "standard": Decimal("0.05"),
}
THROUGHPUT_MONTH, THROUGHPUT_FREE = Decimal("0.04"), 125
IOPS_MONTH, IOPS_FREE = Decimal("0.005"), 3000
"""Of gp3: what each MiB per second and each IOPS costs over what comes with every volume."""
SNAPSHOT_MONTH = Decimal("0.05")
ADDRESS_HOUR = Decimal("0.005")
"""Any public IPv4 address, in use or not, since February 2024."""
MONTH_HOURS = Decimal(730)
_REGIONS = {"us-east-1": Decimal(1), "us-east-2": Decimal(1), "us-west-2": Decimal(1)}


def factor(region: str) -> Decimal:
    """How much dearer a region is."""
    return _REGIONS.get(region, Decimal("1.12"))
