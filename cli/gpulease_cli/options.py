"""Options that several commands share, and the types of their values."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import update_wrapper
from pathlib import Path
from typing import Any, TypeVar

import click

from gpulease_cli.app import App
from gpulease_cli.errors import CliError
from gpulease_cli.text import parse_duration

F = TypeVar("F", bound=Callable[..., Any])


class DurationType(click.ParamType[int]):
    """`90s`, `45m`, `2h`, `1d12h`, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            seconds = parse_duration(value)
        except ValueError:
            self.fail(f"{value!r} is not a duration; give a number with its unit, like 90s, 45m, 2h or 1d12h")
        if seconds <= 0:
            self.fail(f"{value!r} is no time at all; give more than 0s")
        return seconds


class PriceType(click.ParamType[Decimal]):
    """US dollars per hour, more than nothing. A leading `$` is fine."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        if isinstance(value, Decimal):
            return value
        try:
            price = Decimal(str(value).removeprefix("$"))
        except InvalidOperation:
            self.fail(f"{value!r} is not a price; give US dollars per hour, like 2.50")
        if not price.is_finite() or price <= 0:
            self.fail(f"{value} can rent nothing; give US dollars per hour above 0, like 2.50")
        return price


class AmountType(click.ParamType[float]):
    """A number above nothing, with its unit for the message."""

    name = "number"

    def __init__(self, unit: str, most: float = float("inf")) -> None:
        self.unit, self.most = unit, most
        self.name = unit.lower()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            amount = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number; give a number of {self.unit} above 0")
        if not 0 < amount <= self.most or amount == float("inf"):
            upto = "" if self.most == float("inf") else f", at most {self.most:g}"
            self.fail(f"{value} is not possible; give a number of {self.unit} above 0{upto}")
        return amount


class CountType(click.ParamType[int]):
    """A whole number between two limits."""

    name = "count"

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        right = f"{self.least} to {self.most}" if self.most is not None else f"{self.least} or more"
        try:
            count = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number; give {right}")
        if count < self.least or (self.most is not None and count > self.most):
            self.fail(f"{value} is out of range; give {right}")
        return count


DURATION, PRICE, GIB = DurationType(), PriceType(), AmountType("GiB")


def api_options(command: F) -> F:
    """`--endpoint` and `--token`; hands the App as first argument instead."""

    def run(*args: Any, endpoint: str | None, token: str | None, **kwargs: Any) -> Any:
        app = click.get_current_context().find_object(App) or App()
        app.endpoint_option = endpoint or app.endpoint_option
        app.token_option = token or app.token_option
        return command(app, *args, **kwargs)

    wrapped = update_wrapper(run, command)
    wrapped = click.option("--token", metavar="TOKEN", help="Token of the API [GPULEASE_TOKEN].")(wrapped)
    wrapped = click.option("--endpoint", metavar="URL", help="Address of the API [GPULEASE_ENDPOINT].")(wrapped)
    return wrapped  # type: ignore[return-value]


def json_option(command: F) -> F:
    """`--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print the API's own objects as one JSON document.")(
        command
    )


def offer_options(command: F) -> F:
    """The options that say which machines are right. `request.from_options` reads them."""
    for option in reversed(_OFFER_OPTIONS):
        command = option(command)
    return command


_OFFER_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--gpu", multiple=True, metavar="MODEL", help="GPU model; several or a comma list: any of them."),
    click.option("--gpu-count", "--count", type=CountType(1, 16), metavar="N", help="Exactly so many GPUs."),
    click.option("--min-gpu-memory", type=GIB, metavar="GIB", help="Memory per GPU."),
    click.option("--min-vcpus", type=CountType(1), metavar="N"),
    click.option("--min-memory", type=GIB, metavar="GIB", help="Memory of the machine."),
    click.option("--min-disk", type=CountType(1), metavar="GB"),
    click.option("--provider", multiple=True, metavar="NAME", help="Several or a comma list: any of them."),
    click.option("--region", multiple=True, metavar="NAME", help="Several or a comma list: any of them."),
    click.option("--plan", multiple=True, metavar="ID", help="The provider's own plan id."),
    click.option("--kind", multiple=True, type=click.Choice(["vm", "bare_metal"])),
    click.option("--spot", type=click.Choice(["on-demand", "spot", "any"]), help="Which prices are right."),
    click.option("--max-price", type=PRICE, metavar="USD", help="Most US dollars per hour."),
    click.option(
        "--private-network", type=click.Choice(["none", "preferred", "required"]), help="Join a private network."
    ),
]

PORT = CountType(0, 65535)
SPEED = AmountType("times", most=10_000)


def usable_folder(path: Path, option: str) -> Path:
    """The path, unless something that is no folder is there. Raises CliError."""
    if path.exists() and not path.is_dir():
        raise CliError(f"{path} is not a folder; give a folder, or a path where one can be made", field=option)
    return path


def existing_file(path: str, option: str) -> Path:
    """The path of a file that is there. Raises CliError."""
    found = Path(path).expanduser()
    if not found.is_file():
        raise CliError(f"{found} is not there; give a file that exists", field=option)
    return found


def http_url(url: str, option: str) -> str:
    """The address, without a slash at its end. Raises CliError."""
    if not url.startswith(("http://", "https://")):
        raise CliError(f"{url!r} is not an address; give one like https://host", field=option)
    return url.rstrip("/")
