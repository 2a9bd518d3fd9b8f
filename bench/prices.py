"""What AWS charges in us-east-1 (list prices, no discounts), said once and with a date, and what a metered use costs.

Invariants: money is Decimal; free allowances are kept apart, so that every figure can be given with and without them
(only those that never end are listed, not the ones of an account's first year). What was confirmed where: for Step
Functions and X-Ray stored copies of AWS's own pages; for Lambda, DynamoDB, Scheduler, Secrets Manager and t4g.xlarge
third parties who quote AWS (copies of 2024 to 2026). Those of CloudWatch, API Gateway, t4g.small and c7g.xlarge are
AWS's list prices as generally known, not looked up again. Check the table before quoting it later than `AS_OF`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

AS_OF = date(2026, 11, 30)
REGION = "us-east-1"
HOURS_PER_MONTH = 730


@dataclass(frozen=True, slots=True)
class Price:
    """`usd` for so many (`per`) of a quantity. `free_per_month`: what an account never pays for."""

    what: str
    usd: Decimal
    per: int
    source: str
    free_per_month: int = 0

    def of(self, amount: float, *, free: bool = False) -> Decimal:
        """USD for an amount; `free`: of a month, after what is free."""
        billed = max(Decimal(0), _exact(amount) - (self.free_per_month if free else 0))
        return billed * self.usd / self.per


def _exact(amount: float) -> Decimal:
    return Decimal(str(amount))


_DYNAMODB = "https://aws.amazon.com/dynamodb/pricing/on-demand/"
_CLOUDWATCH = "https://aws.amazon.com/cloudwatch/pricing/"
_LAMBDA = "https://aws.amazon.com/lambda/pricing/"
_SECRETS = "https://aws.amazon.com/secrets-manager/pricing/"
_MILLION = 1_000_000

PRICES: Mapping[str, Price] = {
    "transitions": Price(
        "Step Functions: state transitions (standard)",
        Decimal("0.025"),
        1_000,
        "https://aws.amazon.com/step-functions/pricing/",
        4_000,
    ),
    "lambda_gb_seconds": Price("Lambda: GB-seconds (arm64)", Decimal("0.0000133334"), 1, _LAMBDA, 400_000),
    "lambda_requests": Price("Lambda: requests", Decimal("0.20"), _MILLION, _LAMBDA, _MILLION),
    "write_units": Price("DynamoDB: write request units (on demand)", Decimal("0.625"), _MILLION, _DYNAMODB),
    "read_units": Price("DynamoDB: read request units (on demand)", Decimal("0.125"), _MILLION, _DYNAMODB),
    "log_bytes": Price("CloudWatch: log bytes taken in", Decimal("0.50"), 10**9, _CLOUDWATCH, 5 * 10**9),
    "traces": Price("X-Ray: traces recorded", Decimal(5), _MILLION, "https://aws.amazon.com/xray/pricing/", 100_000),
    "api_requests": Price(
        "API Gateway: HTTP API requests", Decimal(1), _MILLION, "https://aws.amazon.com/api-gateway/pricing/"
    ),
    "scheduler_calls": Price(
        "EventBridge Scheduler: calls", Decimal(1), _MILLION, "https://aws.amazon.com/eventbridge/pricing/", 14_000_000
    ),
    "queue_calls": Price("SQS: calls", Decimal("0.40"), _MILLION, "https://aws.amazon.com/sqs/pricing/", _MILLION),
    "secret_reads": Price("Secrets Manager: calls", Decimal("0.05"), 10_000, _SECRETS),
    "secrets": Price("Secrets Manager: secrets for a month", Decimal("0.40"), 1, _SECRETS),
    "dashboards": Price("CloudWatch: dashboards for a month", Decimal(3), 1, _CLOUDWATCH, 3),
    "alarms": Price("CloudWatch: alarms for a month", Decimal("0.10"), 1, _CLOUDWATCH, 10),
}

_EC2 = "https://aws.amazon.com/ec2/pricing/on-demand/"
SERVERS: Mapping[str, Price] = {
    "t4g.small": Price("a small server that is always on (2 vCPU, 2 GiB)", Decimal("0.0168"), 1, _EC2),
    "c7g.xlarge": Price("what SkyPilot asks for its API server (4 vCPU, 8 GiB)", Decimal("0.1450"), 1, _EC2),
    "t4g.xlarge": Price("the same cores, burstable (4 vCPU, 16 GiB)", Decimal("0.1344"), 1, _EC2),
}
"""Per hour, Linux, on demand; without disk, address and traffic."""
SKYPILOT_SOURCE = "https://docs.skypilot.co/en/stable/reference/api-server/api-server-troubleshooting.html"
"""It asks for at least 4 CPU cores and 8 GiB of memory (read in the stored copy)."""


def bill(use: Mapping[str, float], *, free: bool = False) -> dict[str, Decimal]:
    """USD by quantity, the dearest first. Raises KeyError for a quantity without a price."""
    priced = {name: PRICES[name].of(amount, free=free) for name, amount in use.items()}
    return dict(sorted(priced.items(), key=lambda each: -each[1]))


def total(use: Mapping[str, float], *, free: bool = False) -> Decimal:
    """USD for all of it."""
    return sum(bill(use, free=free).values(), Decimal(0))


# --- how DynamoDB counts ----------------------------------------------------------------------------------------------

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096


def write_units(size: int, *, transaction: bool = False) -> int:
    """Of one row: a started KiB each, double in a transaction; a row that does not exist counts as one."""
    return max(1, -(-size // WRITE_UNIT_BYTES)) * (2 if transaction else 1)


def read_units(size: int, *, consistent: bool) -> float:
    """Of one row, or of all rows that one query reads: 4 KiB each, half where it may be a moment old."""
    return max(1, -(-size // READ_UNIT_BYTES)) * (1.0 if consistent else 0.5)


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Of a row in DynamoDB's own JSON: names and values in UTF-8.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, inner),) = value.items()
    match kind:
        case "S":
            return len(inner.encode())
        case "N":
            digits = inner.lstrip("-").replace(".", "").strip("0")
            return -(-len(digits) // 2) + 1
        case "B":
            return len(inner)
        case "SS":
            return sum(len(each.encode()) for each in inner)
        case "L":
            return 3 + sum(1 + _value_bytes(each) for each in inner)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(each) for name, each in inner.items())
    raise ValueError(f"a value of kind {kind} is not counted")


def lambda_cpu_share(memory_mb: int) -> float:
    """How much of one vCPU a function has: 1,769 MB are one.

    https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
    """
    return min(1.0, memory_mb / 1769)
