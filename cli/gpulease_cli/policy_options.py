"""Options that say what should happen to a lease by itself, for `up` and `policy`, and the API fields they mean."""

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import click

from gpulease_cli.errors import CliError
from gpulease_cli.text import parse_duration

F = TypeVar("F", bound=Callable[..., Any])
SIGNALS = ("gpu", "ssh", "connections", "busy")
THEN = click.Choice(["pause", "release"])


class LimitType(click.ParamType[int]):
    """A duration, or the word that means "never" (0 here)."""

    name = "duration"

    def __init__(self, never: str) -> None:
        self.never = never

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value.strip().lower() == self.never:
            return 0
        try:
            seconds = parse_duration(value)
        except ValueError:
            seconds = 0
        if seconds <= 0:
            self.fail(f"{value!r} is not a duration; give one like 30m or 2h, or {self.never!r}")
        return seconds


class BudgetType(click.ParamType[Decimal]):
    """US dollars in all, or `off` (0 here). A leading `$` is fine."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        if isinstance(value, Decimal):
            return value
        if value.strip().lower() == "off":
            return Decimal(0)
        try:
            budget = Decimal(value.strip().removeprefix("$"))
        except InvalidOperation:
            budget = Decimal(0)
        if not budget.is_finite() or budget <= 0:
            self.fail(f"{value!r} is no budget; give US dollars in all, like 40 or 12.50, or 'off'")
        return budget


class WindowType(click.ParamType[dict[str, str]]):
    """`START/END@ZONE`, both in cron's five fields: `0 22 * * 1-5/0 8 * * 1-5@Europe/Berlin`."""

    name = "window"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        times, _, zone = value.partition("@")
        window = _window(times)
        if window is None:
            self.fail(
                f"{value!r} is no window; give START/END@ZONE in cron's five fields, "
                "like '0 22 * * 1-5/0 8 * * 1-5@Europe/Berlin'"
            )
        return {**window, "timezone": zone.strip() or "UTC"}


def _window(times: str) -> dict[str, str] | None:
    """Start and end. A cron step like `*/5` has a slash too: the one in the middle of ten fields divides."""
    fields = times.split()
    if len(fields) == 5:
        return {"start": " ".join(fields)}
    if len(fields) == 11 and fields[5] == "/":
        return {"start": " ".join(fields[:5]), "end": " ".join(fields[6:])}
    if len(fields) == 9 and "/" in fields[4]:
        last, _, first = fields[4].rpartition("/")
        return {"start": " ".join([*fields[:4], last]), "end": " ".join([first, *fields[5:]])}
    return None


def policy_options(command: F) -> F:
    """The options; `fields` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--idle", type=LimitType("off"), metavar="TIME|off", help="Unused for so long: see --idle-then."),
    click.option("--idle-then", type=THEN, help="What follows. A pause keeps the machine's disk or its cache."),
    click.option("--idle-signals", metavar="LIST", help=f"What counts as use: {','.join(SIGNALS)} (all)."),
    click.option("--unreachable", type=LimitType("off"), metavar="TIME|off", help="Its agent silent for so long."),
    click.option("--unreachable-then", type=THEN),
    click.option("--paused-for", type=LimitType("ever"), metavar="TIME|ever", help="Give a paused lease back after."),
    click.option(
        "--budget", type=BudgetType(), metavar="USD|off", help="Give it back before it costs more than this in all."
    ),
    click.option("--keep-off", type=WindowType(), multiple=True, metavar="WINDOW", help="Paused from START to END."),
    click.option("--keep-warm", type=WindowType(), multiple=True, metavar="WINDOW", help="Never idle meanwhile."),
    click.option(
        "--on-no-capacity", type=click.Choice(["wait", "replace"]), help="Resume without capacity: wait, or a new one."
    ),
]
NAMES = (
    "idle",
    "idle_then",
    "idle_signals",
    "unreachable",
    "unreachable_then",
    "paused_for",
    "budget",
    "keep_off",
    "keep_warm",
    "on_no_capacity",
)


def fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The `policy` object of the options that were given; empty = none was. Raises CliError."""
    policy: dict[str, Any] = {}
    for name in ("idle", "unreachable"):
        limit = _limit(values.get(name))
        if values.get(f"{name}_then") is not None:
            limit["then"] = values[f"{name}_then"]
        if name == "idle" and values.get("idle_signals") is not None:
            limit["signals"] = _signals(values["idle_signals"])
        if limit:
            policy[name] = limit
    if values.get("paused_for") is not None:
        policy["paused"] = {"release_after_seconds": values["paused_for"] or None}
    if isinstance(values.get("budget"), Decimal):
        policy["budget_usd"] = str(values["budget"]) if values["budget"] else None
    windows = [{"keep": keep, **window} for keep in ("off", "warm") for window in values.get(f"keep_{keep}") or ()]
    if windows:
        policy["windows"] = windows
    if values.get("on_no_capacity") is not None:
        policy["on_no_capacity"] = values["on_no_capacity"]
    return policy


def option_of(field: str) -> str:
    """The option that set a field of the policy, as it is named in an error of the API."""
    parts = field.removeprefix("policy.").split(".")
    name = parts[0].split("[")[0]
    if name in ("idle", "unreachable"):
        last = parts[1].split("[")[0] if len(parts) > 1 else ""
        return f"--{name}-{last}" if last in ("then", "signals") else f"--{name}"
    return {
        "paused": "--paused-for",
        "budget_usd": "--budget",
        "windows": "--keep-off/--keep-warm",
        "on_no_capacity": "--on-no-capacity",
        "max_duration_seconds": "--max-duration",
    }.get(name, field)


def _limit(seconds: int | None) -> dict[str, Any]:
    if seconds is None:
        return {}
    return {"enabled": True, "after_seconds": seconds} if seconds else {"enabled": False}


def _signals(text: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if name not in SIGNALS]
    if wrong or not names:
        raise CliError(f"{text!r} is not right; give some of {','.join(SIGNALS)}", field="--idle-signals")
    return list(dict.fromkeys(names))
