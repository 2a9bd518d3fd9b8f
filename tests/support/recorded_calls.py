"""Which function calls what in AWS: recorded while whole leases live in virtual time on a real DynamoDB stand-in.

Invariant: everything that a policy speaks of passes through here - DynamoDB at the client itself, starts of workflows,
messages, alarms and reads of keys at their ports - and is written down under the function that is running just then.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulease.domain.event import Fact
from gpulease.ledger.dynamo import DynamoLedger, DynamoOfferStore
from gpulease.ledger.dynamo_agents import DynamoAgentStore
from gpulease.ledger.dynamo_drains import DynamoDrainStore
from gpulease.ledger.dynamo_shared import DynamoSharedReads
from gpulease.ledger.dynamo_sweeps import DynamoSweepStore
from gpulease.ledger.keys import RUNTIME_TABLE_SPEC, TABLE_SPEC
from gpulease.ports import FailedExecution, FailedExecutions, Ledger, Notifier, Secrets, Workflows
from gpulease.runtime.world import RandomIds
from gpulease_local.deps import LocalProviders
from gpulease_local.simulate.virtual import VirtualStack
from gpulease_local.simulate.workloads import Workload
from gpulease_sim.vultr import Settings

from tests.support.ec2_world import steady as steady_aws
from tests.support.ministack import Ministack

Call = tuple[str, str, str]
"""(function, action, resource): the logical ids of the template, `Table/index` for an index."""
_WRITES = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


@dataclass
class Recorder:
    """What was called so far; `function` is the one that runs now, "" = nobody's (the test looks on)."""

    tables: Mapping[str, str]
    """Physical to logical name."""
    function: str = ""
    calls: set[Call] = field(default_factory=set)

    def note(self, action: str, resource: str) -> None:
        """Write one call down."""
        if self.function:
            self.calls.add((self.function, action, resource))

    def on_dynamodb(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        """See botocore's event `provide-client-params`. A transaction needs the permission of each of its parts."""
        if model.name == "TransactWriteItems":
            for operation in params["TransactItems"]:
                ((kind, request),) = operation.items()
                self.note(f"dynamodb:{_WRITES[kind]}", self.tables[request["TableName"]])
        elif model.name == "BatchGetItem":
            for table in params["RequestItems"]:
                self.note("dynamodb:BatchGetItem", self.tables[table])
        else:
            index = "/index" if "IndexName" in params else ""
            self.note(f"dynamodb:{model.name}", self.tables[params["TableName"]] + index)


@dataclass
class _Workflows:
    inner: Workflows
    recorder: Recorder

    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        """See `ports.Workflows.start`."""
        self.recorder.note("states:StartExecution", machine)
        self.inner.start(machine, name, lease_id, epoch)

    def is_running(self, machine: str, name: str) -> bool:
        """See `ports.Workflows.is_running`."""
        self.recorder.note("states:DescribeExecution", machine)
        return self.inner.is_running(machine, name)


@dataclass
class _FailedExecutions:
    inner: FailedExecutions
    recorder: Recorder

    def receive(self) -> Sequence[FailedExecution]:
        """See `ports.FailedExecutions.receive`."""
        self.recorder.note("sqs:ReceiveMessage", "FailedExecutionsQueue")
        return self.inner.receive()

    def done(self, message: FailedExecution) -> None:
        """See `ports.FailedExecutions.done`."""
        self.recorder.note("sqs:DeleteMessage", "FailedExecutionsQueue")
        self.inner.done(message)


@dataclass
class _Notifier:
    inner: Notifier
    recorder: Recorder

    def alarm(self, name: str, text: str, facts: dict[str, Fact]) -> None:
        """See `ports.Notifier.alarm`."""
        self.recorder.note("sns:Publish", "AlarmTopic")
        self.inner.alarm(name, text, facts)


@dataclass
class _Secrets:
    inner: Secrets
    recorder: Recorder

    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        """See `ports.Secrets.provider_key`."""
        secrets = "secrets of caches" if account.startswith("cache/") else "secrets"
        self.recorder.note("secretsmanager:GetSecretValue", secrets)
        return self.inner.provider_key(account, fresh=fresh)


class RecordedStack:
    """A virtual stack on DynamoDB whose calls are recorded. `close()` after use."""

    def __init__(
        self,
        server: Ministack,
        settings: Settings,
        number: int = 0,
        workload_of: Callable[[str], Workload | None] | None = None,
    ) -> None:
        names = {f"Ledger-{number}": "LedgerTable", f"Runtime-{number}": "RuntimeTable"}
        self.recorder = recorder = Recorder(names)
        client = server.client("dynamodb")
        ledger_table, runtime_table = names
        client.create_table(TableName=ledger_table, **TABLE_SPEC)
        client.create_table(TableName=runtime_table, **RUNTIME_TABLE_SPEC)
        client.meta.events.register("provide-client-params.dynamodb", recorder.on_dynamodb)
        self.stack = stack = VirtualStack(
            settings=settings,
            providers=("vultr", "aws"),
            aws_settings=steady_aws(),
            wrap_ledger=lambda _: self._ledger(client, ledger_table),
            wrap_sweeps=lambda _: DynamoSweepStore(client, ledger_table, sleep=lambda _: None),
            wrap_agents=lambda _: DynamoAgentStore(client, ledger_table, ids=RandomIds(), sleep=lambda _: None),
            wrap_workflows=lambda inner: self._lossy(_Workflows(inner, recorder)),
            workload_of=workload_of,
        )
        deps, world = stack.stack.deps, stack.stack.world
        secrets = _Secrets(deps.secrets, recorder)
        shared = DynamoSharedReads(client, runtime_table, sleep=lambda _: None)
        stack.stack.deps = dataclasses.replace(
            deps,
            drains=DynamoDrainStore(client, ledger_table, sleep=lambda _: None),
            offers=DynamoOfferStore(client, runtime_table, sleep=lambda _: None),
            shared=shared,
            secrets=secrets,
            notifier=_Notifier(deps.notifier, recorder),
            failed_executions=_FailedExecutions(deps.failed_executions, recorder),
            providers=LocalProviders(
                world.accounts, secrets=secrets, clock=deps.clock, log=deps.log, sleep=world.sleep, shared=shared
            ),
        )
        self.lost_starts = 0
        functions = stack.stack.functions
        plain: Callable[[str, Any], Any] = functions.call

        def call(name: str, payload: Any) -> Any:
            recorder.function = name
            try:
                return plain(name, payload)
            finally:
                recorder.function = ""

        functions.call = call  # type: ignore[method-assign]
        stack.load()

    def close(self) -> None:
        """Let other stacks use this process."""
        self.stack.close()

    def state(self, lease_id: str) -> str:
        """The lease's state in the ledger."""
        return self.stack.ledger.load(lease_id).lease.state.value

    def wait_for(self, lease_id: str, state: str, limit_seconds: float = 4 * 3600) -> None:
        """Let time pass until the lease is in that state."""
        reached = self.stack.run_until(lambda: self.state(lease_id) == state, limit_seconds=limit_seconds)
        assert reached, f"{lease_id} is {self.state(lease_id)}, not {state}"

    def live(self, **request: Any) -> str:
        """One lease from asked for to running to released; its id."""
        lease = self.stack.up(**request)
        self.wait_for(lease, "running")
        self.stack.down(lease)
        self.wait_for(lease, "released")
        return lease

    def pause_and_resume(self, **request: Any) -> str:
        """One lease from asked for to released, by way of a pause; its id."""
        lease = self.stack.up(**request)
        for word, state in (("", "running"), ("pause", "paused"), ("resume", "running")):
            if word:
                self.stack.api("POST", f"/v1/leases/{lease}/{word}")
            self.wait_for(lease, state)
        self.stack.down(lease)
        self.wait_for(lease, "released")
        return lease

    def abort(self, lease_id: str) -> None:
        """End the executions of a lease from outside, as a person may in the console."""
        engine = self.stack.engine
        for each in list(engine.executions(status="RUNNING")):
            if each.name.startswith(lease_id):
                engine.stop(each.machine, each.name)

    def _ledger(self, client: Any, table: str) -> Ledger:
        # The stack's own ids are not made yet when its ledger is; tokens of commits need to be others each time.
        return DynamoLedger(client, table, ids=RandomIds(), sleep=lambda _: None)

    def _lossy(self, inner: Workflows) -> Workflows:
        world = self

        class Lossy:
            def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
                """Some starts get lost, as many as the test said."""
                if world.lost_starts:
                    world.lost_starts -= 1
                    return
                inner.start(machine, name, lease_id, epoch)

            def is_running(self, machine: str, name: str) -> bool:
                """Passed on."""
                return inner.is_running(machine, name)

        return Lossy()
