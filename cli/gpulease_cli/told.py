"""What people are told of a lease's policy and of what happens next."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from gpulease_cli.app import App
from gpulease_cli.text import clean, duration, local_time
from gpulease_cli.views import LeaseView


def tell_next(app: App, lease: LeaseView, as_json: bool) -> None:
    """The answer to a change: what happens next and when."""
    if as_json:
        app.print_json(lease.raw)
        return
    when = f" ({local_time(lease.next_at)})" if lease.next_at else ""
    app.say(f"{lease.label}: {lease.state}; next: {lease.next_text or 'nothing'}{when}")


def kept_line(lease: LeaseView, now: datetime) -> str:
    """Until when its owner keeps it; empty = no longer."""
    if lease.keep_until is None or lease.keep_until <= now or lease.released:
        return ""
    return f"until {local_time(lease.keep_until)}, used or not"


def policy_lines(policy: Mapping[str, Any]) -> Iterator[str]:
    """A policy in words, one rule a line."""
    idle, silent, paused = (_part(policy, name) for name in ("idle", "unreachable", "paused"))
    if idle:
        signals = ", ".join(str(signal) for signal in idle.get("signals") or ())
        used = f"; use is: {signals}" if signals else ""
        yield _pair("idle", f"{_limit(idle)}{used}" if idle.get("enabled", True) else "off")
    if silent:
        yield _pair("unreachable", _limit(silent) if silent.get("enabled", True) else "off")
    if paused:
        seconds = paused.get("release_after_seconds")
        yield _pair("paused", f"released after {duration(seconds)}" if seconds else "for ever")
    if policy.get("max_duration_seconds"):
        yield _pair("duration", f"released {duration(policy['max_duration_seconds'])} after it first ran")
    if policy.get("budget_usd"):
        yield _pair("budget", f"released before it has cost ${policy['budget_usd']}")
    yield from window_lines(policy)
    if policy.get("on_no_capacity"):
        yield _pair("no capacity", f"{policy['on_no_capacity']} (when it is resumed)")


def window_lines(policy: Mapping[str, Any]) -> Iterator[str]:
    """The windows of a policy, one a line."""
    for window in policy.get("windows") or ():
        end = f" until '{window.get('end')}'" if window.get("end") else ""
        text = f"keep {window.get('keep')} from '{window.get('start')}'{end} ({window.get('timezone')})"
        yield _pair("window", text)


def agent_line(raw: Mapping[str, Any]) -> str:
    """What the agent has told; empty where there is none."""
    agent = raw.get("agent")
    if not isinstance(agent, dict):
        return ""
    parts = [f"last report {_moment(agent.get('last_report_at'))}"]
    if agent.get("silent"):
        parts.append("silent: it has missed reports")
    if agent.get("idle_since"):
        parts.append(f"unused since {_moment(agent.get('idle_since'))}")
    if agent.get("gpus") is not None:
        parts.append(f"{agent['gpus']} GPU{'' if agent['gpus'] == 1 else 's'}{_load(agent)}")
    if agent.get("start_script"):
        parts.append(f"start script {agent['start_script']}")
    parts += [str(problem) for problem in agent.get("problems") or ()]
    return clean("; ".join(parts))


def _load(agent: Mapping[str, Any]) -> str:
    """How much its GPUs computed, and their memory, at the last report; empty = not told."""
    percent, used, total = (agent.get(name) or () for name in ("gpu_percent", "gpu_memory_used_mib", "gpu_memory_mib"))
    told = [f"busy {', '.join(f'{each} %' for each in percent)}"] if percent else []
    if used and total:
        told.append(f"{sum(used) / 1024:.0f} of {sum(total) / 1024:.0f} GiB in use")
    return f" ({'; '.join(told)})" if told else ""


def _moment(text: Any) -> str:
    try:
        return local_time(datetime.fromisoformat(str(text)))
    except ValueError:
        return "-"


def _part(policy: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = policy.get(name)
    return value if isinstance(value, dict) else {}


def _limit(rule: Mapping[str, Any]) -> str:
    return f"{rule.get('then', 'pause')} after {duration(rule.get('after_seconds') or 0)}"


def _pair(name: str, value: str) -> str:
    return f"  {name + ':':<12} {clean(value)}"
