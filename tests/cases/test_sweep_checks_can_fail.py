"""The sweep's rules are held by their tests: each rule, broken, makes the test of it fail."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from gpulease.domain import sweep as rules
from gpulease.steps import losing, taking_up

from tests.cases import test_sweep_lost as lost
from tests.cases import test_sweep_unowned as unowned
from tests.support.case_world import R_SECONDS
from tests.support.sweep_world import SweepWorld


@pytest.fixture
def world() -> Iterator[SweepWorld]:
    made = SweepWorld()
    yield made
    made.close()


def test_one_sighting_is_too_few(world: SweepWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "LOOKS_NEEDED", 1)

    with pytest.raises(AssertionError):
        unowned.test_a_machine_of_a_lease_nobody_knows_is_given_back_at_the_second_sighting(world)


def test_an_empty_list_is_no_absence(world: SweepWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losing, "_exists", lambda *_: False)

    with pytest.raises(AssertionError):
        lost.test_a_list_that_is_empty_by_mistake_ends_nothing(world)


def test_half_a_ledger_is_no_ledger(world: SweepWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = rules.judge

    def forgiving(look: Any, rows: Any, before: Any) -> Any:
        read = []
        try:
            read.extend(rows)
        except Exception:  # the mistake
            read = read[:30]
        return judge(look, read, before)

    monkeypatch.setattr("gpulease.steps.sweep.judge", forgiving)

    with pytest.raises(AssertionError):
        lost.test_c49_half_a_ledger_concludes_nothing(world, monkeypatch)


def test_another_deployments_marker_is_not_ours(world: SweepWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulease.providers.vultr.adapter.marker_for", lambda deployment, _: f"gpulease:{deployment}")
    monkeypatch.setattr(rules, "marker_for", lambda *_: "")
    monkeypatch.setattr(rules, "_NAME", _LooseName())

    with pytest.raises(AssertionError):
        unowned.test_nothing_of_others_and_nothing_exempt_is_touched(world)


def test_the_last_look_at_the_ledger_counts(world: SweepWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the index has not listed yet: only the last look keeps a running machine from being taken up."""
    lease_id = lost._running(world)
    assert world.ledger is not None
    monkeypatch.setattr(world.ledger, "open_resources", lambda **_: iter(()))

    world.run_for(3 * R_SECONDS)
    assert world.lease(lease_id).state is lost.RUNNING
    assert not world.calls("DELETE")

    assert not world.alarms("UnownedResourceFound")

    monkeypatch.setattr(taking_up, "is_owned", lambda *_: False)
    world.run_for(R_SECONDS)
    assert world.alarms("UnownedResourceFound"), "without the last look it would be called unowned"


class _LooseName:
    """Takes any text for a name of ours."""

    def fullmatch(self, text: str) -> Any:
        return re.search(r"(?P<lease>l-[a-z2-7]{12})\.(?P<kind>instance)\.(?P<attempt>1)", text)
