"""Routes of the catalog: readable without a key, except that stock is then an empty list."""

from collections.abc import Callable, Iterable

from gpulease_sim.vultr import catalog
from gpulease_sim.vultr.account import Account
from gpulease_sim.vultr.api import ApiError, Call, Json, Reply, Routes, page

OPEN_PATHS = ("/regions", "/plans", "/plans-metal", "/os", "/applications")
"""Routes that need no key."""


def add_routes(routes: Routes) -> None:
    """Register everything of this module."""
    routes.add("GET", "/regions", _regions)
    routes.add("GET", "/regions/{}/availability", _availability)
    routes.add("GET", "/plans", _plans)
    routes.add("GET", "/plans-metal", _plans_metal)
    routes.add("GET", "/os", _systems)
    routes.add("GET", "/applications", _applications)


def needs_key(path: str) -> bool:
    """Whether calls without a key are refused."""
    return not (path in OPEN_PATHS or (path.startswith("/regions/") and path.endswith("/availability")))


class _Row:
    """A catalog line with its place in the list."""

    __slots__ = ("id", "number", "wire")

    def __init__(self, number: int, wire: Json) -> None:
        self.number = number
        self.id = str(wire["id"])
        self.wire = wire


def _rows(wires: Iterable[Json]) -> list[_Row]:
    return [_Row(number, wire) for number, wire in enumerate(wires)]


_REGIONS = _rows(region.wire() for region in catalog.REGIONS.values())
_VM_PLANS = _rows(plan.wire() for plan in catalog.PLANS.values() if not plan.metal)
_METAL_PLANS = _rows(plan.wire() for plan in catalog.PLANS.values() if plan.metal)
_SYSTEMS = _rows(catalog.SYSTEMS.values())
_APPLICATIONS = _rows(catalog.APPLICATIONS)


def _page(account: Account, call: Call, key: str, rows: list[_Row]) -> Reply:
    return page(account, call, key, rows, lambda row: row.wire)


def _regions(account: Account, call: Call, ids: list[str]) -> Reply:
    return _page(account, call, "regions", _REGIONS)


def _plans(account: Account, call: Call, ids: list[str]) -> Reply:
    kind = call.query.get("type", "all")
    if kind not in catalog.AVAILABILITY_TYPES:
        raise ApiError(400, "availability_type", types=", ".join(catalog.AVAILABILITY_TYPES))
    return _page(account, call, "plans", [row for row in _VM_PLANS if _is(kind)(row.wire["type"], row.id)])


def _plans_metal(account: Account, call: Call, ids: list[str]) -> Reply:
    return _page(account, call, "plans_metal", _METAL_PLANS)


def _availability(account: Account, call: Call, ids: list[str]) -> Reply:
    region, kind = ids[0], call.query.get("type", "all")
    if region not in catalog.REGIONS:
        raise ApiError(400, "region")
    if kind not in catalog.AVAILABILITY_TYPES:
        raise ApiError(400, "availability_type", types=", ".join(catalog.AVAILABILITY_TYPES))
    available = [
        plan.id
        for plan in catalog.PLANS.values()
        if call.key and _is(kind)(plan.type, plan.id) and account.in_stock(plan, region, call.now)
    ]
    return Reply(200, {"available_plans": available, "available_vpc_only_plans": []})


def _is(kind: str) -> Callable[[str, str], bool]:
    if kind == "all":
        return lambda _type, _id: True
    if "-" in kind:  # e.g. voc-c: a line within a type
        return lambda _type, plan_id: plan_id.startswith(f"{kind}-")
    return lambda plan_type, _id: plan_type == kind


def _systems(account: Account, call: Call, ids: list[str]) -> Reply:
    return _page(account, call, "os", _SYSTEMS)


def _applications(account: Account, call: Call, ids: list[str]) -> Reply:
    kind = call.query.get("type", "all")
    return _page(account, call, "applications", [row for row in _APPLICATIONS if kind in ("all", row.wire["type"])])
