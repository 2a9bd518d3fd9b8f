"""Routes for whoever runs the simulation, at the origin under `/_control`, without authentication.

`reset`, `settings`, `faults` and `book` are shared with other simulators of this provider, so that one harness can
drive them all; their times are wall-clock seconds, also where the simulated clock runs faster. The rest is ours.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpulease_sim.answers import SimResponse
from gpulease_sim.vultr.book import BookObject
from gpulease_sim.vultr.cloud import VultrCloud
from gpulease_sim.vultr.codec import changed_settings, fault_from
from gpulease_sim.wall_clock import ScaledClock

SHARED_KINDS = ("instance", "bare_metal", "vpc")


def control(
    cloud: VultrCloud, clock: ScaledClock | None, method: str, path: str, query: Mapping[str, str], body: bytes
) -> SimResponse:
    """Answer one control call; `clock` is None where the cloud does not run on a wall clock."""
    try:
        data = json.loads(body) if body else {}
        if not isinstance(data, dict):
            raise ValueError("the body must be an object")
        match method, path.removeprefix("/_control/"):
            case "POST", "reset":
                cloud.reset()
            case "POST", "settings":
                _settings(cloud, clock, data)
            case "POST", "faults":
                _faults(cloud, clock, data)
            case "GET", "book":
                return _answer(200, {"objects": _book(cloud, clock, query)})
            case "GET", "clock":
                return _answer(200, {"now": cloud.now(), "time_scale": clock.scale if clock else None})
            case "GET", "ssh":
                is_open = cloud.ssh_open(query.get("address", ""), int(query.get("port", "22")))
                return _answer(200, {"open": is_open})
            case "POST", "remove":
                cloud.remove_by_hand(str(data["id"]))
            case _:
                return _answer(404, {"error": f"no such control route: {method} {path}", "status": 404})
    except (KeyError, TypeError, ValueError) as error:
        return _answer(400, {"error": f"{type(error).__name__}: {error}", "status": 400})
    return SimResponse(204, {}, b"")


def _answer(status: int, payload: Mapping[str, Any]) -> SimResponse:
    return SimResponse(status, {"Content-Type": "application/json"}, json.dumps(payload).encode())


def _settings(cloud: VultrCloud, clock: ScaledClock | None, data: dict[str, Any]) -> None:
    if "boot_seconds" in data and clock is not None:
        data = {**data, "boot_seconds": float(data["boot_seconds"]) * clock.scale}
    cloud.settings = changed_settings(cloud.settings, data)


def _faults(cloud: VultrCloud, clock: ScaledClock | None, data: dict[str, Any]) -> None:
    faults = [fault_from(each) for each in data["faults"]]
    if clock is not None:
        faults = [replace(each, delay_seconds=each.delay_seconds * clock.scale) for each in faults]
    cloud.replace_faults(faults)


def _book(cloud: VultrCloud, clock: ScaledClock | None, query: Mapping[str, str]) -> list[dict[str, Any]]:
    everything = query.get("all") == "1"
    return [
        _book_wire(each, clock, everything) for each in cloud.book_objects() if everything or each.kind in SHARED_KINDS
    ]


def _book_wire(each: BookObject, clock: ScaledClock | None, everything: bool) -> dict[str, Any]:
    def wall(moment: float | None) -> float | None:
        return moment if clock is None or moment is None else clock.wall(moment)

    wire: dict[str, Any] = {
        "kind": each.kind,
        "id": each.id,
        "label": each.label,
        "region": each.region,
        "plan": each.plan,
        "created": wall(each.created),
        "active": wall(each.active),
        "destroyed": wall(each.destroyed),
    }
    if everything:
        wire |= {
            "tags": list(each.tags),
            "hourly_usd": str(each.hourly_usd),
            "cost_usd": str(each.cost_usd),
            "user_data": each.user_data,
        }
    return wire
