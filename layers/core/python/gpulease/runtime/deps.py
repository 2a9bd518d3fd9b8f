"""Puts the parts together, lazily: a step that calls no provider imports none.

`LazyDeps` is what every handler holds. In AWS it becomes `AwsDeps` at first use. On one computer and in tests, `use()`
says what it is instead, and the handlers stay the same.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpulease.ports import (
    AgentStore,
    Clock,
    Deps,
    DrainStore,
    FailedExecutions,
    Ids,
    Ledger,
    Log,
    Notifier,
    OfferStore,
    Policy,
    Probe,
    Providers,
    Secrets,
    SharedReads,
    SweepStore,
    Waits,
    Workflows,
)

if TYPE_CHECKING:
    from gpulease.runtime.settings import Settings

_override: Deps | None = None
_aws: "AwsDeps | None" = None


def use(deps: Deps | None) -> None:
    """From now on every handler of this process uses `deps`; None = what the environment says."""
    global _override
    _override = deps


def current() -> Deps:
    global _aws
    if _override is not None:
        return _override
    if _aws is None:
        from gpulease.runtime.settings import from_environment

        _aws = AwsDeps(from_environment())
    return _aws


class LazyDeps:
    """`ports.Deps` that asks `current()` for everything, at every access."""

    ledger: Ledger
    offers: OfferStore
    shared: SharedReads
    sweeps: SweepStore
    agents: AgentStore
    drains: DrainStore
    providers: Providers
    workflows: Workflows
    failed_executions: FailedExecutions
    clock: Clock
    ids: Ids
    secrets: Secrets
    probe: Probe
    waits: Waits
    notifier: Notifier
    log: Log
    policy: Policy

    def __getattr__(self, name: str) -> Any:
        return getattr(current(), name)


class AwsDeps:
    """The parts in an AWS account."""

    def __init__(self, settings: "Settings") -> None:
        self._settings = settings

    @cached_property
    def _dynamodb(self) -> Any:
        from botocore.config import Config

        from gpulease.runtime.aws import client

        # The ledger repeats by itself, knowing its own tokens; a second layer of retries would hide what happened.
        return client("dynamodb", Config(retries={"total_max_attempts": 1}, read_timeout=5, connect_timeout=2))

    @cached_property
    def ledger(self) -> Ledger:
        from gpulease.ledger.dynamo import DynamoLedger
        from gpulease.runtime.world import sleep

        return DynamoLedger(self._dynamodb, self._settings.ledger_table, ids=self.ids, sleep=sleep)

    @cached_property
    def offers(self) -> OfferStore:
        from gpulease.ledger.dynamo import DynamoOfferStore
        from gpulease.runtime.world import sleep

        return DynamoOfferStore(self._dynamodb, self._settings.runtime_table, sleep=sleep)

    @cached_property
    def sweeps(self) -> SweepStore:
        from gpulease.ledger.dynamo_sweeps import DynamoSweepStore
        from gpulease.runtime.world import sleep

        return DynamoSweepStore(self._dynamodb, self._settings.ledger_table, sleep=sleep)

    @cached_property
    def drains(self) -> DrainStore:
        from gpulease.ledger.dynamo_drains import DynamoDrainStore
        from gpulease.runtime.world import sleep

        return DynamoDrainStore(self._dynamodb, self._settings.ledger_table, sleep=sleep)

    @cached_property
    def agents(self) -> AgentStore:
        from gpulease.ledger.dynamo_agents import DynamoAgentStore
        from gpulease.runtime.world import sleep

        return DynamoAgentStore(self._dynamodb, self._settings.ledger_table, ids=self.ids, sleep=sleep)

    @cached_property
    def shared(self) -> SharedReads:
        from gpulease.ledger.dynamo_shared import DynamoSharedReads
        from gpulease.runtime.world import sleep

        return DynamoSharedReads(self._dynamodb, self._settings.runtime_table, sleep=sleep)

    @cached_property
    def providers(self) -> Providers:
        from gpulease.runtime.accounts import ConfiguredProviders

        return ConfiguredProviders(self._settings, self.secrets, self.clock, self.log, self.shared)

    @cached_property
    def workflows(self) -> Workflows:
        from gpulease.runtime.aws import client
        from gpulease.runtime.step_functions import StepFunctionsWorkflows

        return StepFunctionsWorkflows(client("stepfunctions"), self._settings.machine_arns())

    @cached_property
    def failed_executions(self) -> FailedExecutions:
        from gpulease.runtime.aws import client
        from gpulease.runtime.failed_executions import SqsFailedExecutions

        return SqsFailedExecutions(client("sqs"), self._settings.failed_executions_queue_url, self.log)

    @cached_property
    def clock(self) -> Clock:
        from gpulease.runtime.world import SystemClock

        return SystemClock()

    @cached_property
    def ids(self) -> Ids:
        from gpulease.runtime.world import RandomIds

        return RandomIds()

    @cached_property
    def secrets(self) -> Secrets:
        from gpulease.runtime.secrets import SecretsManagerSecrets

        return SecretsManagerSecrets(self._settings.secret_prefix)

    @cached_property
    def probe(self) -> Probe:
        from gpulease.runtime.world import TcpProbe

        return TcpProbe()

    @cached_property
    def waits(self) -> Waits:
        from gpulease.runtime.world import CallWaits

        return CallWaits()

    @cached_property
    def log(self) -> Log:
        from gpulease.runtime.logging import PowertoolsLog

        return PowertoolsLog()

    @cached_property
    def notifier(self) -> Notifier:
        from gpulease.runtime.logging import LogNotifier, PowertoolsLog

        logged = LogNotifier(PowertoolsLog())
        if not self._settings.alarm_topic_arn:
            return logged
        from gpulease.runtime.aws import client
        from gpulease.runtime.sns import TopicNotifier

        return TopicNotifier(client("sns"), self._settings.alarm_topic_arn, logged, self.log)

    @cached_property
    def policy(self) -> Policy:
        admins = frozenset(a.strip() for a in self._settings.admins.split(",") if a.strip())
        return Policy(
            deployment=self._settings.deployment,
            ssh_port=self._settings.ssh_port,
            admins=admins,
            agent_url=self._settings.agent_url if self._settings.agents else "",
        )
