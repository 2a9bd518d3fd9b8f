"""Agents' tokens: in the user data at the provider and in the agent's own requests, and nowhere else."""

from typing import Any

import pytest
from gpulease.domain.agent_protocol import HEARTBEAT_PATH, KEYS_PATH
from gpulease.domain.lease import LeaseState
from gpulease.domain.user_data import agent_config_in
from gpulease_local import functions
from gpulease_local.simulate import virtual
from gpulease_local.simulate.virtual import VirtualStack

from tests.support.canaries import Canaries
from tests.support.case_world import ONE_VM
from tests.support.vultr_world import steady


def test_an_agents_token_is_nowhere_but_with_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, Any]] = []

    class Log(virtual.Silent):
        def info(self, event: str, **facts: object) -> None:
            said.append(("log", (event, facts)))

        warning = info

        def error(self, event: str, **facts: object) -> None:
            super().error(event, **facts)
            said.append(("log", (event, facts)))

    kept_call = functions.Functions.call

    def call(self: functions.Functions, name: str, payload: Any) -> Any:
        answer = kept_call(self, name, payload)
        said.append((f"answer of {name}", answer))
        return answer

    monkeypatch.setattr(virtual, "Silent", Log)
    monkeypatch.setattr(functions.Functions, "call", call)
    stack = VirtualStack(settings=steady(), workload_of=lambda name: None).load()
    try:
        lease = stack.up(**ONE_VM)
        stack.run_until(lambda: stack.lease(lease).state is LeaseState.RUNNING, limit_seconds=1800)
        [config] = [agent_config_in(each.user_data_bytes) for each in stack.cloud.book_objects() if each.user_data]
        assert config is not None
        token = config["token"]
        canaries = Canaries(token=token, random=token.rpartition("_")[2])
        assert stack.report(token, {"gpus": "eight"}) is None
        assert stack.report(token, {"gpus": 1, "problems": ["fine"]}) is not None
        _ask_wrongly(stack, token)
        stack.api("GET", f"/v1/leases/{lease}")
        stack.down(lease)
        stack.run_until(lambda: stack.lease(lease).state is LeaseState.RELEASED, limit_seconds=3600)
        refused = stack.report(token, {"gpus": 1})

        record, agent = stack.record(lease), stack.stack.deps.agents.load(lease)
        rows = [record.lease, *record.resources, *stack.events(lease), agent]
        said.extend(("row", row.model_dump(mode="json")) for row in rows if row is not None)
        said.extend(("execution", (e.name, e.input, e.data, e.output, e.cause)) for e in stack.engine.executions())
        for place, thing in said:
            canaries.look(place, thing)
    finally:
        stack.close()

    assert canaries.found == set()
    assert {"log", "row", "execution", "answer of AgentReportFunction"} <= set(canaries.looked)
    assert refused is None, "a token ends with its lease"
    assert agent is not None and agent.token_sha256 == ""


def _ask_wrongly(stack: VirtualStack, token: str) -> None:
    """Requests that are refused, with the token where it does not belong too."""
    for method, path in (("GET", KEYS_PATH), ("DELETE", HEARTBEAT_PATH), ("POST", f"/v1/agent/{token}")):
        event = {
            "rawPath": path,
            "headers": {"authorization": f"Bearer {token}"},
            "requestContext": {"http": {"method": method, "path": HEARTBEAT_PATH}},
        }
        assert stack.stack.functions.call("AgentReportFunction", event)["statusCode"] == 404
