"""Vultr's lists as a sweep reads them: once for all regions where they cannot be narrowed, whole or not at all."""

import json

import pytest
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import marker_for
from gpulease.errors import ProviderUnavailable
from gpulease.ports import NetworkRequest, Once
from gpulease_sim.vultr.faults import Fault

from tests.support.provider_world import DEPLOYMENT, VultrWorld, request


@pytest.fixture
def world() -> VultrWorld:
    return VultrWorld()


def _paths(world: VultrWorld, since: int) -> list[str]:
    return sorted(call.path for call in list(world.cloud.calls)[since:])


def test_lists_without_a_region_are_read_once_for_all_regions(world: VultrWorld) -> None:
    made = world.provider.create_instance(request(world.offer(PlanKind.VM), marker_for(DEPLOYMENT, "l-a.instance.1")))
    metal = world.provider.create_instance(
        request(world.offer(PlanKind.BARE_METAL), marker_for(DEPLOYMENT, "l-b.instance.1"))
    )
    network = world.provider.create_network(NetworkRequest("ord", marker_for(DEPLOYMENT, "l-c.network.1")))
    world.advance(60)
    since, once = len(world.cloud.calls), Once()

    seen = {
        region: {each.provider_id for each in world.provider.list_owned(region, DEPLOYMENT, once=once)}
        for region in ("ewr", "ord", "fra")
    }

    assert seen == {"ewr": {made.provider_id, metal.provider_id}, "ord": {network.provider_id}, "fra": set()}
    assert _paths(world, since) == ["/bare-metals", "/blocks", *["/instances"] * 3, "/vpcs"]


def test_a_list_that_failed_is_not_remembered(world: VultrWorld) -> None:
    once = Once()
    world.cloud.faults.add(Fault(method="GET", path="/bare-metals", execute=False, status=503, times=3))
    with pytest.raises(ProviderUnavailable):
        world.provider.list_owned("ewr", DEPLOYMENT, once=once)

    assert list(world.provider.list_owned("ewr", DEPLOYMENT, once=once)) == []


@pytest.mark.parametrize("first", [True, False])
def test_the_tag_that_exempts_is_seen_and_is_no_marker(world: VultrWorld, first: bool) -> None:
    marker = marker_for(DEPLOYMENT, "l-aaaaaaaaaaaa.instance.1")
    tags = ["gpulease:keep", marker] if first else [marker, "gpulease:keep"]
    body = {"region": "ewr", "plan": "vcg-a16-2c-8g-2vram", "os_id": 1743, "tags": tags}
    headers = {"Authorization": "Bearer theirs", "Content-Type": "application/json"}
    assert world.cloud.handle("POST", "/instances", {}, headers, json.dumps(body).encode()).status == 202
    world.advance(60)

    [seen] = world.provider.list_owned("ewr", DEPLOYMENT)

    assert (seen.exempt, seen.marker) == (True, marker)


def test_the_tag_that_exempts_does_not_make_a_thing_ours(world: VultrWorld) -> None:
    body = {"region": "ewr", "plan": "vcg-a16-2c-8g-2vram", "os_id": 1743, "tags": ["gpulease:keep"]}
    headers = {"Authorization": "Bearer theirs", "Content-Type": "application/json"}
    assert world.cloud.handle("POST", "/instances", {}, headers, json.dumps(body).encode()).status == 202
    world.advance(60)

    assert list(world.provider.list_owned("ewr", DEPLOYMENT)) == []
