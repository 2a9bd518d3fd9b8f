"""What the simulated users want and when: a seeded stream of requests, holds and changes of mind."""

import random
from dataclasses import dataclass, field
from typing import Any

MEAN_GAP_SECONDS = 90.0
GPUS: tuple[list[str], ...] = (["A16"], ["A40"], ["A100"], ["L40S"], ["A16", "A40", "L40S"], [])


@dataclass(frozen=True)
class Wish:
    """One user's lease: asked for at `at`, given back `hold_seconds` after it runs, or `cancel_after` seconds after
    asking, whatever its state then."""

    at: float
    hold_seconds: float
    cancel_after: float | None
    request: dict[str, Any] = field(hash=False)


def wishes(count: int, seed: int) -> list[Wish]:
    """`count` wishes, in order of time (seconds from the start)."""
    draw = random.Random(f"wishes-{seed}")  # noqa: S311 - sameness is wanted here
    at, made = 0.0, []
    for number in range(count):
        at += draw.expovariate(1 / MEAN_GAP_SECONDS)
        made.append(_wish(draw, number, at))
    return made


def _wish(draw: random.Random, number: int, at: float) -> Wish:
    request: dict[str, Any] = {
        "name": f"lease-{number}",
        "private_network": draw.choices(("none", "preferred", "required"), (5, 3, 2))[0],
    }
    if draw.random() < 0.2:
        request |= {"plan_kinds": ["bare_metal"], "gpu_count": draw.choice((4, 8))}
    else:
        request |= {"plan_kinds": ["vm"], "gpu": draw.choice(GPUS)}
        if not request["gpu"]:
            request["max_price_per_hour_usd"] = draw.choice(("0.50", "3", "30"))
    if draw.random() < 0.1:
        request["max_duration_seconds"] = draw.choice((600, 3600, 7200))
    if draw.random() < 0.1:
        request["start_script"] = "#!/bin/sh\necho ready\n"
    cancel = draw.uniform(0, 400) if draw.random() < 0.15 else None
    return Wish(at=at, hold_seconds=draw.uniform(120, 4 * 3600), cancel_after=cancel, request=request)
