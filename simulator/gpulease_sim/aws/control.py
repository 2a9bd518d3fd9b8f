"""Routes for whoever runs the simulation, at the origin under `/_control`, without authentication.

Bodies are JSON objects. Times in the book are wall-clock seconds, also where the simulated clock runs faster.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpulease_sim.answers import SimResponse
from gpulease_sim.aws.book import BookObject
from gpulease_sim.aws.cloud import AwsCloud
from gpulease_sim.aws.codec import changed_settings, fault_from
from gpulease_sim.wall_clock import ScaledClock


def control(
    cloud: AwsCloud, clock: ScaledClock | None, method: str, path: str, query: Mapping[str, str], body: bytes
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
                cloud.settings = changed_settings(cloud.settings, data)
            case "POST", "faults":
                faults = [fault_from(each) for each in data["faults"]]
                if clock is not None:
                    faults = [replace(each, delay_seconds=each.delay_seconds * clock.scale) for each in faults]
                cloud.faults.replace(faults)
            case "GET", "book":
                return _answer(200, {"objects": [_wire(each, clock) for each in cloud.book.objects()]})
            case "GET", "clock":
                return _answer(200, {"now": cloud.now(), "time_scale": clock.scale if clock else None})
            case "GET", "ssh":
                is_open = cloud.ssh_open(query.get("address", ""), int(query.get("port", "22")))
                return _answer(200, {"open": is_open})
            case "POST", "remove":
                cloud.remove_by_hand(str(data["id"]))
            case "POST", "reclaim":
                cloud.reclaim(str(data["id"]), data.get("notice_seconds"))
            case "POST", "impair":
                cloud.impair(str(data["id"]), bool(data.get("impaired", True)))
            case "POST", "guest_shutdown":
                cloud.guest_shutdown(str(data["id"]))
            case "POST", "mount":
                cloud.mount(str(data["id"]))
            case "POST", "unmount":
                cloud.unmount(str(data["id"]))
            case _:
                return _answer(404, {"error": f"no such control route: {method} {path}", "status": 404})
    except (KeyError, TypeError, ValueError) as error:
        return _answer(400, {"error": f"{type(error).__name__}: {error}", "status": 400})
    return _answer(200, {})


def _answer(status: int, payload: Mapping[str, Any]) -> SimResponse:
    return SimResponse(status, {"Content-Type": "application/json"}, json.dumps(payload).encode())


def _wire(each: BookObject, clock: ScaledClock | None) -> dict[str, Any]:
    def wall(moment: float | None) -> float | None:
        return moment if clock is None or moment is None else clock.wall(moment)

    return {
        "kind": each.kind,
        "id": each.id,
        "region": each.region,
        "zone": each.zone,
        "type": each.type,
        "tags": dict(each.tags),
        "created": wall(each.created),
        "active": wall(each.active),
        "destroyed": wall(each.destroyed),
        "running": [[wall(start), wall(end)] for start, end in each.running],
        "hourly_usd": str(each.hourly_usd),
        "cost_usd": str(each.cost_usd),
        "size_gb": each.size_gb,
        "spot": each.spot,
        "user_data": each.user_data,
    }
