"""Our engine does what the language says, and two engines not written by us say so too, feature by feature."""

import pytest

from tests.asl import known_faults
from tests.asl.known_faults import Fault
from tests.asl.machines import CASES, Case, Outcome

each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@each_case
def test_our_engine_does_what_the_language_says(case: Case, ours: dict[str, Outcome]) -> None:
    assert ours[case.name] == case.expected


@each_case
def test_ministack_agrees(case: Case, on_ministack: dict[str, Outcome]) -> None:
    _check(on_ministack[case.name], case, known_faults.MINISTACK.get(case.name))


@each_case
def test_moto_agrees(case: Case, on_moto: dict[str, Outcome]) -> None:
    _check(on_moto[case.name], case, known_faults.MOTO.get(case.name))


def test_random_machines_end_alike_on_every_engine(
    ours: dict[str, Outcome], on_ministack: dict[str, Outcome], on_moto: dict[str, Outcome]
) -> None:
    names = [name for name in ours if name.startswith("random_")]

    different = {
        name: (ours[name], on_ministack[name], on_moto[name])
        for name in names
        if not ours[name] == on_ministack[name] == on_moto[name]
    }

    assert different == {}
    assert {ours[name].status for name in names} == {"SUCCEEDED", "FAILED"}


def test_every_known_fault_belongs_to_a_case() -> None:
    names = {case.name for case in CASES}

    assert len(names) == len(CASES)
    assert known_faults.MINISTACK.keys() <= names
    assert known_faults.MOTO.keys() <= names


def test_most_cases_are_confirmed_by_another_engine() -> None:
    doubted_by_both = known_faults.MINISTACK.keys() & known_faults.MOTO.keys()

    assert len(doubted_by_both) <= 8
    assert len(CASES) - len(doubted_by_both) >= 60


def _check(seen: Outcome, case: Case, fault: Fault | None) -> None:
    if fault is None:
        assert seen == case.expected
    else:
        assert fault.observed != case.expected, f"no fault at all: {fault.reason}"
        assert seen == fault.observed, f"the known fault has changed ({fault.reason}): strike it off or correct it"
