"""What the simulated users want and when: a seeded stream of requests, holds and changes of mind."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

MEAN_GAP_SECONDS = 90.0
GPUS: tuple[list[str], ...] = (["A16"], ["A40"], ["A100"], ["L40S"], ["A16", "A40", "L40S"], [])

AWS_GPUS: tuple[list[str], ...] = (["T4"], ["L4"], ["A10G"], ["L40S"], ["T4", "A10G", "L4"], [])
PROVIDERS = {"vultr": ("vultr",), "aws": ("aws",), "mixed": ("vultr", "aws")}
ANYWHERE_SHARE = 0.2
"""Of the wishes in a mixed run: they do not say which provider."""
SPOT = ("on-demand", "spot", "any")

PAUSE_SHARE = 0.3
"""Of the wishes whose machine can be stopped."""
PAUSE_WITH_CACHE_SHARE = 0.6
CACHE_SHARE = 0.25
"""Of the wishes for VMs."""
LEASES_PER_CACHE = 12
"""So many wishes after each other draw from one cache per owner: some meet it free, some in use, some being left."""
CACHE_PLACES: dict[str, tuple[dict[str, str], ...]] = {
    "vultr": ({"region": "ewr"}, {"region": "ord"}),
    "aws": ({"region": "us-east-1", "zone": "us-east-1a"}, {"region": "us-west-2", "zone": "us-west-2b"}),
}
OWNERS = tuple(f"arn:aws:iam::111122223333:user/{name}" for name in ("ada", "grace", "mary"))


@dataclass(frozen=True)
class Wish:
    """One user's lease: asked for at `at`, given back `hold_seconds` after it runs, or `cancel_after` seconds after
    asking, whatever its state then."""

    at: float
    hold_seconds: float
    cancel_after: float | None
    number: int
    removed_after: float | None
    """When its owner's other hand deletes the machine in the provider's console, after it runs (`--faults all`)."""
    request: dict[str, Any] = field(hash=False)
    owner: str = OWNERS[0]
    cache: dict[str, Any] | None = field(default=None, hash=False)
    """The cache that its machine uses, as it is asked for before; others may want the same one."""
    pauses: tuple[tuple[float, float], ...] = ()
    """(seconds after it runs or runs again, for so many seconds): its owner pauses it, and wants it back."""


def wishes(count: int, seed: int, provider: str = "vultr") -> list[Wish]:
    """`count` wishes, in order of time (seconds from the start). `provider`: a key of `PROVIDERS`."""
    draw = random.Random(f"wishes-{seed}")  # noqa: S311 - sameness is wanted here
    # Drawn apart, so that who asks, where and how it is used does not change what is asked for.
    who = random.Random(f"owners-{seed}")  # noqa: S311 - sameness is wanted here
    caches = random.Random(f"caches-{seed}")  # noqa: S311 - sameness is wanted here
    where = random.Random(f"providers-{seed}")  # noqa: S311 - sameness is wanted here
    use = random.Random(f"pauses-{seed}")  # noqa: S311 - sameness is wanted here
    at, made = 0.0, []
    for number in range(count):
        at += draw.expovariate(1 / MEAN_GAP_SECONDS)
        wish = _wish(draw, number, at)
        scope = who.choices(("owner", "lease"), (3, 1))[0]
        wish = replace(wish, owner=who.choice(OWNERS), request=wish.request | {"network_scope": scope})
        place = where.choice(PROVIDERS[provider])
        wish = _of_provider(wish, place, where, mixed=provider == "mixed")
        wish = _with_cache(wish, place) if caches.random() < CACHE_SHARE else wish
        made.append(_with_pauses(wish, place, use))
    return made


def _of_provider(wish: Wish, provider: str, draw: random.Random, *, mixed: bool) -> Wish:
    """The wish as somebody has it who wants this provider's machines, or any."""
    request = dict(wish.request)
    if provider == "aws":
        request.pop("gpu_count", None)
        request |= {"plan_kinds": ["vm"], "gpu": draw.choice(AWS_GPUS), "spot": draw.choices(SPOT, (7, 2, 1))[0]}
        if request["private_network"] == "required" and draw.random() < 0.5:
            request["private_network"] = "preferred"
    if mixed:
        request["providers"] = [] if draw.random() < ANYWHERE_SHARE else [provider]
    return replace(wish, request=request)


def _with_cache(wish: Wish, provider: str) -> Wish:
    """The wish with one of its owner's caches, which is in one place; a cache that is in use is refused."""
    if wish.request["plan_kinds"] != ["vm"]:
        return wish
    number = wish.number // LEASES_PER_CACHE
    name = f"cache-{number}" if provider == "vultr" else f"cache-{provider}-{number}"
    places = CACHE_PLACES[provider]
    cache = {"name": name, "provider": provider, **places[number % len(places)], "size_gb": 50}
    use = {"name": name, "mounts": ["/root/.cache/huggingface"]}
    return replace(wish, cache=cache, request=wish.request | {"cache": use})


def _with_pauses(wish: Wish, provider: str, draw: random.Random) -> Wish:
    """The wish of an owner who pauses the machine once or twice, where that keeps something."""
    keeps = wish.cache is not None or provider == "aws"
    share = PAUSE_WITH_CACHE_SHARE if wish.cache is not None else PAUSE_SHARE
    lucky, times = draw.random() < share, draw.choice((1, 1, 2))
    pauses = tuple((draw.uniform(30, 1800), draw.uniform(5, 3600)) for _ in range(times))
    return replace(wish, pauses=pauses) if keeps and lucky else wish


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
    hold = draw.uniform(120, 4 * 3600)
    removed = draw.uniform(10, hold) if draw.random() < 0.05 else None
    return Wish(
        at=at,
        hold_seconds=hold,
        cancel_after=cancel,
        number=number,
        removed_after=removed,
        request=request,
    )
