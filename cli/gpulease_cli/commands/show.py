"""`gpulease show`: one lease with everything that is known of it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from gpulease_cli import words
from gpulease_cli.app import App
from gpulease_cli.complete import lease_names
from gpulease_cli.options import api_options, json_option
from gpulease_cli.resolve import resolve
from gpulease_cli.text import clean, cost, duration, local_time, rate
from gpulease_cli.told import agent_line, kept_line, policy_lines
from gpulease_cli.views import LeaseView


@click.command("show")
@click.argument("lease", metavar="NAME|ID", shell_complete=lease_names)
@json_option
@api_options
def command(app: App, lease: str, as_json: bool) -> None:
    """Show everything about one lease.

    \b
    gpulease show train
    gpulease show l-4kq7c2mzx5ab --json | jq -r .address
    """
    client = app.client()
    found = resolve(client, lease, released_too=True)
    if as_json:
        app.print_json(found.raw)
        return
    for line in _lines(found, client.now()):
        app.say(line)


def _lines(lease: LeaseView, now: datetime) -> Iterator[str]:
    since = f" for {duration((now - lease.state_since).total_seconds())}" if lease.state_since else ""
    why = f" ({words.why(lease)})" if lease.reason else ""
    yield f"{lease.name}  {lease.id}  {lease.state}{since}{why}"
    yield from _pair("waiting for", "" if lease.released else lease.waiting_for)
    if lease.next_text:
        yield from _pair("next", lease.next_text + (f" ({local_time(lease.next_at)})" if lease.next_at else ""))
    yield from _pair("kept", kept_line(lease, now))
    yield from _pair("machine", words.offer(lease.offer) if lease.offer else "")
    yield from _pair("plan", f"{lease.offer.plan} ({lease.offer.kind})" if lease.offer else "")
    yield from _pair("connect", lease.ssh or lease.address)
    yield from _pair("price", f"{rate(lease.price_per_hour_usd)}/h, {cost(lease.cost_so_far_usd)} so far")
    yield from _paused(lease)
    yield from _pair("agent", agent_line(lease.raw))
    yield from _pair("owner", lease.owner)
    yield from _pair("created", local_time(lease.created_at))
    for name, at in (
        ("running", lease.running_at),
        ("given back", lease.release_requested_at),
        ("released", lease.released_at),
    ):
        yield from _pair(name, local_time(at) if at else "")
    yield from _pair("asked for", _asked(lease.spec))
    yield from policy_lines(lease.raw.get("policy") or {})
    for text in lease.notices:
        yield from _pair("note", text)
    for text in lease.warnings:
        yield from _pair("warning", text)
    if lease.attempts:
        yield ""
        yield from (f"  {words.attempt(item, lease.state, now)}" for item in lease.attempts)
    if lease.resources:
        yield ""
        yield "  resources"
        for item in lease.resources:
            status = f", {item.status}" if item.status else ""
            billed = "billed" if item.billed else "not billed"
            yield f"    {words.resource(item)}: {item.state}{status}, {billed}, {cost(item.cost_so_far_usd)} so far"


def _paused(lease: LeaseView) -> Iterator[str]:
    pause = lease.pause
    if not pause.mode:
        return
    kept = "the machine is stopped and kept" if pause.mode == "stop" else "the machine is given back, its cache is kept"
    yield from _pair("pause", f"{kept} ({pause.reason}{': ' + pause.detail if pause.detail else ''})")
    if lease.state == "paused":
        yield from _pair("billed", words.billed_while_paused(pause.billed))
    yield from _pair("stays until", local_time(pause.release_at) if pause.release_at else "")
    yield from _pair("not resumed", pause.resume_failed)


def _pair(name: str, value: str) -> Iterator[str]:
    if value:
        yield f"  {name + ':':<12} {value}"


def _joins(spec: Any) -> bool:
    return spec.get("private_network") not in (None, "none")


def _cache(use: Any) -> str:
    """As it is asked for on the command line."""
    docker = " with Docker's data" if use.get("docker") else ""
    paths = ",".join(map(str, use.get("mounts") or ()))
    return f"{use.get('name')}{':' if paths else ''}{paths}{docker}"


def _asked(spec: Any) -> str:
    """The fields of the request that say something, without keys (too long to read)."""
    parts = []
    for key, value in spec.items():
        if value in (None, "", [], {}, False) or key in ("ssh_keys", "policy"):
            continue
        if (key, value) == ("private_network", "none") or (key == "network_scope" and not _joins(spec)):
            continue
        if isinstance(value, list):
            value = ",".join(map(str, value))
        elif isinstance(value, dict):
            value = _cache(value) if key == "cache" else ",".join(f"{k}={v}" for k, v in value.items())
        parts.append(f"{key} {value}")
    return clean("; ".join(parts))
