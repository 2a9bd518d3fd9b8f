"""What spot machines cost, zone by zone, now: DescribeSpotPriceHistory, and the most that a launch would pay.

Prices of the past are not told: whoever asks for a time gets the price of now.
"""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from gpulease_sim.aws import prices, show
from gpulease_sim.aws.account import Account
from gpulease_sim.aws.moto_side import vcpus
from gpulease_sim.aws.wire import ApiError, Call, Params, element, items, moment

_PRODUCT = "Linux/UNIX"
_PRODUCTS = frozenset({_PRODUCT, "Linux/UNIX (Amazon VPC)"})


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    type: str
    zone: str
    price: Decimal


def check_most(account: Account, params: Params, zone: str) -> None:
    """Raises SpotMaxPriceTooLow where the launch would pay less than the price of now; without a word it pays up to the
    on-demand price."""
    most = params.get("InstanceMarketOptions.SpotOptions.MaxPrice")
    if most is None:
        return
    try:
        limit = Decimal(most)
    except InvalidOperation:
        raise ApiError("InvalidParameterValue", text=f"Invalid value '{most}' for MaxPrice.") from None
    if limit < account.spot(params["InstanceType"], zone):
        raise ApiError("SpotMaxPriceTooLow")


def describe(account: Account, call: Call) -> str:
    """DescribeSpotPriceHistory."""
    params = call.params
    products = params.listed("ProductDescription")
    if params.groups("Filter"):
        raise ApiError("InvalidParameterValue", text="Filters of the price history are not simulated")
    types = params.listed("InstanceType") or sorted(prices.HOURLY)
    zones = [params["AvailabilityZone"]] if "AvailabilityZone" in params else _zones(account, call.region)
    offered = [
        (type_, zone)
        for type_ in types
        for zone in zones
        if vcpus(type_) is not None and not account.settings.not_offered & {f"{zone}/{type_}", f"{zone[:-1]}/{type_}"}
    ]
    if products and not _PRODUCTS & set(products):
        offered = []
    rows = [_Row(n, type_, zone, account.spot(type_, zone)) for n, (type_, zone) in enumerate(offered, 1)]
    shown, token = show.page(params, rows)
    told = (_wire(each, call.now) for each in shown)
    # EC2 ends this list with an empty token.
    return items("spotPriceHistorySet", told) + element("nextToken", token or "")


def _zones(account: Account, region: str) -> list[str]:
    return sorted(account.moto.backend(region).get_default_subnets())


def _wire(row: _Row, now: float) -> str:
    return (
        element("instanceType", row.type)
        + element("productDescription", _PRODUCT)
        + element("spotPrice", f"{row.price:.6f}")
        + element("timestamp", moment(now - 3600))
        + element("availabilityZone", row.zone)
    )
