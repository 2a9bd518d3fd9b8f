"""Keys, errors, rate limit and other habits of the simulated API."""

from dataclasses import replace

import pytest
from gpulease_sim.vultr import Settings, VultrCloud
from gpulease_sim.vultr.catalog import AVAILABILITY_TYPES, PLANS, REGIONS
from gpulease_sim.vultr.texts import TEXTS

from tests.support.vultr_world import GPU_VM, START, VultrWorld, error_of, steady


def test_a_call_without_a_key_or_with_a_wrong_one_is_refused() -> None:
    world = VultrWorld(steady(api_keys=frozenset({"good"})))

    assert error_of(world.call("GET", "/instances", key="")) == (401, "Invalid API token.")
    assert error_of(world.call("GET", "/instances", key="bad")) == (401, "Invalid API token.")
    assert world.call("GET", "/instances", key="good").status == 200


def test_a_good_key_from_a_wrong_address_is_refused_by_name() -> None:
    world = VultrWorld(steady(allowed_addresses=frozenset({"192.0.2.1"})))

    refusal = error_of(world.call("GET", "/instances", client="192.0.2.9"))

    assert refusal == (401, "Unauthorized IP address: 192.0.2.9")
    assert world.call("GET", "/instances").status == 200


def test_the_catalogue_needs_no_key_but_stock_is_then_an_empty_list() -> None:
    world = VultrWorld()

    for path in ("/regions", "/plans", "/plans-metal", "/os", "/applications"):
        assert world.call("GET", path, key="").status == 200
    assert world.call("GET", "/regions/ord/availability", key="").json()["available_plans"] == []
    assert GPU_VM in world.get("/regions/ord/availability")["available_plans"]


def test_a_body_without_content_type_is_refused_unless_switched_off() -> None:
    cloud = VultrCloud(lambda: START, settings=steady())
    headers = {"authorization": "bearer k"}

    def create() -> int:
        return cloud.handle("POST", "/v2/vpcs", {}, headers, b'{"region": "ord"}').status

    assert create() == 400
    assert cloud.handle("GET", "/v2/vpcs", {}, headers).status == 200
    cloud.settings = replace(cloud.settings, require_content_type=False)
    assert create() == 201


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    cloud = VultrCloud(lambda: START, settings=steady())
    headers = {"Authorization": "Bearer k", "Content-Type": "application/json"}

    assert cloud.handle("POST", "/vpcs", {}, headers, body).status == 400


def test_wrong_verbs_and_unknown_routes_are_told_apart() -> None:
    world = VultrWorld()

    assert error_of(world.call("PUT", "/instances")) == (405, "Method not allowed. Must be one of: GET, POST")
    assert world.call("GET", "/vpc2").status == 404
    assert world.call("GET", "/instances/x/y/z").status == 404


def test_more_than_30_calls_a_second_from_one_address_are_too_many() -> None:
    world = VultrWorld(Settings())
    statuses = [world.call("GET", "/account").status for _ in range(32)]

    limited = world.call("GET", "/account")

    assert statuses == [200] * 30 + [429] * 2
    assert (limited.status, limited.headers["Retry-After"]) == (429, "1")
    assert world.call("GET", "/account", client="192.0.2.2").status == 200
    world.wait(1)
    assert world.call("GET", "/account").status == 200


def test_the_rate_limit_may_come_without_header_or_per_hour() -> None:
    world = VultrWorld(Settings(requests_per_second=None, requests_per_hour=2, retry_after_header=False))

    statuses = [world.call("GET", "/account").status for _ in range(3)]

    assert statuses == [200, 200, 429]
    assert "Retry-After" not in world.call("GET", "/account").headers
    world.wait(3600)
    assert world.call("GET", "/account").status == 200


def test_latency_is_drawn_and_accounted_for() -> None:
    world = VultrWorld(steady(latency_seconds=(0.1, 0.2), list_latency_seconds=(0.9, 2.0)))

    one = world.call("GET", "/regions/ord/availability").elapsed_seconds
    many = world.call("GET", "/instances").elapsed_seconds

    assert 0.1 <= one <= 0.2 and 0.9 <= many <= 2
    assert world.now == START + one + many


@pytest.mark.parametrize(
    ("path", "resource", "text"),
    [
        ("/instances/x", "instance", "instance not found"),
        ("/instances/x/vpcs", "instance_vpcs", "Invalid instance-id"),
        ("/bare-metals/x", "bare_metal", "Invalid server"),
        ("/vpcs/x", "vpc", "Invalid VPC ID."),
        ("/ssh-keys/x", "ssh_key", "Invalid ssh key"),
        ("/startup-scripts/x", "startup_script", "Invalid startup script ID"),
        ("/reserved-ips/x", "reserved_ip", "Invalid reserved-ip ID"),
        ("/firewalls/x", "firewall_group", "Invalid firewall group ID"),
        ("/snapshots/x", "snapshot", "Invalid snapshot ID"),
    ],
)
def test_what_a_missing_object_answers_can_be_chosen_and_reworded(path: str, resource: str, text: str) -> None:
    world = VultrWorld()
    assert error_of(world.call("GET", path)) == (404, text)

    world.cloud.settings = replace(world.cloud.settings, not_found={resource: (400, "Not found, sorry")})
    assert error_of(world.call("GET", path)) == (400, "Not found, sorry")

    world.cloud.settings = replace(world.cloud.settings, reworded=True)
    status, reworded = error_of(world.call("GET", path))
    assert status == 400
    assert reworded not in (text, "Not found, sorry")


def test_no_reworded_text_shares_its_words_with_the_known_one() -> None:
    telling = ("locked", "active", "not found", "invalid", "capacity", "not available", "attach", "pending", "limit")

    for known, reworded in TEXTS.values():
        assert reworded and reworded != known
        assert not [word for word in telling if word in known.lower() and word in reworded.lower()]


def test_whole_gpu_plans_have_no_gpu_fields_and_metal_plans_their_own_key() -> None:
    world = VultrWorld()
    plans = {plan["id"]: plan for plan in world.get("/plans")["plans"]}
    metal = {plan["id"]: plan for plan in world.get("/plans-metal")["plans_metal"]}

    assert plans[GPU_VM]["gpu_type"] == "NVIDIA_L40S"
    assert plans[GPU_VM]["hourly_cost"] == 1.671
    whole = plans["vcg-a40-24c-120g-48vram"]
    assert whole["type"] == "vdm" and not [name for name in whole if name.startswith("gpu")]
    assert metal["vbm-112c-2048gb-8-h100-gpu"]["hourly_cost"] == 23.92
    assert not set(plans) & set(metal)
    assert set(plans) | set(metal) == set(PLANS)


def test_plan_types_filter_the_list_and_vcg_leaves_out_whole_gpus() -> None:
    world = VultrWorld()

    assert {plan["type"] for plan in world.get("/plans", type="vcg")["plans"]} == {"vcg"}
    assert world.call("GET", "/plans", type="none").status == 400


def test_stock_is_not_what_the_plan_list_claims() -> None:
    world = VultrWorld()
    claimed = next(plan for plan in world.get("/plans")["plans"] if plan["id"] == "vcg-a40-24c-120g-48vram")

    stocked = [
        region
        for region in REGIONS
        if claimed["id"] in world.get(f"/regions/{region}/availability", type="vdm")["available_plans"]
    ]

    assert claimed["locations"] == ["ewr", "lax", "ams", "blr"]
    assert stocked == ["blr"]


def test_availability_refuses_unknown_types_and_regions() -> None:
    world = VultrWorld()

    status, text = error_of(world.call("GET", "/regions/ord/availability", type="gpu"))
    assert (status, text) == (400, f"Please provide a valid type: {', '.join(AVAILABILITY_TYPES)}")
    assert error_of(world.call("GET", "/regions/xxx/availability")) == (400, "Invalid region.")


def test_the_account_shows_no_limits_and_its_charges() -> None:
    world = VultrWorld(steady(instance_limit=3))
    world.create_vm()
    world.wait(3601)

    account = world.get("/account")["account"]

    assert account["pending_charges"] == pytest.approx(3.34)
    assert not [name for name in account if "limit" in name]
    assert world.get("/billing/pending-charges")["pending_charges"][0]["units"] == 2
