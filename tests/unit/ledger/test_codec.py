"""Rows that another version of this program wrote."""

import json
from typing import Any

import pytest
from gpulease.domain.event import Event
from gpulease.domain.lease import Lease
from gpulease.domain.resource import Resource
from gpulease.errors import LedgerUnavailable
from gpulease.ledger.codec import decode, encode

from tests.support.ledger_samples import a_lease, a_resource, an_event

SAMPLES: tuple[Lease | Resource | Event, ...] = (a_lease(), a_resource(), an_event())


def _everywhere(value: Any, field: str) -> Any:
    """The document with a field that nobody knows in each of its objects."""
    if isinstance(value, dict):
        return {**{key: _everywhere(each, field) for key, each in value.items()}, field: "x"}
    return [_everywhere(each, field) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_after_a_rollback_rows_of_the_newer_version_can_still_be_read(sample: Lease | Resource | Event) -> None:
    newer = json.loads(sample.model_dump_json())
    free_form = {"facts", "labels"}
    newer = {
        key: value if key in free_form else _everywhere(value, "of_a_newer_version") if key != "spec" else value
        for key, value in newer.items()
    } | {"of_a_newer_version": {"a": 1}}

    read = decode(type(sample), json.dumps(newer))

    assert read == sample


def test_a_window_that_made_sense_once_is_read_and_written_whatever_is_known_today() -> None:
    """Zones leave the database, and rules become stricter: what cannot be read could not be given back."""
    gone = {"keep": "off", "start": "0 22 * * *", "end": "0 22 * * *", "timezone": "Old/Zone"}
    row = json.loads(a_lease().model_dump_json())
    row["policy"] = {**json.loads(a_lease().rules.model_dump_json()), "windows": [gone]}

    read = decode(Lease, json.dumps(row))

    assert read.rules.windows[0].timezone == "Old/Zone"
    assert encode(read, "lease").model == read


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_row_that_lacks_what_it_must_have_is_a_fault_with_a_name(sample: Lease | Resource | Event) -> None:
    wrong = json.loads(sample.model_dump_json())
    del wrong[next(iter(wrong))]

    with pytest.raises(LedgerUnavailable, match="cannot be read"):
        decode(type(sample), json.dumps(wrong))


def test_what_we_build_ourselves_still_may_have_no_unknown_field() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        Lease.model_validate_json(json.dumps({**json.loads(a_lease().model_dump_json()), "colour": "red"}))
