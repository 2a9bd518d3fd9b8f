"""A valid key, of another account of the provider: its lists are complete, and none of our things is in them."""

from collections.abc import Callable, Iterator, Mapping

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.providers.http import RawResponse, Transport
from gpulease.steps import create_instance
from gpulease_local.deps import FixedSecrets
from gpulease_local.sim_transport import SimTransport
from gpulease_local.simulate.virtual import VirtualStack
from gpulease_sim.vultr import Settings, VultrCloud

HOUR = 3600.0


class TwoAccounts:
    """A transport that reaches our account, or the other one while `other` is set."""

    def __init__(self, ours: Transport) -> None:
        self._ours = ours
        self.other: Transport | None = None

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        connect_timeout: float,
        read_timeout: float,
    ) -> RawResponse:
        transport = self._ours if self.other is None else self.other
        return transport.send(
            method, url, headers=headers, body=body, connect_timeout=connect_timeout, read_timeout=read_timeout
        )


class Accounts:
    """The stack, and the switch between the two accounts."""

    def __init__(self) -> None:
        self._ways: list[TwoAccounts] = []
        self.key = "our key"
        self.stack = VirtualStack(seed=5, wrap_transport=self._both).load()
        theirs = VultrCloud(self.stack.clock.time, 99, Settings(owner_email="somebody.else@example.com"))
        self._theirs = SimTransport(theirs, passed=self.stack.pass_time)

    def _both(self, ours: Transport) -> Transport:
        way = TwoAccounts(ours)
        self._ways.append(way)
        return way

    def key_of_another_account(self, wrong: bool) -> None:
        self.key = "their key" if wrong else "our key"
        for way in self._ways:
            way.other = self._theirs if wrong else None


@pytest.fixture
def new_accounts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Accounts]]:
    made: list[Accounts] = []
    monkeypatch.setattr(FixedSecrets, "provider_key", lambda *_, **__: made[-1].key if made else "our key")

    def make() -> Accounts:
        made.append(Accounts())
        return made[-1]

    yield make
    for each in made:
        each.stack.close()


def running(accounts: Accounts) -> str:
    stack = accounts.stack
    lease_id = stack.up(name="box", plan_kinds=["vm"], private_network="preferred")
    assert stack.run_until(lambda: stack.lease(lease_id).state is LeaseState.RUNNING, limit_seconds=900)
    return lease_id


def test_nothing_is_concluded_from_what_another_account_does_not_have(new_accounts: Callable[[], Accounts]) -> None:
    accounts = new_accounts()
    stack, lease_id = accounts.stack, running(accounts)

    accounts.key_of_another_account(True)
    stack.run_for(2 * HOUR)

    assert stack.lease(lease_id).state is LeaseState.RUNNING
    assert "ProviderAuthFailed" in {name for name, _ in stack.log.alarms}
    stack.down(lease_id)
    stack.run_for(HOUR)
    assert stack.lease(lease_id).state is LeaseState.RELEASING, "still shown as billed"

    accounts.key_of_another_account(False)
    assert stack.run_until(lambda: stack.lease(lease_id).state is LeaseState.RELEASED, limit_seconds=900)
    assert stack.cloud.book.billed() == []


def test_without_knowing_its_account_the_machine_would_be_called_lost_while_it_is_billed(
    new_accounts: Callable[[], Accounts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_instance, "account_identity", lambda provider, deps: "")
    accounts = new_accounts()
    stack, lease_id = accounts.stack, running(accounts)

    accounts.key_of_another_account(True)
    stack.run_for(2 * HOUR)

    assert stack.lease(lease_id).reason is Reason.LOST
    assert stack.cloud.book.billed(free=False) != []
