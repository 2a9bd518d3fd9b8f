"""Where moto 5.2.5 and ministack 1.5.33 are known to differ from the service, each with the reason and what they do.

A listed fault must still be observed exactly as written, or the test fails: the table cannot grow stale. The service's
rules are in https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html (error names, what can
be caught), …/state-choice.html (IsPresent) and https://states-language.net/spec.html (paths, types).
"""

from dataclasses import dataclass

from tests.asl.machines import Outcome, failed, ok


@dataclass(frozen=True)
class Fault:
    """Why an engine is not believed for a case, and what it answers instead."""

    reason: str
    observed: Outcome


_NULL_FOR_NOTHING = "a path that leads nowhere gives null instead of ending the execution"
_NO_NAME_REUSE = "a taken name is always refused, under an error name without the service's prefix"
_MOTO_START = "startExecution parameters are not translated for its own client (KeyError 'StateMachineArn')"

MINISTACK: dict[str, Fault] = {
    "missing_input_path_ends_the_execution": Fault(_NULL_FOR_NOTHING, ok(None)),
    "missing_output_path_ends_the_execution": Fault(_NULL_FOR_NOTHING, ok(None)),
    "missing_parameter_ends_the_execution": Fault(_NULL_FOR_NOTHING, ok({"x": None})),
    "catch_all_does_not_catch_a_runtime_error": Fault(
        _NULL_FOR_NOTHING, ok({"StatusCode": 200, "Payload": {"x": None}})
    ),
    "result_selector_that_leads_nowhere": Fault(_NULL_FOR_NOTHING, ok({"x": None})),
    "variable_that_leads_nowhere": Fault("a Variable that leads nowhere compares as false", ok("no")),
    "null_is_present": Fault("null counts as absent", ok("no")),
    "a_number_is_no_boolean": Fault("1 equals true", ok("yes")),
    "true_is_no_number": Fault("true counts as a number", ok("yes")),
    "result_path_into_a_text_is_a_mismatch": Fault("the text is overwritten", ok({"a": {"b": 1}})),
    "catch_takes_a_result_path_mismatch": Fault(
        "the text is overwritten", ok({"a": {"b": {"StatusCode": 200, "Payload": {}}}})
    ),
    "fail_needs_no_error": Fault("makes up an error name", failed("States.Fail")),
    "wait_with_seconds_that_lead_nowhere": Fault("does not wait instead of failing", ok({})),
    "wait_with_seconds_that_are_text": Fault("does not wait instead of failing", ok({"s": "1"})),
    "wait_with_negative_seconds": Fault("does not wait instead of failing", ok({"s": -1})),
    "task_wraps_the_answer": Fault("ExecutedVersion is missing", ok({"p": {"x": 1}, "s": 200, "v": None})),
    "catch_all_does_not_catch_a_huge_answer": Fault("no payload limit", ok(200)),
    "whole_execution_times_out": Fault("the top-level TimeoutSeconds is not enforced", ok("late")),
    "start_execution_of_a_taken_name": Fault(_NO_NAME_REUSE, failed("ExecutionAlreadyExists")),
    "start_execution_twice_with_the_same_input": Fault(_NO_NAME_REUSE, failed("ExecutionAlreadyExists")),
}

MOTO: dict[str, Fault] = {
    "no_match_and_no_default": Fault("another error name", failed("States.Runtime")),
    "variable_that_leads_nowhere": Fault("a Variable that leads nowhere compares as false", ok("no")),
    "result_path_into_a_text_is_a_mismatch": Fault("another error name", failed("States.Runtime")),
    "catch_takes_a_result_path_mismatch": Fault("another error name", failed("States.Runtime")),
    "task_wraps_the_answer": Fault("ExecutedVersion is missing", failed("States.Runtime")),
    "catch_all_does_not_catch_a_runtime_error": Fault("States.ALL catches everything", ok("caught")),
    "catch_all_does_not_catch_a_huge_answer": Fault("States.ALL catches everything", ok("caught")),
    "start_execution_answers_at_once": Fault(_MOTO_START, failed("States.Runtime")),
    "start_execution_of_a_taken_name": Fault(_MOTO_START, failed("States.Runtime")),
    "start_execution_twice_with_the_same_input": Fault(_MOTO_START, failed("States.Runtime")),
}
