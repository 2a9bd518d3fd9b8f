"""Paths read and write without changing anything in place."""

from typing import Any

import pytest
from gpulease_local.asl.errors import StateError
from gpulease_local.asl.paths import check_size, parse_path
from hypothesis import given
from hypothesis import strategies as st


class NoContext:
    """A scope that must not be asked."""

    def context(self) -> dict[str, Any]:
        raise AssertionError("nothing asked for the context object")


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(data=st.dictionaries(NAMES, VALUES, max_size=3), steps=st.lists(NAMES, min_size=1, max_size=4), value=VALUES)
def test_what_was_written_is_read_back_and_the_input_is_untouched(
    data: dict[str, Any], steps: list[str], value: Any
) -> None:
    path = parse_path("$." + ".".join(steps))
    before = repr(data)

    try:
        written = path.write(data, value)
    except StateError as mismatch:
        assert mismatch.error == "States.ResultPathMatchFailure"
    else:
        assert path.read(written, NoContext()) == value
        assert {key: item for key, item in written.items() if key != steps[0]} == {
            key: item for key, item in data.items() if key != steps[0]
        }

    assert repr(data) == before


@pytest.mark.parametrize("text", ["", "a", "$a", "$.", "$..a", "$.a[*]", "$.a[?(@.b)]", "$.a[0:1]", "$['a", "$.a b"])
def test_other_paths_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_path(text)


def test_an_index_past_the_end_leads_nowhere() -> None:
    with pytest.raises(StateError, match=r"States.Runtime"):
        parse_path("$.a[2]").read({"a": [1, 2]}, NoContext())


@pytest.mark.parametrize(("text", "data"), [("$.a[0]", {"a": "text"}), ("$.a.b", {"a": "text"}), ("$.a.b", {"a": [1]})])
def test_texts_and_lists_have_no_fields_and_texts_no_positions(text: str, data: Any) -> None:
    with pytest.raises(StateError, match=r"States.Runtime"):
        parse_path(text).read(data, NoContext())


@pytest.mark.parametrize(("text", "fits"), [("x" * 262_144, True), ("x" * 262_145, False), ("ü" * 131_073, False)])
def test_the_limit_counts_bytes(text: str, fits: bool) -> None:
    if fits:
        check_size(text, "it")
    else:
        with pytest.raises(StateError, match="DataLimitExceeded"):
            check_size(text, "it")
