"""Each function may do in AWS what it does, and nothing else: its calls are recorded and held against its policy."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpulease.domain.agent_protocol import KEYS_PATH
from gpulease.domain.user_data import agent_config_in
from gpulease_sim.vultr import MachineRule, Settings

from tests.support import template_policies
from tests.support.cache_world import MODELS, USES_MODELS
from tests.support.case_world import METAL_PLAN, ONE_METAL, ONE_VM, REGION, VM_PLAN
from tests.support.ministack import ministack
from tests.support.pause_world import ONE_AWS
from tests.support.recorded_calls import Call, RecordedStack
from tests.support.vultr_world import STEADY, STEADY_METAL

__all__ = ["ministack"]

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = template_policies.resources(template_policies.read(ROOT), template_policies.FUNCTION)
RARE = {
    ("dynamodb:ConditionCheckItem", "LedgerTable"): "a fact is written without the lease's row (law 3)",
    ("dynamodb:BatchGetItem", "LedgerTable"): "whether an alarm was raised already, when a key is refused",
    ("dynamodb:Scan", "LedgerTable/index"): "the doctor's look at everything that is open",
    ("dynamodb:UpdateItem", "RuntimeTable"): "stock and pauses that are shared",
    ("dynamodb:DeleteItem", "RuntimeTable"): "parts of the offers before the last",
    ("secretsmanager:GetSecretValue", "secrets"): "the doctor's look at the provider",
    ("sns:Publish", "AlarmTopic"): "a key is refused, something is stuck or unowned",
    ("states:DescribeExecution", "release"): "a release that is overdue",
    ("states:DescribeExecution", "pause"): "a pause that lasts",
    ("states:DescribeExecution", "resume"): "a resume that lasts",
    ("states:StartExecution", "provision"): "a provisioning that has lasted for hours goes on in a new execution",
    ("states:StartExecution", "release"): "a release that nobody works on",
    (
        "states:StartExecution",
        "pause",
    ): "a pause that lasts for hours, a machine that others stopped or that failed",
    ("states:StartExecution", "resume"): "a resume that has lasted for hours, a machine that others started",
}
"""What a function may be allowed without being seen doing it in these few lives, and when it would."""


@pytest.fixture(scope="module")
def calls(ministack: Any) -> Iterator[set[Call]]:
    """All calls of some whole lives: with and without networks, on metal, without capacity, with lost starts."""
    world = RecordedStack(ministack, Settings(vm=STEADY, metal=STEADY_METAL, requests_per_second=None))
    world.live(**ONE_VM)
    world.live(**ONE_VM, private_network="preferred")
    world.live(**ONE_VM, private_network="required", network_scope="lease")
    world.live(**ONE_METAL, private_network="preferred", network_scope="lease")
    cloud = world.stack.cloud
    cloud.settings = replace(cloud.settings, rules=(MachineRule(change={"attach_failures": float("inf")}),))
    world.live(**ONE_VM, private_network="preferred", network_scope="lease")
    cloud.settings = replace(cloud.settings, rules=(), vanishing=frozenset({f"{REGION}/{VM_PLAN}"}))
    nowhere = world.stack.up(**ONE_VM)
    world.wait_for(nowhere, "released")
    cloud.settings = replace(cloud.settings, vanishing=frozenset())
    world.lost_starts = 2
    world.live(**ONE_VM)
    lease = world.stack.up(**ONE_VM, max_duration_seconds=600)
    world.abort(lease)
    world.wait_for(lease, "released")
    world.stack.api("GET", "/v1/leases")
    world.lost_starts = 1
    cache = world.stack.api("POST", "/v1/caches", MODELS)["id"]
    world.wait_for(cache, "running")
    world.live(**ONE_VM, **USES_MODELS)
    world.pause_and_resume(**ONE_VM, **USES_MODELS)
    world.pause_and_resume(**ONE_AWS)
    world.stack.api("DELETE", "/v1/caches/models")
    world.wait_for(cache, "released")
    world.close()
    yield world.recorder.calls | _with_agents(ministack)


def _with_agents(server: Any) -> set[Call]:
    """The same with agents on the machines: one that reports, one that asks for its cache's keys, one that is idle."""
    steady = Settings(vm=STEADY, metal=STEADY_METAL, requests_per_second=None)
    world = RecordedStack(server, steady, number=1, workload_of=lambda name: None)
    store = {"bucket": "models", "endpoint": "https://s3.invalid", "credentials": "mine"}
    cache = world.stack.api("POST", "/v1/caches", {**MODELS, "object_store": store})["id"]
    world.wait_for(cache, "running")
    lease = world.stack.up(**ONE_VM, **USES_MODELS)
    world.wait_for(lease, "running")
    configs = [agent_config_in(each.user_data_bytes) for each in world.stack.cloud.book_objects() if each.user_data]
    for config in configs:
        assert config is not None
        headers = {"authorization": f"Bearer {config['token']}"}
        context = {"http": {"method": "GET", "path": KEYS_PATH}}
        event = {"rawPath": KEYS_PATH, "headers": headers, "requestContext": context}
        answer = world.stack.stack.functions.call("AgentReportFunction", event)
        assert answer["statusCode"] == 503, "a key that is no JSON opens nothing"
    world.stack.down(lease)
    world.wait_for(lease, "released")
    world.close()
    return set(world.recorder.calls)


def test_the_lives_use_every_function(calls: set[Call]) -> None:
    assert {function for function, _, _ in calls} == set(FUNCTIONS)
    assert VM_PLAN != METAL_PLAN


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_allowed_what_it_does(calls: set[Call], function: str) -> None:
    used = {(action, resource) for name, action, resource in calls if name == function}

    assert used - template_policies.allowed(FUNCTIONS[function]) == set()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_allowed_no_more_than_it_does(calls: set[Call], function: str) -> None:
    used = {(action, resource) for name, action, resource in calls if name == function}

    assert template_policies.allowed(FUNCTIONS[function]) - used - set(RARE) == set()
