"""When silence is the right word for a lease's end: agents of a simulation are in use all along."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpulease.domain.lease import LeaseState, Reason
from gpulease.domain.record import LeaseRecord
from gpulease_local.simulate.expected import Story, why_wrong

from tests.support.ledger_samples import a_lease, a_resource, at

ASKED_TO_GO = 3600


@pytest.mark.parametrize(
    ("ended", "hangs", "right"), [(2400, False, True), (math.inf, True, True), (math.inf, False, False)]
)
def test_a_machine_that_works_is_wrongly_told_as_unreachable(ended: float, hangs: bool, right: bool) -> None:
    lease = a_lease(state=LeaseState.RELEASED, reason=Reason.UNREACHABLE, release_requested_at=at(ASKED_TO_GO))
    story = Story(asked_at=at(0).timestamp(), ended_for={Reason.BOOT_FAILED.value} if hangs else {""})
    machine = cast(Any, SimpleNamespace(destroyed_from=at(0).timestamp() + ended))

    why = why_wrong(LeaseRecord(lease, (a_resource(),)), story, [machine])

    assert (why == "") is right
