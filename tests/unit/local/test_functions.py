"""Functions in process answer as Lambda does: JSON both ways, errors by class name."""

import json
import textwrap
from pathlib import Path

import pytest
from gpulease_local.functions import Functions
from gpulease_local.template import FunctionSpec, TemplateRefused


def _functions(tmp_path: Path, errors: list[str] | None = None, **codes: str) -> Functions:
    specs = []
    for name, code in codes.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "app.py").write_text(textwrap.dedent(code), encoding="utf-8")
        specs.append(FunctionSpec(name, folder, "app.handler", timeout_seconds=7.0))
    noted = [] if errors is None else errors
    return Functions(
        specs, monotonic=lambda: 100.0, token=lambda: "request-1", on_error=lambda name, error: noted.append(name)
    )


def test_two_functions_with_a_module_of_one_name_stay_apart(tmp_path: Path) -> None:
    functions = _functions(
        tmp_path,
        one="def handler(event, context): return 'one'",
        two="def handler(event, context): return 'two'",
    )

    assert [functions.invoke(name, {}).value for name in ("one", "two", "one")] == ["one", "two", "one"]


def test_payload_and_result_make_the_round_trip_through_json(tmp_path: Path) -> None:
    functions = _functions(tmp_path, echo="def handler(event, context): return {'got': event, 'pair': (1, 2)}")

    assert functions.invoke("echo", {"a": (1,)}).value == {"got": {"a": [1]}, "pair": [1, 2]}


def test_a_raised_error_is_an_answer_under_its_class_name(tmp_path: Path) -> None:
    noted: list[str] = []
    functions = _functions(
        tmp_path,
        noted,
        bad="""
        class ProviderThrottled(Exception): pass
        def handler(event, context): raise ProviderThrottled("later")
        """,
    )

    reply = functions.invoke("bad", {})

    assert reply.error == "ProviderThrottled"
    assert json.loads(reply.cause) == {"errorMessage": "later", "errorType": "ProviderThrottled"}
    assert noted == ["bad"]


@pytest.mark.parametrize("value", ["object()", "{1, 2}", "float('nan')"])
def test_a_result_that_is_not_json_is_a_marshal_error(tmp_path: Path, value: str) -> None:
    functions = _functions(tmp_path, odd=f"def handler(event, context): return {value}")

    assert functions.invoke("odd", {}).error == "Runtime.MarshalError"


def test_the_context_tells_name_request_and_time_left(tmp_path: Path) -> None:
    functions = _functions(
        tmp_path,
        who="""
        def handler(event, c):
            return [c.function_name, c.aws_request_id, c.get_remaining_time_in_millis()]
        """,
    )

    assert functions.invoke("who", {}).value == ["who", "request-1", 7000]


def test_an_unknown_function_is_an_error_of_the_service(tmp_path: Path) -> None:
    assert _functions(tmp_path).invoke("nobody", {}).error == "Lambda.ResourceNotFoundException"


@pytest.mark.parametrize("code", ["import nothing_of_that_name", "x = 1", "handler = 3"])
def test_a_function_that_cannot_be_imported_stops_the_start(tmp_path: Path, code: str) -> None:
    functions = _functions(tmp_path, broken=code)

    with pytest.raises(TemplateRefused, match="broken"):
        functions.load_all()
