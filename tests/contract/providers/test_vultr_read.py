"""Reads and lists: state words, absence, pages."""

import json
from dataclasses import replace
from typing import Any

import pytest
from gpulease.domain.observation import Absent, Condition, Observation
from gpulease.domain.offer import PlanKind
from gpulease.domain.resource import ResourceKind, marker_for
from gpulease.errors import (
    ProviderRejected,
    ProviderUnavailable,
    ProviderUnexpected,
)
from gpulease.ports import NetworkRequest, Ref
from gpulease_sim.vultr.faults import Fault

from tests.support.provider_contract import MARKER, NETWORK_MARKER, ready_machine
from tests.support.provider_world import DEPLOYMENT, VultrWorld, ref_of, request

GONE_ID = "00000000-0000-4000-8000-000000000000"
NO_ADDRESS = "0.0.0.0"  # noqa: S104 Vultr's text for "none yet"
NO_MARKER = marker_for(DEPLOYMENT, "l-zzzzzzzzzzzz.instance.1")


@pytest.fixture
def world() -> VultrWorld:
    return VultrWorld()


def vm_ref(provider_id: str, region: str = "ewr") -> Ref:
    return Ref(ResourceKind.INSTANCE, region, NO_MARKER, provider_id, "vm")


def net_ref(provider_id: str, region: str = "ewr") -> Ref:
    return Ref(ResourceKind.NETWORK, region, NETWORK_MARKER, provider_id)


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        ({"status": "pending", "power_status": "running", "server_status": "none"}, Condition.PENDING),
        ({"status": "active", "power_status": "stopped", "server_status": "locked"}, Condition.PENDING),
        ({"status": "active", "power_status": "running", "server_status": "installingbooting"}, Condition.PENDING),
        ({"status": "active", "power_status": "running", "server_status": "locked"}, Condition.PENDING),
        ({"status": "active", "power_status": "running", "server_status": "none"}, Condition.PENDING),
        (
            {"status": "active", "power_status": "running", "server_status": "ok", "main_ip": NO_ADDRESS},
            Condition.PENDING,
        ),
        ({"status": "active", "power_status": "rebooting", "server_status": "ok"}, Condition.PENDING),
        ({"status": "resizing", "power_status": "running", "server_status": "ok"}, Condition.PENDING),
        ({"status": "active", "power_status": None, "server_status": None}, Condition.PENDING),
        ({"status": "active", "power_status": "running", "server_status": "ok"}, Condition.READY),
        ({"status": "active", "power_status": "stopped", "server_status": "ok"}, Condition.STOPPED),
        ({"status": "suspended", "power_status": "stopped", "server_status": "ok"}, Condition.FAILED),
        ({"status": "pending destruction", "power_status": "running", "server_status": "ok"}, Condition.DELETING),
    ],
)
def test_only_all_state_words_together_mean_ready(
    world: VultrWorld, state: dict[str, Any], condition: Condition
) -> None:
    machine = {"id": GONE_ID, "region": "ewr", "main_ip": "198.51.100.7", "vpcs": [], "tags": None, **state}
    world.cloud.faults.add(
        Fault(method="GET", path=f"/instances/{GONE_ID}", execute=False, body=json.dumps({"instance": machine}))
    )

    seen = world.provider.observe(vm_ref(GONE_ID))

    assert isinstance(seen, Observation) and seen.condition is condition
    assert seen.address == ("" if machine["main_ip"] == NO_ADDRESS else "198.51.100.7")


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        ({"status": "pending", "main_ip": ""}, Condition.PENDING),
        ({"status": "pending", "main_ip": "198.51.100.7"}, Condition.PENDING),
        ({"status": "active", "main_ip": ""}, Condition.PENDING),
        ({"status": "active", "main_ip": "198.51.100.7"}, Condition.READY),
        ({"status": "suspended", "main_ip": "198.51.100.7"}, Condition.FAILED),
    ],
)
@pytest.mark.parametrize("key", ["bare_metal", "baremetal"])
def test_bare_metal_has_one_state_word(
    world: VultrWorld, key: str, state: dict[str, str], condition: Condition
) -> None:
    body = json.dumps({key: {"id": GONE_ID, "region": "ewr", "ram": "2097152 MB", "vpcs": [], **state}})
    world.cloud.faults.add(Fault(method="GET", path=f"/bare-metals/{GONE_ID}", execute=False, body=body))

    seen = world.provider.observe(replace(vm_ref(GONE_ID), subkind="bare_metal"))

    assert isinstance(seen, Observation) and seen.condition is condition


def test_an_answer_about_another_machine_is_unexpected(world: VultrWorld) -> None:
    one, other = (world.provider.create_instance(request(world.offer(PlanKind.VM), MARKER)) for _ in range(2))
    body = json.dumps({"instance": {"id": other.provider_id, "region": "ewr", "status": "active"}})
    world.cloud.faults.add(Fault(method="GET", path="/instances/.*", body=body))

    with pytest.raises(ProviderUnexpected):
        world.provider.observe(ref_of(one))


def test_networks_without_an_address_yet_do_not_count(world: VultrWorld) -> None:
    entries = [
        {"id": "a", "version": 1, "subnet": NO_ADDRESS},
        {"id": "b", "version": 1, "subnet": "10.1.96.3"},
        {"id": "c", "version": 1},
    ]
    body = json.dumps({"instance": {"id": GONE_ID, "region": "ewr", "status": "active", "vpcs": entries}})
    world.cloud.faults.add(Fault(method="GET", path=f"/instances/{GONE_ID}", execute=False, body=body))

    seen = world.provider.observe(vm_ref(GONE_ID))

    assert isinstance(seen, Observation) and seen.network_ids == ("b",)


def test_a_machine_whose_answer_has_no_networks_is_asked_for_them(world: VultrWorld) -> None:
    body = json.dumps({"instance": {"id": GONE_ID, "region": "ewr", "status": "active"}})
    vpcs = json.dumps({"vpcs": [{"id": "b", "ip_address": "10.1.96.3"}]})
    world.cloud.faults.add(Fault(method="GET", path=f"/instances/{GONE_ID}", execute=False, body=body))
    world.cloud.faults.add(Fault(method="GET", path=f"/instances/{GONE_ID}/vpcs", execute=False, body=vpcs))

    seen = world.provider.observe(vm_ref(GONE_ID))

    assert isinstance(seen, Observation) and seen.network_ids == ("b",)


def test_observing_a_machine_takes_one_call(world: VultrWorld) -> None:
    seen = ready_machine(world, PlanKind.VM)
    before = len(world.cloud.calls)

    world.provider.observe(ref_of(seen))

    assert len(world.cloud.calls) == before + 1


NOT_FOUND_ANSWERS = [
    (404, "instance not found"),
    (400, "invalid instance ID"),
    (400, "Invalid instance ID."),
    (404, "Not found."),
    (404, "no text that anybody knows"),
    (400, "no text that anybody knows"),
    (422, "no text that anybody knows"),
]


@pytest.mark.parametrize(("status", "text"), NOT_FOUND_ANSWERS)
@pytest.mark.parametrize("what", ["instance", "bare_metal", "vpc"])
def test_absence_is_recognised_in_any_words(world: VultrWorld, what: str, status: int, text: str) -> None:
    world.cloud.settings = replace(world.cloud.settings, not_found={what: (status, text)})
    ref = {
        "instance": vm_ref(GONE_ID),
        "bare_metal": replace(vm_ref(GONE_ID), subkind="bare_metal"),
        "vpc": net_ref(GONE_ID),
    }[what]

    assert isinstance(world.provider.observe(ref), Absent)
    world.provider.destroy(ref)


@pytest.mark.parametrize("status", [400, 404, 500])
@pytest.mark.parametrize("error", ["Not found.", "who knows", "Server is pending destruction"])
def test_a_machine_that_lists_show_is_not_absent_whatever_reading_it_says(
    world: VultrWorld, status: int, error: str
) -> None:
    seen = ready_machine(world, PlanKind.VM)
    path = f"/instances/{seen.provider_id}"
    world.cloud.faults.add(Fault(method="GET", path=path, execute=False, status=status, error=error))

    again = world.provider.observe(ref_of(seen))

    assert isinstance(again, Observation)
    assert (again.condition is Condition.DELETING) == ("destruction" in error)


def test_a_server_error_about_a_machine_that_lists_do_not_show_proves_nothing(world: VultrWorld) -> None:
    world.hide_from_lists(600)
    made = world.provider.create_instance(request(world.offer(PlanKind.VM), MARKER))
    world.cloud.faults.add(Fault(method="GET", path="/instances/.*", execute=False, status=500, error="who knows"))

    with pytest.raises(ProviderUnavailable):
        world.provider.observe(ref_of(made))


def test_a_wrong_base_address_never_means_absent(world: VultrWorld) -> None:
    seen = ready_machine(world, PlanKind.VM)
    world.cloud.faults.add(Fault(execute=False, status=404, error="Not found."))

    with pytest.raises(ProviderRejected):
        world.provider.observe(ref_of(seen))


@pytest.mark.parametrize("bad", ["x", "../vpcs", "4f0f12e5", GONE_ID + "/vpcs", GONE_ID + "?a", GONE_ID + "\n"])
def test_what_is_no_id_is_put_into_no_path(world: VultrWorld, bad: str) -> None:
    for ref in (vm_ref(bad), net_ref(bad)):
        with pytest.raises(ProviderRejected):
            world.provider.observe(ref)
        with pytest.raises(ProviderRejected):
            world.provider.destroy(ref)

    assert not world.cloud.calls


def test_without_a_marker_nothing_is_looked_for(world: VultrWorld) -> None:
    for kind in (ResourceKind.INSTANCE, ResourceKind.NETWORK):
        with pytest.raises(ProviderRejected):
            world.provider.find(Ref(kind, "ewr", ""))
        with pytest.raises(ProviderRejected):
            world.provider.destroy(Ref(kind, "ewr", ""))


@pytest.mark.parametrize("paging", ["id", "offset"])
def test_lists_are_read_to_the_last_page(world: VultrWorld, paging: Any) -> None:
    world.cloud.settings = replace(world.cloud.settings, paging=paging)
    offer = world.offer(PlanKind.VM)
    for number in range(505):
        world.provider.create_instance(request(offer, marker_for(DEPLOYMENT, f"l-{number}.instance.1")))
    world.advance(60)

    assert len(list(world.provider.list_owned(offer.region, DEPLOYMENT))) == 505

    world.cloud.faults.add(Fault(method="GET", path="/instances", query="cursor=", execute=False, status=502))
    with pytest.raises(ProviderUnavailable):
        world.provider.list_owned(offer.region, DEPLOYMENT)


@pytest.mark.parametrize(
    "body",
    [
        '{"vpcs": []}',
        '{"vpcs": [], "meta": {"total": 0}}',
        '{"vpcs": [], "meta": {"total": 1, "links": {"next": "", "prev": ""}}}',
        '{"vpcs": [], "meta": {"total": 0, "links": {"next": "again", "prev": ""}}}',
        '{"vpcs": null, "meta": {"total": 0, "links": {"next": "", "prev": ""}}}',
        '{"vpcs": [{"id": null}], "meta": {"total": 1, "links": {"next": "", "prev": ""}}}',
        '{"meta": {"total": 0, "links": {"next": "", "prev": ""}}}',
    ],
)
def test_a_list_that_is_not_whole_is_an_error(world: VultrWorld, body: str) -> None:
    world.cloud.faults.add(Fault(method="GET", path="/vpcs", execute=False, body=body))

    with pytest.raises(ProviderUnexpected):
        world.provider.find(net_ref("", "ewr"))


def test_finding_a_machine_takes_one_call(world: VultrWorld) -> None:
    made = world.provider.create_instance(request(world.offer(PlanKind.VM), MARKER))
    before = len(world.cloud.calls)

    world.provider.find(ref_of(made, by_marker=True))

    assert len(world.cloud.calls) == before + 1


def test_a_list_that_changes_between_its_pages_is_read_again(world: VultrWorld) -> None:
    made = world.provider.create_network(NetworkRequest("ewr", NETWORK_MARKER))

    def page(total: int, following: str) -> str:
        other = {"id": f"other-{following}", "region": "ewr"}
        return json.dumps({"vpcs": [other], "meta": {"total": total, "links": {"next": following, "prev": ""}}})

    # Something was deleted after the first page, and the one looked for slipped onto it.
    world.cloud.faults.add(Fault(method="GET", path="/vpcs", execute=False, times=1, body=page(3, "c1")))
    world.cloud.faults.add(Fault(method="GET", path="/vpcs", execute=False, times=1, body=page(2, "")))

    assert [each.provider_id for each in world.provider.find(net_ref(""))] == [made.provider_id]


def test_a_tag_filter_that_is_no_longer_known_does_not_matter(world: VultrWorld) -> None:
    made = world.provider.create_instance(request(world.offer(PlanKind.VM), MARKER))
    world.advance(60)
    world.cloud.faults.add(Fault(method="GET", path="/instances", query="tag=", execute=False, status=422))

    assert [each.provider_id for each in world.provider.find(ref_of(made, by_marker=True))] == [made.provider_id]


def test_without_a_subkind_both_sorts_of_machines_are_looked_at(world: VultrWorld) -> None:
    metal = ready_machine(world, PlanKind.BARE_METAL)
    ref = replace(ref_of(metal), subkind="")

    assert world.provider.observe(ref) == metal
    assert [each.provider_id for each in world.provider.find(ref)] == [metal.provider_id]
    world.provider.destroy(ref)
    world.advance(300)
    assert isinstance(world.provider.observe(ref), Absent)
