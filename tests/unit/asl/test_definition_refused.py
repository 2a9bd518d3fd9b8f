"""Everything outside the supported subset is refused at load, naming file, state and field."""

import json
from pathlib import Path
from typing import Any

import pytest
from gpulease_local.asl import DefinitionRefused, load_definition

from tests.asl.machines import START, task

OK: dict[str, Any] = {"Type": "Succeed"}
RETRY_ALL = {"ErrorEquals": ["States.ALL"]}


def one(state: Any, **more: Any) -> dict[str, Any]:
    """Return a definition whose state Only is the one in question."""
    return {"StartAt": "Only", "States": {"Only": state, **more}}


def wait(**fields: Any) -> dict[str, Any]:
    """Return a Wait that ends."""
    return {"Type": "Wait", "End": True, **fields}


def ask(rule: Any, **fields: Any) -> dict[str, Any]:
    """Return a definition with one Choice."""
    return one({"Type": "Choice", "Choices": [rule], **fields}, Other=OK)


def without(state: dict[str, Any], field: str) -> dict[str, Any]:
    """Return a state less one field."""
    return {key: value for key, value in state.items() if key != field}


def parameters(**fields: Any) -> dict[str, Any]:
    """Return a Task with these Parameters."""
    return one(task(Parameters=fields))


REFUSED: list[tuple[str, Any, str, str]] = [
    # what it is, the definition, the state and the field that must be named
    ("map", one({"Type": "Map", "End": True}), "Only", "Type"),
    ("parallel", one({"Type": "Parallel", "Branches": [], "End": True}), "Only", "Type"),
    ("no_type", one({"End": True}), "Only", "Type"),
    ("state_is_no_object", one("Succeed"), "Only", ""),
    ("jsonata_machine", {**one(OK), "QueryLanguage": "JSONata"}, "", "QueryLanguage"),
    ("jsonata_state", one({**OK, "QueryLanguage": "JSONata"}), "Only", "QueryLanguage"),
    ("other_version", {**one(OK), "Version": "2.0"}, "", "Version"),
    ("unknown_top_field", {**one(OK), "Extra": 1}, "", "Extra"),
    ("unknown_state_field", one({**OK, "Extra": 1}), "Only", "Extra"),
    ("assign", one({"Type": "Pass", "Assign": {}, "End": True}), "Only", "Assign"),
    ("no_states", {"StartAt": "A", "States": {}}, "", "States"),
    ("start_missing", {"StartAt": "A", "States": {"B": OK}}, "", "StartAt"),
    ("top_timeout_of_zero", {**one(OK), "TimeoutSeconds": 0}, "", "TimeoutSeconds"),
    ("next_missing", one({"Type": "Pass"}), "Only", "Next"),
    ("next_and_end", one({"Type": "Pass", "Next": "Only", "End": True}), "Only", "Next"),
    ("end_false", one({"Type": "Pass", "End": False}), "Only", "End"),
    ("next_leads_nowhere", one({"Type": "Pass", "Next": "Gone"}), "Only", "Next"),
    ("unreachable", one(OK, Island=OK), "Island", ""),
    ("long_state_name", {"StartAt": "x" * 81, "States": {"x" * 81: OK}}, "x" * 81, ""),
    ("end_on_succeed", one({**OK, "End": True}), "Only", "End"),
    ("fail_with_path", one({"Type": "Fail", "ErrorPath": "$.e"}), "Only", "ErrorPath"),
    ("fail_error_is_no_text", one({"Type": "Fail", "Error": 5}), "Only", "Error"),
    ("wildcard_path", one({**OK, "InputPath": "$.a[*]"}), "Only", "InputPath"),
    ("recursive_path", one({**OK, "OutputPath": "$..a"}), "Only", "OutputPath"),
    ("negative_index", one({**OK, "InputPath": "$.a[-1]"}), "Only", "InputPath"),
    ("path_is_a_number", one({**OK, "InputPath": 1}), "Only", "InputPath"),
    ("intrinsic_input_path", one({**OK, "InputPath": "States.Format('x')"}), "Only", "InputPath"),
    ("result_path_of_context", one({"Type": "Pass", "ResultPath": "$$.x", "End": True}), "Only", "ResultPath"),
    ("result_path_in_list", one({"Type": "Pass", "ResultPath": "$.a[0]", "End": True}), "Only", "ResultPath"),
    ("result_and_parameters", one({"Type": "Pass", "Result": 1, "Parameters": {}, "End": True}), "Only", "Parameters"),
    (
        "intrinsic_parameter",
        one({"Type": "Pass", "Parameters": {"a.$": "States.UUID()"}, "End": True}),
        "Only",
        "Parameters",
    ),
    ("template_path_is_a_number", one({"Type": "Pass", "Parameters": {"a.$": 1}, "End": True}), "Only", "Parameters"),
    ("field_given_twice", one({"Type": "Pass", "Parameters": {"a.$": "$", "a": 1}, "End": True}), "Only", "Parameters"),
    ("wait_without_time", one(wait()), "Only", "Seconds"),
    ("wait_with_both", one(wait(Seconds=1, SecondsPath="$.s")), "Only", "Seconds"),
    ("wait_half_a_second", one(wait(Seconds=0.5)), "Only", "Seconds"),
    ("wait_below_zero", one(wait(Seconds=-1)), "Only", "Seconds"),
    ("wait_timestamp", one(wait(Timestamp="2030-01-01T00:00:00Z")), "Only", "Timestamp"),
    ("wait_seconds_path_null", one(wait(SecondsPath=None)), "Only", "SecondsPath"),
    ("no_choices", one({"Type": "Choice", "Choices": []}), "Only", "Choices"),
    ("choice_with_end", ask({}, End=True), "Only", "End"),
    ("rule_without_operator", ask({"Variable": "$.a", "Next": "Other"}), "Only", "Choices[0]"),
    (
        "rule_with_two_operators",
        ask({"Variable": "$.a", "IsNull": True, "IsString": True, "Next": "Other"}),
        "Only",
        "Choices[0]",
    ),
    (
        "rule_without_next",
        ask({"Variable": "$.a", "IsNull": True}),
        "Only",
        "Choices[0].Next",
    ),
    (
        "rule_leads_nowhere",
        ask({"Variable": "$.a", "IsNull": True, "Next": "Gone"}),
        "Only",
        "Choices[0].Next",
    ),
    (
        "default_leads_nowhere",
        ask({"Variable": "$.a", "IsNull": True, "Next": "Other"}, Default="Gone"),
        "Only",
        "Default",
    ),
    (
        "unknown_operator",
        ask({"Variable": "$.a", "TimestampEquals": "x", "Next": "Other"}),
        "Only",
        "Choices[0].TimestampEquals",
    ),
    (
        "operand_of_wrong_type",
        ask({"Variable": "$.a", "NumericEquals": "1", "Next": "Other"}),
        "Only",
        "Choices[0].NumericEquals",
    ),
    ("is_null_maybe", ask({"Variable": "$.a", "IsNull": "yes", "Next": "Other"}), "Only", "Choices[0].IsNull"),
    ("no_variable", ask({"IsNull": True, "Next": "Other"}), "Only", "Choices[0].Variable"),
    (
        "next_inside_and",
        ask({"And": [{"Variable": "$.a", "IsNull": True, "Next": "Other"}], "Next": "Other"}),
        "Only",
        "Choices[0].And[0]",
    ),
    ("empty_or", ask({"Or": [], "Next": "Other"}), "Only", "Choices[0].Or"),
    (
        "bad_comparison_path",
        ask({"Variable": "$.a", "StringEqualsPath": "b", "Next": "Other"}),
        "Only",
        "Choices[0].StringEqualsPath",
    ),
    ("resource_of_a_function", one(task(Resource="arn:aws:lambda:eu-west-1:1:function:f")), "Only", "Resource"),
    ("task_token", one(task(Resource="arn:aws:states:::lambda:invoke.waitForTaskToken")), "Only", "Resource"),
    ("sync", one(task(Resource=f"{START}.sync:2")), "Only", "Resource"),
    ("no_parameters", one(without(task(), "Parameters")), "Only", "Parameters"),
    ("no_function_name", parameters(Payload={}), "Only", "Parameters.FunctionName"),
    ("no_payload", parameters(FunctionName="f"), "Only", "Parameters.Payload"),
    ("two_payloads", parameters(FunctionName="f", Payload={}, **{"Payload.$": "$"}), "Only", "Parameters.Payload"),
    ("qualifier", parameters(FunctionName="f", Payload={}, Qualifier="1"), "Only", "Parameters.Qualifier"),
    (
        "start_without_name",
        one(task(Resource=START, Parameters={"StateMachineArn": "m", "Input": {}})),
        "Only",
        "Parameters.Name",
    ),
    ("heartbeat", one(task(HeartbeatSeconds=5)), "Only", "HeartbeatSeconds"),
    ("timeout_path", one(task(TimeoutSecondsPath="$.t")), "Only", "TimeoutSecondsPath"),
    ("task_timeout_of_zero", one(task(TimeoutSeconds=0)), "Only", "TimeoutSeconds"),
    ("selector_is_a_list", one(task(ResultSelector=[])), "Only", "ResultSelector"),
    ("retry_is_an_object", one(task(Retry={})), "Only", "Retry"),
    ("retry_after_all", one(task(Retry=[RETRY_ALL, {"ErrorEquals": ["A"]}])), "Only", "Retry[0].ErrorEquals"),
    ("all_not_alone", one(task(Retry=[{"ErrorEquals": ["States.ALL", "A"]}])), "Only", "Retry[0].ErrorEquals"),
    ("no_error_names", one(task(Retry=[{"ErrorEquals": []}])), "Only", "Retry[0].ErrorEquals"),
    ("retry_runtime", one(task(Retry=[{"ErrorEquals": ["States.Runtime"]}])), "Only", "Retry[0].ErrorEquals"),
    (
        "retry_interval_of_zero",
        one(task(Retry=[{**RETRY_ALL, "IntervalSeconds": 0}])),
        "Only",
        "Retry[0].IntervalSeconds",
    ),
    ("retry_shrinking", one(task(Retry=[{**RETRY_ALL, "BackoffRate": 0.5}])), "Only", "Retry[0].BackoffRate"),
    ("retry_negative", one(task(Retry=[{**RETRY_ALL, "MaxAttempts": -1}])), "Only", "Retry[0].MaxAttempts"),
    ("retry_small_cap", one(task(Retry=[{**RETRY_ALL, "MaxDelaySeconds": 1}])), "Only", "Retry[0].MaxDelaySeconds"),
    (
        "retry_other_jitter",
        one(task(Retry=[{**RETRY_ALL, "JitterStrategy": "HALF"}])),
        "Only",
        "Retry[0].JitterStrategy",
    ),
    ("retry_unknown_field", one(task(Retry=[{**RETRY_ALL, "Next": "Only"}])), "Only", "Retry[0].Next"),
    ("catch_without_next", one(task(Catch=[RETRY_ALL])), "Only", "Catch[0].Next"),
    ("catch_leads_nowhere", one(task(Catch=[{**RETRY_ALL, "Next": "Gone"}])), "Only", "Catch[0].Next"),
    (
        "catch_after_all",
        one(task(Catch=[{**RETRY_ALL, "Next": "B"}, {"ErrorEquals": ["A"], "Next": "B"}]), B=OK),
        "Only",
        "Catch[0].ErrorEquals",
    ),
    (
        "catch_data_limit",
        one(task(Catch=[{"ErrorEquals": ["States.DataLimitExceeded"], "Next": "B"}]), B=OK),
        "Only",
        "Catch[0].ErrorEquals",
    ),
    (
        "catch_result_path_in_list",
        one(task(Catch=[{**RETRY_ALL, "ResultPath": "$.a[0]", "Next": "B"}]), B=OK),
        "Only",
        "Catch[0].ResultPath",
    ),
    ("placeholder_nobody_fills", parameters(FunctionName="${Unknown}", Payload={}), "Only", "Parameters.FunctionName"),
]


@pytest.mark.parametrize(
    ("definition", "state", "field"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refusal_names_file_state_and_field(definition: Any, state: str, field: str, tmp_path: Path) -> None:
    file = tmp_path / "machine.asl.json"
    file.write_text(json.dumps(definition))

    with pytest.raises(DefinitionRefused) as refused:
        load_definition(file, name="machine", substitutions={"first": "f"})

    assert (refused.value.file, refused.value.state, refused.value.field) == (str(file), state, field)
    message = str(refused.value)
    assert str(file) in message
    assert state in message
    assert field in message


def test_a_field_given_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.asl.json"
    file.write_text('{"StartAt": "A", "States": {"A": {"Type": "Succeed"}, "A": {"Type": "Succeed"}}}')

    with pytest.raises(DefinitionRefused, match="given twice"):
        load_definition(file, name="machine")


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.asl.json"
    file.write_text("StartAt: A")

    with pytest.raises(DefinitionRefused, match="not JSON"):
        load_definition(file, name="machine")


def test_a_long_machine_name_is_refused() -> None:
    with pytest.raises(DefinitionRefused, match="1 to 80"):
        load_definition(one(OK), name="m" * 81)


def test_placeholders_are_filled_in(tmp_path: Path) -> None:
    file = tmp_path / "machine.asl.json"
    file.write_text(json.dumps(one(task(Parameters={"FunctionName": "x-${first}-${first}", "Payload": {}}))))

    machine = load_definition(file, name="machine", substitutions={"first": "f"})

    assert machine.states["Only"].target == "x-f-f"  # type: ignore[attr-defined]
