"""Small state machines, one for each rule of the language, with what must come out of them.

`expected` follows the language's specification and the service's documentation; our engine and two engines not written
`expected` follows the language's specification and the service's documentation; our engine and two engines not
written by us are held against it. A function works off its script, one answer for each call; the last answer repeats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Answer = dict[str, Any]

LAMBDA = "arn:aws:states:::lambda:invoke"
START = "arn:aws:states:::states:startExecution"


@dataclass(frozen=True)
class Outcome:
    """How an execution ended. Causes inside `output` are normalised by `engines.normalised`."""

    status: str
    output: Any = None
    error: str | None = None


@dataclass(frozen=True)
class Case:
    """One machine, its input, its functions' scripts and the expected end."""

    name: str
    states: Mapping[str, Any]
    expected: Outcome
    input: Any = field(default_factory=dict)
    scripts: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    child: Mapping[str, Any] | None = None
    timeout_seconds: int | None = None

    @property
    def definition(self) -> dict[str, Any]:
        """Return the definition; the first state is where it starts."""
        top: dict[str, Any] = {"StartAt": next(iter(self.states)), "States": dict(self.states)}
        if self.timeout_seconds is not None:
            top["TimeoutSeconds"] = self.timeout_seconds
        return top


def returns(value: Any) -> Answer:
    """Answer with a value."""
    return {"return": value}


def raises(error: str) -> Answer:
    """Answer with an error of this name."""
    return {"raise": error}


ECHO: Answer = {"echo": True}
HANGS: Answer = {"sleep": 3, "return": "too late"}
HUGE: Answer = {"repeat": 300_000}


def ok(output: Any) -> Outcome:
    """Expect success."""
    return Outcome("SUCCEEDED", output)


def failed(error: str | None) -> Outcome:
    """Expect a failure with this error name."""
    return Outcome("FAILED", None, error)


def only(kind: str, **fields: Any) -> dict[str, Any]:
    """Return a machine of one state that ends."""
    return {"Only": {"Type": kind, **fields, **({} if kind in ("Succeed", "Fail") else {"End": True})}}


def task(function: str = "first", payload: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a Task state; it ends unless Next is given."""
    state: dict[str, Any] = {"Type": "Task", "Resource": LAMBDA, "TimeoutSeconds": 30}
    state["Parameters"] = {"FunctionName": f"${{{function}}}", "Payload": {} if payload is None else payload}
    state.update(fields)
    if "Next" not in state:
        state["End"] = True
    return state


def answer(text: str) -> dict[str, Any]:
    """Return a state that ends with this text as output."""
    return {"Type": "Pass", "Result": text, "End": True}


def choose(*rules: Mapping[str, Any], default: str | None = "No", **fields: Any) -> dict[str, Any]:
    """Return a machine that goes to Yes when a rule matches."""
    state: dict[str, Any] = {"Type": "Choice", "Choices": [{**rule, "Next": "Yes"} for rule in rules], **fields}
    states: dict[str, Any] = {"Ask": state, "Yes": answer("yes")}
    if default is not None:
        state["Default"] = default
        states[default] = answer("no")
    return states


def starts_child(**fields: Any) -> dict[str, Any]:
    """Return a startExecution Task."""
    return {"Type": "Task", "Resource": START, **fields}


CAUGHT = answer("caught")
CHILD = {"StartAt": "Hold", "States": {"Hold": {"Type": "Wait", "Seconds": 3, "End": True}}}
RETRY_ONCE_NAMED = {"ErrorEquals": ["Throttled"], "IntervalSeconds": 1, "MaxAttempts": 1, "BackoffRate": 1.0}

DATA = [
    Case("pass_gives_its_result", only("Pass", Result={"a": [1, 2.5, None, "ü"]}), ok({"a": [1, 2.5, None, "ü"]})),
    Case("pass_without_anything_gives_its_input", only("Pass"), ok({"a": 1}), {"a": 1}),
    Case("result_path_adds_a_field", only("Pass", Result=5, ResultPath="$.b"), ok({"a": 1, "b": 5}), {"a": 1}),
    Case(
        "result_path_makes_missing_objects",
        only("Pass", Result=5, ResultPath="$.b.c"),
        ok({"a": 1, "b": {"c": 5}}),
        {"a": 1},
    ),
    Case("result_path_null_keeps_the_input", only("Pass", Result=5, ResultPath=None), ok({"a": 1}), {"a": 1}),
    Case(
        "result_path_is_written_into_the_raw_input",
        only("Pass", InputPath="$.a", Result=5, ResultPath="$.r"),
        ok({"a": {"x": 1}, "r": 5}),
        {"a": {"x": 1}},
    ),
    Case(
        "parameters_mix_constants_and_paths",
        only("Pass", Parameters={"c": 1, "p.$": "$.a.b", "deep": {"q.$": "$.l[1]"}, "list": [1, {"r.$": "$.a"}]}),
        ok({"c": 1, "p": 7, "deep": {"q": 20}, "list": [1, {"r": {"b": 7}}]}),
        {"a": {"b": 7}, "l": [10, 20]},
    ),
    Case("input_path_selects", only("Pass", InputPath="$.a"), ok({"b": 1}), {"a": {"b": 1}, "c": 2}),
    Case("input_path_null_gives_an_empty_object", only("Pass", InputPath=None), ok({}), {"a": 1}),
    Case("output_path_selects", only("Pass", OutputPath="$.a"), ok([1]), {"a": [1]}),
    Case("output_path_null_gives_an_empty_object", only("Pass", OutputPath=None), ok({}), {"a": 1}),
    Case("succeed_applies_both_paths", only("Succeed", InputPath="$.a", OutputPath="$.b"), ok(3), {"a": {"b": 3}}),
    Case("quoted_fields_can_be_read", only("Pass", InputPath="$['a']['b']"), ok(4), {"a": {"b": 4}}),
    Case(
        "context_object_can_be_read",
        only(
            "Pass",
            Parameters={
                "execution.$": "$$.Execution.Name",
                "state.$": "$$.State.Name",
                "input.$": "$$.Execution.Input.a",
                "machine.$": "$$.StateMachine.Name",
            },
        ),
        ok(
            {
                "execution": "context_object_can_be_read",
                "state": "Only",
                "input": 1,
                "machine": "context_object_can_be_read",
            }
        ),
        {"a": 1},
    ),
    Case("missing_input_path_ends_the_execution", only("Pass", InputPath="$.no"), failed("States.Runtime")),
    Case("missing_output_path_ends_the_execution", only("Pass", OutputPath="$.no"), failed("States.Runtime")),
    Case(
        "missing_parameter_ends_the_execution",
        only("Pass", Parameters={"x.$": "$.no"}),
        failed("States.Runtime"),
    ),
    Case(
        "result_path_into_a_text_is_a_mismatch",
        only("Pass", Result=1, ResultPath="$.a.b"),
        failed("States.ResultPathMatchFailure"),
        {"a": "text"},
    ),
    Case("fail_gives_its_error", only("Fail", Error="NoCapacity", Cause="none left"), failed("NoCapacity")),
    Case("fail_needs_no_error", only("Fail"), failed(None)),
]

CHOICE = [
    Case("string_equals", choose({"Variable": "$.a", "StringEquals": "x"}), ok("yes"), {"a": "x"}),
    Case("default_is_taken", choose({"Variable": "$.a", "StringEquals": "x"}), ok("no"), {"a": "y"}),
    Case(
        "no_match_and_no_default",
        choose({"Variable": "$.a", "StringEquals": "x"}, default=None),
        failed("States.NoChoiceMatched"),
        {"a": "y"},
    ),
    Case(
        "first_matching_rule_wins",
        {
            "Ask": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": "$.a", "NumericGreaterThan": 1, "Next": "First"},
                    {"Variable": "$.a", "NumericGreaterThan": 0, "Next": "Second"},
                ],
            },
            "First": answer("first"),
            "Second": answer("second"),
        },
        ok("first"),
        {"a": 2},
    ),
    Case(
        "and_or_not",
        choose(
            {
                "And": [
                    {"Or": [{"Variable": "$.a", "NumericEquals": 9}, {"Variable": "$.a", "NumericEquals": 1}]},
                    {"Not": {"Variable": "$.b", "BooleanEquals": True}},
                ]
            }
        ),
        ok("yes"),
        {"a": 1, "b": False},
    ),
    Case(
        "and_stops_at_the_first_false_rule",
        choose({"And": [{"Variable": "$.no", "IsPresent": True}, {"Variable": "$.no", "StringEquals": "x"}]}),
        ok("no"),
    ),
    Case(
        "numeric_bounds_include_themselves",
        choose(
            {
                "And": [
                    {"Variable": "$.a", "NumericLessThanEquals": 5},
                    {"Variable": "$.a", "NumericGreaterThanEquals": 5},
                    {"Variable": "$.a", "NumericLessThan": 5.5},
                    {"Not": {"Variable": "$.a", "NumericGreaterThan": 5}},
                ]
            }
        ),
        ok("yes"),
        {"a": 5},
    ),
    Case(
        "numbers_by_path",
        choose(
            {
                "And": [
                    {"Variable": "$.a", "NumericLessThanPath": "$.b"},
                    {"Variable": "$.b", "NumericGreaterThanEqualsPath": "$.a"},
                    {"Variable": "$.a", "NumericEqualsPath": "$.c"},
                ]
            }
        ),
        ok("yes"),
        {"a": 1, "b": 2, "c": 1},
    ),
    Case(
        "strings_by_path",
        choose({"Variable": "$.a", "StringEqualsPath": "$.b"}),
        ok("yes"),
        {"a": "x", "b": "x"},
    ),
    Case(
        "string_matches_wildcard", choose({"Variable": "$.a", "StringMatches": "gpu-*.x"}), ok("yes"), {"a": "gpu-12.x"}
    ),
    Case("string_matches_whole_text", choose({"Variable": "$.a", "StringMatches": "gpu"}), ok("no"), {"a": "gpu-1"}),
    Case("string_matches_dot_is_a_dot", choose({"Variable": "$.a", "StringMatches": "a.b"}), ok("no"), {"a": "axb"}),
    Case(
        "string_matches_escaped_star",
        choose({"Variable": "$.a", "StringMatches": "a\\*"}),
        ok("no"),
        {"a": "ab"},
    ),
    Case("boolean_equals", choose({"Variable": "$.a", "BooleanEquals": False}), ok("yes"), {"a": False}),
    Case("a_number_is_no_boolean", choose({"Variable": "$.a", "BooleanEquals": True}), ok("no"), {"a": 1}),
    Case("a_text_is_no_number", choose({"Variable": "$.a", "NumericEquals": 1}), ok("no"), {"a": "1"}),
    Case("true_is_no_number", choose({"Variable": "$.a", "IsNumeric": True}), ok("no"), {"a": True}),
    Case("absent_field_is_not_present", choose({"Variable": "$.a", "IsPresent": False}), ok("yes")),
    Case("null_is_present", choose({"Variable": "$.a", "IsPresent": True}), ok("yes"), {"a": None}),
    Case(
        "type_tests",
        choose(
            {
                "And": [
                    {"Variable": "$.n", "IsNull": True},
                    {"Variable": "$.s", "IsNull": False},
                    {"Variable": "$.s", "IsString": True},
                    {"Variable": "$.i", "IsNumeric": True},
                    {"Variable": "$.i", "IsString": False},
                ]
            }
        ),
        ok("yes"),
        {"n": None, "s": "x", "i": 1},
    ),
    Case(
        "variable_that_leads_nowhere",
        choose({"Variable": "$.no", "StringEquals": "x"}),
        failed("States.Runtime"),
    ),
    Case(
        "choice_selects_its_input",
        choose({"Variable": "$.b", "StringEquals": "x"}, InputPath="$.a"),
        ok("yes"),
        {"a": {"b": "x"}},
    ),
    Case(
        "choice_may_ask_the_context",
        choose({"Variable": "$$.Execution.Name", "StringEquals": "choice_may_ask_the_context"}),
        ok("yes"),
    ),
]

WAIT = [
    Case("wait_passes_its_input", only("Wait", Seconds=1), ok({"a": 1}), {"a": 1}),
    Case("wait_reads_its_seconds", only("Wait", SecondsPath="$.s", OutputPath="$.s"), ok(1), {"s": 1}),
    Case("wait_of_no_seconds", only("Wait", SecondsPath="$.s"), ok({"s": 0}), {"s": 0}),
    Case("wait_with_seconds_that_lead_nowhere", only("Wait", SecondsPath="$.no"), failed("States.Runtime")),
    Case("wait_with_seconds_that_are_text", only("Wait", SecondsPath="$.s"), failed("States.Runtime"), {"s": "1"}),
    Case("wait_with_negative_seconds", only("Wait", SecondsPath="$.s"), failed("States.Runtime"), {"s": -1}),
]

TASK = [
    Case(
        "task_wraps_the_answer",
        {"Only": task(ResultSelector={"p.$": "$.Payload", "s.$": "$.StatusCode", "v.$": "$.ExecutedVersion"})},
        ok({"p": {"x": 1}, "s": 200, "v": "$LATEST"}),
        scripts={"first": [returns({"x": 1})]},
    ),
    Case(
        "task_sends_its_payload",
        {"Only": task(payload={"a.$": "$.a", "c": [1], "n.$": "$$.State.Name"}, OutputPath="$.Payload")},
        ok({"a": {"b": 2}, "c": [1], "n": "Only"}),
        {"a": {"b": 2}},
        scripts={"first": [ECHO]},
    ),
    Case(
        "task_sends_the_whole_input",
        {
            "Only": task(
                Parameters={"FunctionName": "${first}", "Payload.$": "$"}, ResultSelector={"got.$": "$.Payload"}
            )
        },
        ok({"got": {"a": 1}}),
        {"a": 1},
        scripts={"first": [ECHO]},
    ),
    Case(
        "task_result_path_keeps_the_input",
        {"Only": task(ResultSelector={"x.$": "$.Payload.x"}, ResultPath="$.r")},
        ok({"a": 1, "r": {"x": 1}}),
        {"a": 1},
        scripts={"first": [returns({"x": 1})]},
    ),
    Case(
        "task_result_path_null_throws_the_answer_away",
        {"Only": task(ResultPath=None)},
        ok({"a": 1}),
        {"a": 1},
        scripts={"first": [returns("gone")]},
    ),
    Case(
        "answers_of_every_type",
        {
            "A": task(ResultSelector={"v.$": "$.Payload"}, ResultPath="$.a", Next="B"),
            "B": task(ResultSelector={"v.$": "$.Payload"}, ResultPath="$.b", Next="C"),
            "C": task(ResultSelector={"v.$": "$.Payload"}, ResultPath="$.c"),
        },
        ok({"a": {"v": [1, "x"]}, "b": {"v": True}, "c": {"v": 1.5}}),
        scripts={"first": [returns([1, "x"]), returns(True), returns(1.5)]},
    ),
    Case(
        "uncaught_error_keeps_its_name",
        {"Only": task()},
        failed("ProviderRejected"),
        scripts={"first": [raises("ProviderRejected")]},
    ),
    Case(
        "retry_by_name",
        {"Only": task(Retry=[RETRY_ONCE_NAMED], ResultSelector={"p.$": "$.Payload"})},
        ok({"p": "second time"}),
        scripts={"first": [raises("Throttled"), returns("second time")]},
    ),
    Case(
        "retry_of_another_name_does_not_apply",
        {"Only": task(Retry=[RETRY_ONCE_NAMED])},
        failed("Rejected"),
        scripts={"first": [raises("Rejected"), returns("second time")]},
    ),
    Case(
        "retries_run_out",
        {"Only": task(Retry=[RETRY_ONCE_NAMED])},
        failed("Throttled"),
        scripts={"first": [raises("Throttled"), raises("Throttled"), returns("third time")]},
    ),
    Case(
        "each_retry_entry_counts_alone",
        {
            "Only": task(
                Retry=[RETRY_ONCE_NAMED, {**RETRY_ONCE_NAMED, "ErrorEquals": ["Unavailable"]}],
                ResultSelector={"p.$": "$.Payload"},
            )
        },
        ok({"p": "third time"}),
        scripts={"first": [raises("Throttled"), raises("Unavailable"), returns("third time")]},
    ),
    Case(
        "first_matching_retry_entry_decides",
        {
            "Only": task(
                Retry=[
                    {"ErrorEquals": ["Rejected"], "MaxAttempts": 0},
                    {**RETRY_ONCE_NAMED, "ErrorEquals": ["States.ALL"]},
                ]
            )
        },
        failed("Rejected"),
        scripts={"first": [raises("Rejected"), returns("second time")]},
    ),
    Case(
        "retry_count_is_told",
        {
            "Only": task(
                payload={"n.$": "$$.State.RetryCount"}, Retry=[RETRY_ONCE_NAMED], ResultSelector={"p.$": "$.Payload"}
            )
        },
        ok({"p": {"n": 1}}),
        scripts={"first": [raises("Throttled"), ECHO]},
    ),
    Case(
        "retries_start_anew_when_the_state_is_entered_again",
        {
            "Call": task(Retry=[RETRY_ONCE_NAMED], ResultSelector={"p.$": "$.Payload"}, Next="Again"),
            "Again": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.p", "StringEquals": "again", "Next": "Call"}],
                "Default": "Done",
            },
            "Done": {"Type": "Succeed"},
        },
        ok({"p": "done"}),
        scripts={"first": [raises("Throttled"), returns("again"), raises("Throttled"), returns("done")]},
    ),
    Case(
        "catch_by_name_keeps_the_input",
        {
            "Call": task(Catch=[{"ErrorEquals": ["Rejected"], "ResultPath": "$.e", "Next": "End"}]),
            "End": {"Type": "Succeed"},
        },
        ok({"a": 1, "e": {"Error": "Rejected", "Cause": {"errorMessage": "scripted", "errorType": "Rejected"}}}),
        {"a": 1},
        scripts={"first": [raises("Rejected")]},
    ),
    Case(
        "catch_without_result_path_replaces_the_input",
        {
            "Call": task(Catch=[{"ErrorEquals": ["States.ALL"], "Next": "End"}]),
            "End": {"Type": "Succeed", "OutputPath": "$.Error"},
        },
        ok("Rejected"),
        {"a": 1},
        scripts={"first": [raises("Rejected")]},
    ),
    Case(
        "catch_result_path_null_keeps_only_the_input",
        {
            "Call": task(Catch=[{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "End"}]),
            "End": {"Type": "Succeed"},
        },
        ok({"a": 1}),
        {"a": 1},
        scripts={"first": [raises("Rejected")]},
    ),
    Case(
        "catch_passes_by_output_path",
        {
            "Call": task(
                OutputPath="$.Payload", Catch=[{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "End"}]
            ),
            "End": {"Type": "Succeed"},
        },
        ok({"a": 1}),
        {"a": 1},
        scripts={"first": [raises("Rejected")]},
    ),
    Case(
        "first_matching_catch_wins",
        {
            "Call": task(
                Catch=[
                    {"ErrorEquals": ["Other"], "Next": "A"},
                    {"ErrorEquals": ["Rejected"], "Next": "B"},
                    {"ErrorEquals": ["States.ALL"], "Next": "C"},
                ]
            ),
            "A": answer("a"),
            "B": answer("b"),
            "C": answer("c"),
        },
        ok("b"),
        scripts={"first": [raises("Rejected")]},
    ),
    Case(
        "catch_comes_after_the_retries",
        {
            "Call": task(Retry=[RETRY_ONCE_NAMED], Catch=[{"ErrorEquals": ["Throttled"], "Next": "Caught"}]),
            "Caught": CAUGHT,
        },
        ok("caught"),
        scripts={"first": [raises("Throttled"), raises("Throttled"), returns("third time")]},
    ),
    Case(
        "task_failed_catches_a_function_error",
        {
            "Call": task(Catch=[{"ErrorEquals": ["States.TaskFailed"], "Next": "Caught"}]),
            "Caught": CAUGHT,
        },
        ok("caught"),
        scripts={"first": [raises("Rejected")]},
    ),
    Case(
        "task_timeout_has_its_own_name",
        {
            "Call": task(TimeoutSeconds=1, Catch=[{"ErrorEquals": ["States.Timeout"], "Next": "Caught"}]),
            "Caught": CAUGHT,
        },
        ok("caught"),
        scripts={"first": [HANGS]},
    ),
    Case(
        "task_failed_does_not_catch_a_timeout",
        {
            "Call": task(TimeoutSeconds=1, Catch=[{"ErrorEquals": ["States.TaskFailed"], "Next": "Caught"}]),
            "Caught": CAUGHT,
        },
        failed("States.Timeout"),
        scripts={"first": [HANGS]},
    ),
    Case(
        "catch_all_does_not_catch_a_runtime_error",
        {
            "Call": task(payload={"x.$": "$.no"}, Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]),
            "Caught": CAUGHT,
        },
        failed("States.Runtime"),
        scripts={"first": [ECHO]},
    ),
    Case(
        "catch_all_does_not_catch_a_huge_answer",
        {
            "Call": task(OutputPath="$.StatusCode", Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]),
            "Caught": CAUGHT,
        },
        failed("States.DataLimitExceeded"),
        scripts={"first": [HUGE]},
    ),
    Case(
        "catch_takes_a_result_path_mismatch",
        {
            "Call": task(
                ResultPath="$.a.b", Catch=[{"ErrorEquals": ["States.ResultPathMatchFailure"], "Next": "Caught"}]
            ),
            "Caught": CAUGHT,
        },
        ok("caught"),
        {"a": "text"},
        scripts={"first": [ECHO]},
    ),
    Case(
        "result_selector_that_leads_nowhere",
        {"Only": task(ResultSelector={"x.$": "$.Payload.no"})},
        failed("States.Runtime"),
        scripts={"first": [returns({"x": 1})]},
    ),
    Case(
        "poll_loop",
        {
            "Create": task("first", ResultSelector={"w.$": "$.Payload.wait_seconds"}, Next="WaitBeforePoll"),
            "WaitBeforePoll": {"Type": "Wait", "SecondsPath": "$.w", "Next": "Poll"},
            "Poll": task(
                "second",
                ResultSelector={"o.$": "$.Payload.outcome", "w.$": "$.Payload.wait_seconds"},
                Next="IsReady",
            ),
            "IsReady": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": "$.o", "StringEquals": "waiting", "Next": "WaitBeforePoll"},
                    {"Variable": "$.o", "StringEquals": "ready", "Next": "Done"},
                ],
            },
            "Done": {"Type": "Succeed"},
        },
        ok({"o": "ready", "w": 9}),
        scripts={
            "first": [returns({"wait_seconds": 0})],
            "second": [
                returns({"outcome": "waiting", "wait_seconds": 1}),
                returns({"outcome": "waiting", "wait_seconds": 0}),
                returns({"outcome": "ready", "wait_seconds": 9}),
            ],
        },
    ),
    Case(
        "whole_execution_times_out",
        {
            "Hold": {"Type": "Wait", "Seconds": 3, "Next": "Late"},
            "Late": answer("late"),
        },
        Outcome("TIMED_OUT"),
        timeout_seconds=1,
    ),
]

START_EXECUTION = [
    Case(
        "start_execution_answers_at_once",
        {
            "Start": starts_child(
                Parameters={"StateMachineArn": "${child}", "Name.$": "$.name", "Input": {"a.$": "$.name"}},
                ResultPath="$.started",
                Next="Named",
            ),
            "Named": {
                "Type": "Choice",
                "Choices": [
                    {
                        "And": [
                            {"Variable": "$.started.ExecutionArn", "StringMatches": "arn:aws:states:*:*:child-1"},
                            {"Variable": "$.started.StartDate", "IsPresent": True},
                        ],
                        "Next": "Yes",
                    }
                ],
                "Default": "No",
            },
            "Yes": answer("yes"),
            "No": answer("no"),
        },
        ok("yes"),
        {"name": "child-1"},
        child=CHILD,
    ),
    Case(
        "start_execution_of_a_taken_name",
        {
            "Start": starts_child(
                Parameters={"StateMachineArn": "${child}", "Name": "taken", "Input": {"a": 1}}, Next="Again"
            ),
            "Again": starts_child(
                Parameters={"StateMachineArn": "${child}", "Name": "taken", "Input": {"a": 2}},
                Catch=[{"ErrorEquals": ["StepFunctions.ExecutionAlreadyExistsException"], "Next": "Caught"}],
                End=True,
            ),
            "Caught": CAUGHT,
        },
        ok("caught"),
        child=CHILD,
    ),
    Case(
        "start_execution_twice_with_the_same_input",
        {
            "Start": starts_child(
                Parameters={"StateMachineArn": "${child}", "Name": "same", "Input": {"a": 1}},
                ResultPath="$.one",
                Next="Again",
            ),
            "Again": starts_child(
                Parameters={"StateMachineArn": "${child}", "Name": "same", "Input": {"a": 1}},
                ResultPath="$.two",
                Next="SameOne",
            ),
            "SameOne": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": "$.one.ExecutionArn", "StringEqualsPath": "$.two.ExecutionArn", "Next": "Yes"}
                ],
                "Default": "No",
            },
            "Yes": answer("yes"),
            "No": answer("no"),
        },
        ok("yes"),
        child=CHILD,
    ),
]

CASES = [*DATA, *CHOICE, *WAIT, *TASK, *START_EXECUTION]
