"""A lease that becomes ready, its agent's row, and the function that takes reports, with nothing else behind it."""

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from gpulease.domain.agent import AgentRecord
from gpulease.domain.agent_config import AgentConfig, agent_config
from gpulease.domain.agent_protocol import HEARTBEAT_PATH, AgentReport, new_token, token_digest
from gpulease.domain.lease import Attempt, LeaseState, VolumeAttachment
from gpulease.domain.record import Change, LeaseRecord
from gpulease.domain.resource import ResourceState
from gpulease.errors import LedgerUnavailable
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_agents import SqliteAgentStore
from gpulease.ports import Policy
from gpulease.steps import agent_report
from gpulease.steps.base import with_attempt
from gpulease_local.deps import NoWaits

from tests.support.ledger_samples import NOW, a_lease, a_resource, an_offer

LEASE = "l-aaaaaaaaaaaa"
TOKEN = new_token(LEASE, "0123456789abcdef" * 2)


def body_of(**facts: Any) -> bytes:
    """The body of a report, as the agent sends it."""
    return AgentReport.model_validate_json(json.dumps(facts)).model_dump_json().encode()


class AgentWorld:
    """`calls` holds what was asked of both stores; `fails` makes the agents' store fail."""

    def __init__(self) -> None:
        self.at: datetime = NOW + timedelta(seconds=100)
        self.ledger = SqliteLedger(":memory:")
        self.agents = SqliteAgentStore(self.ledger.file)
        self.calls: list[str] = []
        self.fails = False
        self.between_load_and_save: Callable[[], object] | None = None
        self.secrets: dict[str, str] = {}
        attempt = Attempt(
            number=1, offer=an_offer(gpu_count=1), started_at=NOW, ready_deadline=NOW + timedelta(minutes=10)
        )
        self.ledger.create_lease(a_lease(LEASE, state=LeaseState.PROVISIONING, attempts=(attempt,)))
        machine = a_resource(LEASE, state=ResourceState.HELD, provider_id="p-1", address="192.0.2.7")
        self.ledger.commit(Change(lease_id=LEASE, resources=(machine,)))
        self.agents.save(AgentRecord(lease_id=LEASE, attempt=1, token_sha256=token_digest(TOKEN)))
        log = SimpleNamespace(info=_nothing, warning=_nothing, error=_nothing)
        self.deps: Any = SimpleNamespace(
            ledger=_Told(self, "ledger", self.ledger),
            agents=_Told(self, "agents", self.agents),
            clock=SimpleNamespace(now=lambda: self.at),
            policy=Policy(deployment="test", agent_url="https://api.invalid"),
            secrets=SimpleNamespace(provider_key=lambda name: self.secrets[name]),
            log=log,
            waits=NoWaits(),
        )

    def record(self) -> LeaseRecord:
        """The lease as it is now."""
        return self.ledger.load(LEASE)

    def attempt(self) -> Attempt:
        """Its attempt."""
        return self.record().lease.attempts[-1]

    def agent(self) -> AgentRecord:
        """Its agent's row."""
        agent = self.agents.load(LEASE)
        assert agent is not None
        return agent

    def write_agent(self, **changes: object) -> None:
        """Another writer of the row."""
        self.agents.save(self.agent().model_copy(update=changes))

    def config(self, token: str) -> AgentConfig:
        """What an agent is told."""
        return agent_config(
            url="https://api.invalid", token=token, lease_id=LEASE, gpus=1, script_bytes=0, ssh_port=22, cache=None
        )

    def becomes_ready(self, *, volume: bool = False) -> None:
        """All but the agent's word is there, as `PollReadiness` notes it."""
        lease = self.record().lease
        attached = VolumeAttachment(holder_id="c-aaaaaaaaaaaa", attached_at=self.at) if volume else None
        ready = self.attempt().model_copy(update={"shown_ready_at": self.at, "volume": attached})
        self.ledger.commit(Change(lease_id=LEASE, lease=with_attempt(lease, ready)))

    def ask(
        self, method: str, path: str, body: bytes = b"", *, authorization: str | None = None, encoded: bool = False
    ) -> dict[str, Any]:
        """One request, as API Gateway hands it on."""
        event = {
            "rawPath": path,
            "headers": {"authorization": f"Bearer {TOKEN}" if authorization is None else authorization},
            "requestContext": {"http": {"method": method, "path": path}},
            "body": base64.b64encode(body).decode() if encoded else body.decode(),
            "isBase64Encoded": encoded,
        }
        return agent_report.run(event, self.deps, lambda stored, store: None)

    def report(self, *, token: str = TOKEN, **facts: Any) -> dict[str, Any]:
        """One report and its answer."""
        return self.ask("POST", HEARTBEAT_PATH, body_of(**facts), authorization=f"Bearer {token}")


class _Told:
    """A store whose calls are noted."""

    def __init__(self, world: AgentWorld, name: str, inner: Any) -> None:
        self._world, self._name, self._inner = world, name, inner

    def __getattr__(self, call: str) -> Any:
        if self._world.fails and self._name == "agents":
            raise LedgerUnavailable("down")
        if call == "save" and self._world.between_load_and_save is not None:
            happens, self._world.between_load_and_save = self._world.between_load_and_save, None
            happens()
        self._world.calls.append(f"{self._name}.{call}")
        return getattr(self._inner, call)


def _nothing(*_: object, **__: object) -> None:
    """Forgotten."""
