"""`gpulease cache`: volumes and object stores that outlive the machines which use them."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import click

from gpulease_cli.app import App, names
from gpulease_cli.cache_views import CacheView, total_per_month
from gpulease_cli.client import ApiProblem, Client
from gpulease_cli.complete import cache_names
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.options import DURATION, CountType, api_options, json_option
from gpulease_cli.problems import as_cli_error
from gpulease_cli.tables import Column, print_table
from gpulease_cli.text import between, cost, duration, local_time, parse_duration
from gpulease_cli.waiting import usual_pause_seconds

_COLUMNS = (
    Column("NAME", 0),
    Column("STATE", 0),
    Column("GB", 3, right=True),
    Column("WHERE", 2),
    Column("$/MONTH", 1, right=True),
    Column("COST", 4, right=True),
    Column("USED BY", 1),
    Column("UNUSED", 6, right=True),
    Column("REMOVED IN", 5, right=True),
)
_FIELDS = {
    "name": "NAME",
    "size_gb": "--size",
    "throughput_mibps": "--throughput",
    "provider": "--provider",
    "region": "--region",
    "zone": "--zone",
    "object_store": "--bucket",
    "object_store.endpoint": "--bucket-endpoint",
    "object_store.region": "--bucket-region",
    "object_store.credentials": "--bucket-secret",
    "expire_after_seconds": "--expire-after",
}


@click.group("cache")
def command() -> None:
    """Keep models, packages and images between machines.

    \b
    gpulease cache create models --provider vultr --region ewr --size 200
    gpulease up --gpu A100 --cache models:/root/.cache/huggingface,/root/.cache/pip
    gpulease cache ls                       # what there is, and what it costs a month
    gpulease cache rm models                # remove it with all it holds
    """


@command.command("create")
@click.argument("name", metavar="NAME")
@click.option("--size", type=CountType(1, 16384), metavar="GB", help="Of the volume. Default: 100.")
@click.option("--provider", metavar="NAME", help="Where the volume is.")
@click.option("--region", metavar="NAME")
@click.option("--zone", metavar="NAME", help="Where the provider divides its regions.")
@click.option(
    "--throughput",
    type=CountType(1, 100_000),
    metavar="MIBPS",
    help="MiB per second that the volume is paid to give, where that can be bought (AWS: 125 to 1000).",
)
@click.option("--bucket", metavar="BUCKET[/PREFIX]", help="S3-compatible object store for its content.")
@click.option("--bucket-endpoint", metavar="URL", help="Of another store than AWS S3.")
@click.option("--bucket-region", metavar="NAME", help="Default: us-east-1.")
@click.option("--bucket-secret", metavar="NAME", help="Secret with the store's keys: machines have none.")
@click.option("--expire-after", metavar="TIME|never", help="Remove it after so long unused. Default: 14d.")
@click.option("--dry-run", is_flag=True, help="Only say what it would cost.")
@click.option("--wait/--no-wait", "wait", default=True, help="Wait until it can be used. Default: wait.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop waiting after so long.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@api_options
def create(
    app: App, name: str, dry_run: bool, wait: bool, timeout: int | None, yes: bool, as_json: bool, **values: Any
) -> int:
    """Make a cache: a volume at a provider, an object store, or both. The same again gives the same cache.

    It is billed until it is removed, by you or after having been unused for long. On a terminal its price is shown
    first and you are asked.

    \b
    gpulease cache create models --provider vultr --region ewr --size 200
    gpulease cache create models --provider aws --region us-east-1 --zone us-east-1a --throughput 400
    gpulease cache create models --bucket my-models/hf --bucket-secret models-s3
    gpulease cache create hf --provider vultr --region ewr --size 50 --expire-after 30d --dry-run
    """
    body = _request(name, values)
    client = app.client()
    if "object_store" in body and "credentials" not in body["object_store"]:
        app.note("warning: without --bucket-secret nothing opens the store but what the machines' image brings")
    if dry_run or (app.interactive and not yes):
        planned = _asked(lambda: client.plan_cache(body))
        if dry_run:
            app.print_json(planned.raw) if as_json else app.say(f"{name} would be {planned.what}; nothing was made")
            return ExitCode.OK
        if not planned.raw.get("exists") and not app.confirm(f"Make {name}: {planned.what}?"):
            app.note("Nothing was made.")
            return ExitCode.NOT_AS_ASKED
    cache = _asked(lambda: client.create_cache(body))
    if wait:
        cache = _until(app, client, cache, lambda now: now.state not in ("creating",), timeout)
    if as_json:
        app.print_json(cache.raw)
    if cache.state in ("creating", "available", "in_use"):
        if not as_json:
            app.say(f"{cache.name} is {cache.state}: {cache.what}")
        return ExitCode.OK
    why = ": ".join(part for part in (cache.reason, cache.reason_detail) if part)
    app.error(f"{cache.name} could not be made ({why or cache.state})")
    return ExitCode.NOT_AS_ASKED


def _request(name: str, values: dict[str, Any]) -> dict[str, Any]:
    found = {"size_gb": values["size"], "provider": values["provider"], "region": values["region"]}
    body: dict[str, Any] = {"name": name, **found, "zone": values["zone"], "throughput_mibps": values["throughput"]}
    body = {key: value for key, value in body.items() if value is not None}
    if values["expire_after"] is not None:
        body["expire_after_seconds"] = _expiry(values["expire_after"])
    if values["bucket"] is not None:
        bucket, _, prefix = values["bucket"].partition("/")
        store = {
            "bucket": bucket,
            "prefix": prefix,
            "endpoint": values["bucket_endpoint"],
            "region": values["bucket_region"],
            "credentials": values["bucket_secret"],
        }
        body["object_store"] = {key: value for key, value in store.items() if value}
    elif any(values[key] for key in ("bucket_endpoint", "bucket_region", "bucket_secret")):
        raise CliError("is missing; the other --bucket options say nothing without it", field="--bucket")
    if "provider" not in body and "object_store" not in body:
        raise CliError("is missing; give --provider and --region, or --bucket, or all of them", field="--provider")
    return body


def _expiry(text: str) -> int | None:
    if text.lower() == "never":
        return None
    try:
        return parse_duration(text)
    except ValueError:
        raise CliError(f"{text!r} is no time; give one like 14d or 36h, or never", field="--expire-after") from None


@command.command("ls")
@click.option("-a", "--all", "removed_too", is_flag=True, help="Removed ones too.")
@json_option
@api_options
def ls(app: App, removed_too: bool, as_json: bool) -> None:
    """List caches, who uses them and what they cost a month.

    \b
    gpulease cache ls
    gpulease cache ls --json | jq -r '.caches[].name'
    """
    client = app.client()
    caches = list(client.caches(removed=removed_too))
    if as_json:
        app.print_json({"caches": [cache.raw for cache in caches], "cursor": None})
        return
    if not caches:
        app.say("No caches.")
        return
    print_table(app.console(), _COLUMNS, [_row(cache, client.now()) for cache in caches])
    app.say(f"Total: {cost(total_per_month(caches))} a month")


def _row(cache: CacheView, now: datetime) -> list[str]:
    return [
        cache.name,
        cache.state,
        str(cache.size_gb) if cache.size_gb else "-",
        cache.place,
        cost(cache.price_per_month_usd) if cache.size_gb else "-",
        cost(cache.cost_so_far_usd) if cache.size_gb else "-",
        cache.user or "-",
        "-" if cache.user or cache.removed else between(cache.used_at or cache.created_at, now),
        between(now, cache.expires_at),
    ]


@command.command("show")
@click.argument("name", metavar="NAME", shell_complete=cache_names)
@json_option
@api_options
def show(app: App, name: str, as_json: bool) -> None:
    """Show everything about one cache.

    \b
    gpulease cache show models
    gpulease cache show models --json | jq -r .expires_at
    """
    client = app.client()
    cache = client.cache(name)
    if as_json:
        app.print_json(cache.raw)
        return
    for line in _lines(cache, client.now()):
        app.say(line)


def _lines(cache: CacheView, now: datetime) -> Iterator[str]:
    why = ": ".join(part for part in (cache.reason, cache.reason_detail) if part)
    yield f"{cache.name}  {cache.id}  {cache.state}{f' ({why})' if why else ''}"
    yield from _pair("volume", f"{cache.size} at {cache.place}" if cache.size_gb else "")
    yield from _pair("object store", cache.bucket)
    price = f"{cost(cache.price_per_month_usd)} a month, {cost(cache.cost_so_far_usd)} so far"
    yield from _pair("price", price if cache.size_gb else "billed by your store")
    yield from _pair("used by", f"{cache.user} ({cache.user_id})" if cache.user else "")
    yield from _pair("last used", local_time(cache.used_at) if cache.used_at else "")
    yield from _pair("waiting for", cache.waiting_for)
    yield from _pair("removed", f"{local_time(cache.expires_at)} unless used before" if cache.expires_at else "")
    yield from _pair("created", local_time(cache.created_at))
    for text in cache.warnings:
        yield from _pair("warning", text)


def _pair(name: str, value: str) -> Iterator[str]:
    if value:
        yield f"  {name + ':':<13} {value}"


@command.command("expire")
@click.argument("name", metavar="NAME", shell_complete=cache_names)
@click.argument("after", metavar="TIME|never")
@json_option
@api_options
def expire(app: App, name: str, after: str, as_json: bool) -> None:
    """Change after how long unused a cache is removed.

    \b
    gpulease cache expire models 30d
    gpulease cache expire models never
    """
    seconds = _expiry(after)
    client = app.client()
    cache = _asked(lambda: client.change_cache(name, {"expire_after_seconds": seconds}))
    if as_json:
        app.print_json(cache.raw)
    else:
        when = f"after {duration(seconds)} unused" if seconds is not None else "by your word only"
        app.say(f"{cache.name} is removed {when}{_when(cache, client.now())}")


def _when(cache: CacheView, now: datetime) -> str:
    """When that is, as it is used now; empty = it is in use, or never removed by itself."""
    if cache.expires_at is None:
        return ""
    if cache.expires_at > now:
        return f": at {local_time(cache.expires_at)} unless it is used before"
    return ": it has been unused for so long, and is removed soon after a warning unless it is used before"


@command.command("rm")
@click.argument("caches", nargs=-1, required=True, metavar="NAME...", shell_complete=cache_names)
@click.option("--wait/--no-wait", "wait", default=True, help="Wait until each is proven gone. Default: wait.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop waiting after so long; removing goes on.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@api_options
def rm(app: App, caches: tuple[str, ...], wait: bool, timeout: int | None, yes: bool, as_json: bool) -> int:
    """Remove caches with all that is on their volumes. What is in an object store stays there.

    Refused while a machine uses one. On a terminal you are asked first; without one it needs --yes.

    \b
    gpulease cache rm models
    gpulease cache rm models hf --yes --no-wait
    """
    if not yes and not app.interactive:
        raise CliError("is needed where nobody can be asked: what the cache holds is lost", field="--yes")
    client = app.client()
    # When one of them cannot be found, none is removed.
    found = [client.cache(name) for name in dict.fromkeys(caches)]
    if not yes and not _agreed(app, found):
        app.note("Nothing was removed.")
        return ExitCode.NOT_AS_ASKED
    gone = [_asked(lambda name=cache.name: client.remove_cache(name)) for cache in found]  # type: ignore[misc]
    if wait:
        gone = [_until(app, client, cache, lambda now: now.removed, timeout) for cache in gone]
    if as_json:
        app.print_json({"caches": [cache.raw for cache in gone], "cursor": None})
        return ExitCode.OK
    for cache in gone:
        app.say(
            f"{cache.name} is removed; it cost {cost(cache.cost_so_far_usd)}"
            if cache.removed
            else f"{cache.name} is being removed; it is billed until that is proven"
        )
    return ExitCode.OK


def _agreed(app: App, caches: list[CacheView]) -> bool:
    for cache in caches:
        stays = f"; what is in {cache.bucket} stays there" if cache.bucket else ""
        used = f"; last used {local_time(cache.used_at)}" if cache.used_at else ""
        app.note(f"  {cache.name}  {cache.state}  {cache.what}{used}{stays}")
    return app.confirm(f"Remove {names([cache.name for cache in caches])}? Everything on the volumes is lost.")


# --- parts ------------------------------------------------------------------------------------------------------------


def _asked(ask: Callable[[], CacheView]) -> CacheView:
    """The answer; what the API says of its fields is said of our options."""
    try:
        return ask()
    except ApiProblem as problem:
        raise as_cli_error(problem, _called) from problem


def _called(field: str) -> str:
    """What the user calls a field of the API."""
    return _FIELDS.get(field) or _FIELDS.get(field.split(".", 1)[0], field)


def _until(
    app: App, client: Client, cache: CacheView, done: Callable[[CacheView], bool], timeout: int | None
) -> CacheView:
    """Ask again until it is done. One that is gone is found no more."""
    started = app.clock.elapsed_seconds()
    while not done(cache):
        waited = app.clock.elapsed_seconds() - started
        if timeout is not None and waited >= timeout:
            text = f"{duration(waited)} are over and {cache.name} is {cache.state}; it goes on, see `gpulease cache ls`"
            raise CliError(text, field="--timeout", code=ExitCode.TIMED_OUT)
        app.clock.sleep(usual_pause_seconds(waited))
        try:
            cache = client.cache(cache.name)
        except ApiProblem as problem:
            if problem.status != 404:
                raise
            ended = next((each for each in client.caches(removed=True) if each.id == cache.id), cache)
            return ended if ended.removed else CacheView.read({**cache.raw, "state": "removed"})
    return cache
