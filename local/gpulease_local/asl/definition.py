"""Reads a state machine definition and refuses everything outside the supported subset.

Why refuse: an engine that passes over a field it does not know runs something else than the service will. Every
refusal names the file, the state and the field. The subset is what three engines agree on: Task (lambda:invoke,
states:startExecution), Choice, Wait, Pass, Succeed, Fail, JSONPath, Retry and Catch.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from gpulease_local.asl.choice import RuleRefused, compile_rule
from gpulease_local.asl.errors import ALL, UNCATCHABLE, DefinitionRefused
from gpulease_local.asl.execution import NAME_LIMIT
from gpulease_local.asl.interpreter import MAX_SECONDS
from gpulease_local.asl.model import Choice, Fail, Pass, Service, State, StateMachine, Succeed, Task, Wait
from gpulease_local.asl.paths import Reader, ReferencePath, compile_template, parse_path
from gpulease_local.asl.retry import Catcher, Retrier

_TOP = {"Comment", "StartAt", "States", "TimeoutSeconds", "Version", "QueryLanguage"}
_COMMON = {"Type", "Comment", "InputPath", "OutputPath"}
_FLOW = {"Next", "End"}
_FIELDS: dict[str, set[str]] = {
    "Task": _COMMON
    | _FLOW
    | {"Resource", "Parameters", "ResultSelector", "ResultPath", "Retry", "Catch", "TimeoutSeconds"},
    "Choice": _COMMON | {"Choices", "Default"},
    "Wait": _COMMON | _FLOW | {"Seconds", "SecondsPath"},
    "Pass": _COMMON | _FLOW | {"Result", "Parameters", "ResultPath"},
    "Succeed": _COMMON,
    "Fail": {"Type", "Comment", "Error", "Cause"},
}
_RETRY_FIELDS = {
    "Comment",
    "ErrorEquals",
    "IntervalSeconds",
    "BackoffRate",
    "MaxAttempts",
    "MaxDelaySeconds",
    "JitterStrategy",
}
_PARAMETERS = {
    Service.LAMBDA_INVOKE: {"FunctionName", "Payload", "Payload.$"},
    Service.START_EXECUTION: {"StateMachineArn", "Name", "Name.$", "Input", "Input.$"},
}
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_ROOT = parse_path("$")


def load_definition(
    source: Path | Mapping[str, Any], *, name: str, substitutions: Mapping[str, str] | None = None
) -> StateMachine:
    """Read, fill in `${Name}`, check and compile a definition; DefinitionRefused names what is wrong."""
    file = str(source) if isinstance(source, Path) else f"<{name}>"
    raw: Any = _read(source, file) if isinstance(source, Path) else json.loads(json.dumps(source))
    if not isinstance(raw, dict):
        raise DefinitionRefused(file, "", "", "a definition is a JSON object")
    return _Loader(file, name, substitutions or {}).load(raw)


def _read(path: Path, file: str) -> Any:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise DefinitionRefused(file, "", key, "is given twice in one object")
            found[key] = value
        return found

    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=no_duplicates)
    except json.JSONDecodeError as broken:
        raise DefinitionRefused(file, "", "", f"not JSON: {broken}") from broken


class _Loader:
    """One pass over one definition; knows file and state so that every refusal can name them."""

    def __init__(self, file: str, name: str, substitutions: Mapping[str, str]) -> None:
        self._file = file
        self._name = name
        self._substitutions = substitutions
        self._state = ""

    def load(self, raw: dict[str, Any]) -> StateMachine:
        self._known(raw, _TOP, "")
        if not 1 <= len(self._name) <= NAME_LIMIT:
            self._refuse("", f"the machine's name must have 1 to {NAME_LIMIT} characters")
        if raw.get("QueryLanguage", "JSONPath") != "JSONPath":
            self._refuse("QueryLanguage", "only JSONPath is supported")
        if raw.get("Version", "1.0") != "1.0":
            self._refuse("Version", "only 1.0 exists")
        states = raw.get("States")
        if not isinstance(states, dict) or not states:
            self._refuse("States", "must be an object with at least one state")
        start_at = self._text(raw, "StartAt")
        if start_at not in states:
            self._refuse("StartAt", f"there is no state {start_at!r}")
        compiled = {name: self._load_state(name, state) for name, state in states.items()}
        self._check_reachable(start_at, compiled)
        self._state = ""
        timeout = self._seconds(raw, "TimeoutSeconds", at_least=1)
        return StateMachine(self._name, start_at, compiled, timeout, self._file)

    # One method for each state type ------------------------------------------------------------------

    def _load_state(self, name: str, raw: Any) -> State:
        self._state = name
        if not 1 <= len(name) <= NAME_LIMIT:
            self._refuse("", f"a state's name must have 1 to {NAME_LIMIT} characters")
        if not isinstance(raw, dict):
            self._refuse("", "a state must be an object")
        kind = raw.get("Type")
        if not isinstance(kind, str) or kind not in _FIELDS:
            self._refuse("Type", f"{kind!r} is not one of {', '.join(_FIELDS)}")
        self._known(raw, _FIELDS[kind], "")
        filled = {key: self._fill(value, key) for key, value in raw.items()}
        build: Callable[[dict[str, Any], dict[str, Any]], State] = getattr(self, f"_{kind.lower()}")
        common: dict[str, Any] = {
            "name": name,
            "input_path": self._path(filled, "InputPath"),
            "output_path": self._path(filled, "OutputPath"),
        }
        if _FIELDS[kind] >= _FLOW:
            common["next"] = self._next(filled)
        return build(filled, common)

    def _task(self, raw: dict[str, Any], common: dict[str, Any]) -> Task:
        resource = self._text(raw, "Resource")
        if resource not in {service.value for service in Service}:
            self._refuse("Resource", f"{resource} is not one of {', '.join(s.value for s in Service)}")
        service = Service(resource)
        target, payload, execution_name = self._parameters(raw, service)
        selector = self._template(raw, "ResultSelector") if "ResultSelector" in raw else None
        retry = tuple(
            self._retrier(entry, f"Retry[{index}]") for index, entry in enumerate(self._entries(raw, "Retry"))
        )
        catch = tuple(
            self._catcher(entry, f"Catch[{index}]") for index, entry in enumerate(self._entries(raw, "Catch"))
        )
        self._check_all_is_last([entry.error_equals for entry in retry], "Retry")
        self._check_all_is_last([entry.error_equals for entry in catch], "Catch")
        return Task(
            **common,
            service=service,
            target=target,
            payload=payload,
            execution_name=execution_name,
            result_selector=selector,
            result_path=self._result_path(raw, ""),
            retry=retry,
            catch=catch,
            timeout_seconds=self._seconds(raw, "TimeoutSeconds", at_least=1),
        )

    def _choice(self, raw: dict[str, Any], common: dict[str, Any]) -> Choice:
        entries = raw.get("Choices")
        if not isinstance(entries, list) or not entries:
            self._refuse("Choices", "must be a list with at least one rule")
        rules = []
        for index, entry in enumerate(entries):
            where = f"Choices[{index}]"
            try:
                rule = compile_rule(entry, where, allowed=frozenset({"Next"}))
            except RuleRefused as refused:
                self._refuse(refused.field, str(refused))
            rules.append((rule, self._text(entry, "Next", where)))
        default = self._text(raw, "Default") if "Default" in raw else None
        return Choice(**common, rules=tuple(rules), default=default)

    def _wait(self, raw: dict[str, Any], common: dict[str, Any]) -> Wait:
        if ("Seconds" in raw) == ("SecondsPath" in raw):
            self._refuse("Seconds", "a Wait has either Seconds or SecondsPath")
        path = self._path(raw, "SecondsPath") if "SecondsPath" in raw else None
        if path is None and "SecondsPath" in raw:
            self._refuse("SecondsPath", "must be a path")
        return Wait(**common, seconds=self._seconds(raw, "Seconds", at_least=0), seconds_path=path)

    def _pass(self, raw: dict[str, Any], common: dict[str, Any]) -> Pass:
        result: Reader | None = None
        if "Result" in raw and "Parameters" in raw:
            self._refuse("Parameters", "Result and Parameters together are ambiguous")
        if "Result" in raw:
            value = raw["Result"]
            result = lambda data, scope: value  # noqa: E731
        elif "Parameters" in raw:
            result = self._template(raw, "Parameters")
        return Pass(**common, result=result, result_path=self._result_path(raw, ""))

    def _succeed(self, raw: dict[str, Any], common: dict[str, Any]) -> Succeed:
        return Succeed(**common)

    def _fail(self, raw: dict[str, Any], common: dict[str, Any]) -> Fail:
        error = self._text(raw, "Error") if "Error" in raw else None
        cause = self._text(raw, "Cause") if "Cause" in raw else None
        return Fail(**common, error=error, cause=cause)

    # Parts of a state --------------------------------------------------------------------------------

    def _parameters(self, raw: dict[str, Any], service: Service) -> tuple[str, Reader, Reader | None]:
        parameters = raw.get("Parameters")
        if not isinstance(parameters, dict):
            self._refuse("Parameters", f"{service.value} needs Parameters")
        self._known(parameters, _PARAMETERS[service], "Parameters.")
        if service is Service.LAMBDA_INVOKE:
            target = self._text(parameters, "FunctionName", "Parameters")
            return target, self._parameter(parameters, "Payload"), None
        target = self._text(parameters, "StateMachineArn", "Parameters").rsplit(":", 1)[-1]
        return target, self._parameter(parameters, "Input"), self._parameter(parameters, "Name")

    def _parameter(self, parameters: dict[str, Any], name: str) -> Reader:
        given = [key for key in (name, f"{name}.$") if key in parameters]
        if len(given) != 1:
            self._refuse(f"Parameters.{name}", f"exactly one of {name} and {name}.$ is needed")
        key = given[0]
        read = self._compile({key: parameters[key]}, f"Parameters.{key}")
        return lambda data, scope: read(data, scope)[name]

    def _retrier(self, raw: Any, where: str) -> Retrier:
        errors = self._error_equals(raw, where, _RETRY_FIELDS)
        rate = raw.get("BackoffRate", 2.0)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or rate < 1.0:
            self._refuse(f"{where}.BackoffRate", "must be a number, 1.0 or more")
        jitter = raw.get("JitterStrategy", "NONE")
        if jitter not in ("FULL", "NONE"):
            self._refuse(f"{where}.JitterStrategy", "must be FULL or NONE")
        interval = self._seconds(raw, "IntervalSeconds", at_least=1, where=where)
        attempts = self._seconds(raw, "MaxAttempts", at_least=0, where=where)
        limit = self._seconds(raw, "MaxDelaySeconds", at_least=1, where=where)
        if limit is not None and limit <= (1 if interval is None else interval):
            self._refuse(f"{where}.MaxDelaySeconds", "must be greater than IntervalSeconds")
        return Retrier(
            errors,
            interval_seconds=1 if interval is None else interval,
            backoff_rate=float(rate),
            max_attempts=3 if attempts is None else attempts,
            max_delay_seconds=limit,
            full_jitter=jitter == "FULL",
        )

    def _catcher(self, raw: Any, where: str) -> Catcher:
        errors = self._error_equals(raw, where, {"Comment", "ErrorEquals", "ResultPath", "Next"})
        return Catcher(errors, self._text(raw, "Next", where), self._result_path(raw, where))

    def _error_equals(self, raw: Any, where: str, known: set[str]) -> tuple[str, ...]:
        if not isinstance(raw, dict):
            self._refuse(where, "must be an object")
        self._known(raw, known, f"{where}.")
        errors = raw.get("ErrorEquals")
        field = f"{where}.ErrorEquals"
        if not isinstance(errors, list) or not errors or not all(isinstance(e, str) and e for e in errors):
            self._refuse(field, "must be a list of error names")
        for error in errors:
            if error in UNCATCHABLE:
                self._refuse(field, f"{error} can be neither retried nor caught")
        if ALL in errors and len(errors) > 1:
            self._refuse(field, f"{ALL} must stand alone")
        return tuple(errors)

    def _check_all_is_last(self, entries: list[tuple[str, ...]], field: str) -> None:
        for index, errors in enumerate(entries[:-1]):
            if ALL in errors:
                self._refuse(f"{field}[{index}].ErrorEquals", f"{ALL} must be in the last entry")

    def _check_reachable(self, start_at: str, states: Mapping[str, State]) -> None:
        seen: set[str] = set()
        pending = [start_at]
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            self._state = name
            for field, target in _targets(states[name]):
                if target not in states:
                    self._refuse(field, f"there is no state {target!r}")
                pending.append(target)
        for name in states:
            if name not in seen:
                self._state = name
                self._refuse("", "cannot be reached from StartAt")

    # Fields ------------------------------------------------------------------------------------------

    def _refuse(self, field: str, why: str) -> NoReturn:
        raise DefinitionRefused(self._file, self._state, field, why)

    def _known(self, raw: Mapping[str, Any], known: set[str], prefix: str) -> None:
        for key in raw:
            if key not in known:
                self._refuse(f"{prefix}{key}", "this field is not supported here")

    def _text(self, raw: Mapping[str, Any], field: str, where: str = "") -> str:
        value = raw.get(field)
        if not isinstance(value, str) or not value:
            self._refuse(f"{where}.{field}" if where else field, "must be a text and not empty")
        return value

    def _next(self, raw: Mapping[str, Any]) -> str | None:
        if "End" in raw:
            if raw["End"] is not True:
                self._refuse("End", "must be true or absent")
            if "Next" in raw:
                self._refuse("Next", "a state has either Next or End")
            return None
        return self._text(raw, "Next")

    def _seconds(self, raw: Mapping[str, Any], field: str, *, at_least: int, where: str = "") -> int | None:
        if field not in raw:
            return None
        value = raw[field]
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= MAX_SECONDS:
            name = f"{where}.{field}" if where else field
            self._refuse(name, f"must be a whole number from {at_least} to {MAX_SECONDS}")
        return value

    def _entries(self, raw: Mapping[str, Any], field: str) -> list[Any]:
        value = raw.get(field, [])
        if not isinstance(value, list):
            self._refuse(field, "must be a list")
        return value

    def _path(self, raw: Mapping[str, Any], field: str) -> ReferencePath | None:
        value = raw.get(field, "$")
        if value is None:
            return None
        if not isinstance(value, str):
            self._refuse(field, "must be a path or null")
        try:
            return _ROOT if value == "$" else parse_path(value)
        except ValueError as refused:
            self._refuse(field, str(refused))

    def _result_path(self, raw: Mapping[str, Any], where: str) -> ReferencePath | None:
        path = self._path(raw, "ResultPath")
        if path is not None and (path.of_context or any(isinstance(step, int) for step in path.steps)):
            field = f"{where}.ResultPath" if where else "ResultPath"
            self._refuse(field, "must name a place in the input, without list positions")
        return path

    def _template(self, raw: Mapping[str, Any], field: str) -> Reader:
        if not isinstance(raw[field], dict):
            self._refuse(field, "must be an object")
        return self._compile(raw[field], field)

    def _compile(self, template: Any, field: str) -> Reader:
        try:
            return compile_template(template)
        except ValueError as refused:
            self._refuse(field, str(refused))

    def _fill(self, value: Any, field: str) -> Any:
        if isinstance(value, dict):
            return {key: self._fill(item, f"{field}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self._fill(item, f"{field}[{index}]") for index, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value

        def known(match: re.Match[str]) -> str:
            if match[1] not in self._substitutions:
                self._refuse(field, f"there is no substitution for {match[0]}")
            return self._substitutions[match[1]]

        return _PLACEHOLDER.sub(known, value)


def _targets(state: State) -> Iterable[tuple[str, str]]:
    """Yield (field, target) for every way out of a state."""
    if state.next is not None:
        yield "Next", state.next
    if isinstance(state, Choice):
        for index, (_, target) in enumerate(state.rules):
            yield f"Choices[{index}].Next", target
        if state.default is not None:
            yield "Default", state.default
    if isinstance(state, Task):
        for index, catcher in enumerate(state.catch):
            yield f"Catch[{index}].Next", catcher.next
