"""Joining a shared network where the ledger has something unusual under a holder's id."""

from types import SimpleNamespace
from typing import Any

from gpulease.domain.lease import LeaseState
from gpulease.domain.shared_network import Place, holder_id
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.steps.shared_network import join

from tests.support.ledger_samples import NOW, a_lease

PLACE = Place(owner="ada", account="vultr", region="ewr")


def test_a_holder_that_the_sweep_had_to_make_up_is_followed_by_the_next_generation() -> None:
    ledger = SqliteLedger(":memory:")
    deps: Any = SimpleNamespace(ledger=ledger, clock=SimpleNamespace(now=lambda: NOW))
    # A network with our marker whose holder the ledger had lost: taken up under its id, of no known generation.
    found = a_lease(holder_id(PLACE, 1), owner="system:unowned", state=LeaseState.RELEASED, attempts=())
    ledger.create_lease(found)
    ledger.create_lease(a_lease(state=LeaseState.PROVISIONING))
    record = ledger.load("l-aaaaaaaaaaaa")
    assert record.lease.attempt is not None

    holder = join(record, record.lease.attempt, PLACE, deps)

    assert holder is not None
    assert (holder.lease.id, holder.lease.generation) == (holder_id(PLACE, 2), 2)
    assert holder.lease.members == ("l-aaaaaaaaaaaa.instance.1",)
