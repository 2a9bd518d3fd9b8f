"""Reads `template.yaml`, so that one computer runs the very stack that is deployed.

Invariants: what is read is frozen and complete; a value that cannot be resolved here (an intrinsic that needs the
service, a condition) is refused with its place in the file where it matters, and left alone where nobody asks.
References resolve to names of this computer: a function to its logical id, a state machine to the stem of its
definition file, anything else to its logical id.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FUNCTION = "AWS::Serverless::Function"
MACHINE = "AWS::Serverless::StateMachine"
SCHEDULE = "AWS::Scheduler::Schedule"
API_ROUTE = "AWS::ApiGatewayV2::Route"
API_INTEGRATION = "AWS::ApiGatewayV2::Integration"

DEFAULT_TIMEOUT_SECONDS = 3.0  # https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html
_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
_SUBSTITUTE = re.compile(r"\$\{([^!}][^}]*)\}")
_PSEUDO = {
    "AWS::AccountId": "000000000000",
    "AWS::Partition": "aws",
    "AWS::Region": "local",
    "AWS::StackId": "arn:aws:cloudformation:local:000000000000:stack/gpulease-local/local-1",
    "AWS::StackName": "gpulease-local",
    "AWS::URLSuffix": "localhost",
}


class TemplateRefused(Exception):
    """The template holds something that one computer cannot do; says where and what."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function. `folder` holds its code, `handler` is `module.attribute` in it."""

    name: str
    folder: Path
    handler: str
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """One state machine; `name` is the stem of its definition file (`provision.asl.json` → `provision`)."""

    name: str
    logical_id: str
    definition: Path
    substitutions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """Call `function` with `payload` every `every_seconds`."""

    name: str
    function: str
    every_seconds: float
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One route of the HTTP API: `key` is `$default` or `METHOD /path`."""

    key: str
    function: str


@dataclass(frozen=True, slots=True)
class Template:
    """What one computer needs of the stack."""

    functions: tuple[FunctionSpec, ...]
    machines: tuple[MachineSpec, ...]
    schedules: tuple[ScheduleSpec, ...]
    routes: tuple[RouteSpec, ...]

    def function(self, name: str) -> FunctionSpec:
        """The function of that logical id. Raises TemplateRefused."""
        for function in self.functions:
            if function.name == name:
                return function
        raise TemplateRefused(f"the template has no function {name}")


def read_template(path: Path) -> Template:
    """Read a SAM template. Raises TemplateRefused with the place of what is wrong or not understood."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise TemplateRefused(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise TemplateRefused(f"{path}: not YAML: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("Resources"), dict):
        raise TemplateRefused(f"{path}: has no Resources")
    return _Reader(path, document).read()


@dataclass(frozen=True, slots=True)
class _Tag:
    """A short form (`!Ref x`) or a long one (`Fn::Sub: x`), not yet resolved."""

    name: str
    value: Any


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags."""


def _tagged(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> _Tag:
    if isinstance(node, yaml.ScalarNode):
        return _Tag(suffix, loader.construct_scalar(node))
    if isinstance(node, yaml.SequenceNode):
        return _Tag(suffix, loader.construct_sequence(node, deep=True))
    if isinstance(node, yaml.MappingNode):
        return _Tag(suffix, loader.construct_mapping(node, deep=True))
    raise TemplateRefused(f"!{suffix}: a kind of node that is not understood")


_Loader.add_multi_constructor("!", _tagged)


class _Reader:
    """One pass over one document; knows where it is, so that every refusal can say so."""

    def __init__(self, path: Path, document: Mapping[str, Any]) -> None:
        self._path = path
        self._resources: Mapping[str, Any] = document["Resources"]
        self._parameters: Mapping[str, Any] = document.get("Parameters") or {}
        self._globals: Mapping[str, Any] = (document.get("Globals") or {}).get("Function") or {}

    def read(self) -> Template:
        functions = tuple(self._function(name, body) for name, body in self._of_type(FUNCTION))
        known = {function.name for function in functions}
        schedules = [self._schedule(name, body, known) for name, body in self._of_type(SCHEDULE) if _enabled(body)]
        for name, body in self._of_type(FUNCTION):
            schedules += self._events(name, body)
        return Template(
            functions=functions,
            machines=tuple(self._machine(name, body) for name, body in self._of_type(MACHINE)),
            schedules=tuple(schedules),
            routes=tuple(self._route(name, body, known) for name, body in self._of_type(API_ROUTE)),
        )

    # --- resources ---

    def _of_type(self, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, resource in self._resources.items():
            if not isinstance(resource, dict) or resource.get("Type") != kind:
                continue
            if "Condition" in resource:
                raise self._refusal(f"{name}.Condition", "conditions are not evaluated on one computer")
            yield name, resource.get("Properties") or {}

    def _function(self, name: str, body: Mapping[str, Any]) -> FunctionSpec:
        def given(key: str, default: Any = None) -> Any:
            return self._resolve(body.get(key, self._globals.get(key, default)), f"{name}.{key}")

        folder, handler = given("CodeUri"), given("Handler")
        if not isinstance(folder, str) or not isinstance(handler, str) or "." not in handler:
            raise self._refusal(name, "needs CodeUri (a folder) and Handler (module.attribute)")
        variables: dict[str, str] = {}
        for source, where in ((self._globals, "Globals.Function"), (body, name)):
            for key, value in ((source.get("Environment") or {}).get("Variables") or {}).items():
                variables[key] = str(self._resolve(value, f"{where}.Environment.{key}"))
        timeout = float(given("Timeout", DEFAULT_TIMEOUT_SECONDS))
        return FunctionSpec(name, self._file(folder), handler, timeout, variables)

    def _machine(self, name: str, body: Mapping[str, Any]) -> MachineSpec:
        uri = body.get("DefinitionUri")
        if not isinstance(uri, str):
            raise self._refusal(f"{name}.DefinitionUri", "must be the path of a file")
        substitutions = {
            key: str(self._resolve(value, f"{name}.DefinitionSubstitutions.{key}"))
            for key, value in (body.get("DefinitionSubstitutions") or {}).items()
        }
        return MachineSpec(_stem(uri), name, self._file(uri), substitutions)

    def _schedule(self, name: str, body: Mapping[str, Any], known: set[str]) -> ScheduleSpec:
        target = body.get("Target") or {}
        function = self._resolve(target.get("Arn"), f"{name}.Target.Arn")
        if function not in known:
            raise self._refusal(f"{name}.Target.Arn", f"{function!r} is no function of this template")
        return self._timed(name, function, body.get("ScheduleExpression"), target.get("Input"))

    def _events(self, function: str, body: Mapping[str, Any]) -> Iterator[ScheduleSpec]:
        for event, definition in (body.get("Events") or {}).items():
            kind, properties = definition.get("Type"), definition.get("Properties") or {}
            where = f"{function}.Events.{event}"
            if kind not in ("Schedule", "ScheduleV2"):
                raise self._refusal(where, f"{kind} events have no source on one computer")
            expression = properties.get("ScheduleExpression", properties.get("Schedule"))
            if _enabled(properties):
                yield self._timed(where, function, expression, properties.get("Input"))

    def _timed(self, where: str, function: str, expression: Any, payload: Any) -> ScheduleSpec:
        text = str(self._resolve(expression, f"{where}.ScheduleExpression"))
        rate = _RATE.fullmatch(text.strip())
        if rate is None or int(rate[1]) == 0:
            raise self._refusal(where, f"{text!r} is not understood: use rate(<n> minutes|hours|days)")
        try:
            given = json.loads(str(self._resolve(payload, f"{where}.Input"))) if payload is not None else {}
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise self._refusal(f"{where}.Input", "is not a JSON object")
        return ScheduleSpec(where, function, float(int(rate[1]) * _UNIT_SECONDS[rate[2]]), given)

    def _route(self, name: str, body: Mapping[str, Any], known: set[str]) -> RouteSpec:
        key = self._resolve(body.get("RouteKey"), f"{name}.RouteKey")
        target = str(self._resolve(body.get("Target"), f"{name}.Target"))
        integration = self._resources.get(target.removeprefix("integrations/"))
        if not isinstance(integration, dict) or integration.get("Type") != API_INTEGRATION:
            raise self._refusal(f"{name}.Target", f"{target!r} names no integration of this template")
        properties = integration.get("Properties") or {}
        if str(properties.get("PayloadFormatVersion")) != "2.0":
            raise self._refusal(name, "only integrations with PayloadFormatVersion 2.0 are served")
        uri = str(self._resolve(properties.get("IntegrationUri"), f"{name}: IntegrationUri"))
        function = uri.rpartition("functions/")[2].removesuffix("/invocations")
        if function not in known:
            raise self._refusal(name, f"its integration calls {uri!r}, which is no function of this template")
        return RouteSpec(str(key), function)

    # --- values ---

    def _file(self, relative: str) -> Path:
        return (self._path.parent / relative).resolve()

    def _refusal(self, where: str, why: str) -> TemplateRefused:
        return TemplateRefused(f"{self._path}: {where}: {why}")

    def _resolve(self, value: Any, where: str) -> Any:
        if isinstance(value, dict) and len(value) == 1:
            (key,) = value
            if isinstance(key, str) and (key == "Ref" or key.startswith("Fn::")):
                value = _Tag(key.removeprefix("Fn::"), value[key])
        if not isinstance(value, _Tag):
            return value
        if value.name == "Ref" and isinstance(value.value, str):
            return self._reference(value.value, where)
        if value.name == "GetAtt":
            parts = value.value.split(".", 1) if isinstance(value.value, str) else value.value
            return self._attribute(str(parts[0]), str(parts[1]), where)
        if value.name == "Sub":
            return self._substituted(value.value, where)
        if value.name == "Join" and isinstance(value.value, list) and len(value.value) == 2:
            separator, parts = value.value
            return str(separator).join(str(self._resolve(part, where)) for part in parts)
        if value.name == "Split" and isinstance(value.value, list) and len(value.value) == 2:
            return str(self._resolve(value.value[1], where)).split(str(value.value[0]))
        if value.name == "Select" and isinstance(value.value, list) and len(value.value) == 2:
            index, parts = int(value.value[0]), self._resolve(value.value[1], where)
            if not isinstance(parts, list) or not 0 <= index < len(parts):
                raise self._refusal(where, f"!Select has no item {index}")
            return self._resolve(parts[index], where)
        raise self._refusal(where, f"!{value.name} is not understood here")

    def _substituted(self, value: Any, where: str) -> str:
        text, names = (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (value, {})

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            if name in names:
                return str(self._resolve(names[name], where))
            resource, dot, attribute = name.partition(".")
            return self._attribute(resource, attribute, where) if dot else str(self._reference(name, where))

        return _SUBSTITUTE.sub(fill, str(text)).replace("${!", "${")

    def _reference(self, name: str, where: str) -> Any:
        if name in _PSEUDO:
            return _PSEUDO[name]
        if name in self._parameters:
            if "Default" not in self._parameters[name]:
                raise self._refusal(where, f"parameter {name} has no Default")
            return self._parameters[name]["Default"]
        if name not in self._resources:
            raise self._refusal(where, f"{name} is neither a parameter nor a resource")
        resource = self._resources[name]
        uri = (resource.get("Properties") or {}).get("DefinitionUri")
        return _stem(uri) if resource.get("Type") == MACHINE and isinstance(uri, str) else name

    def _attribute(self, name: str, attribute: str, where: str) -> str:
        resolved = str(self._reference(name, where))
        return resolved if attribute in ("Arn", "Name") else f"{resolved}.{attribute}"


def _stem(uri: str) -> str:
    return Path(uri).name.partition(".")[0]


def _enabled(body: Mapping[str, Any]) -> bool:
    return body.get("State", "ENABLED") != "DISABLED" and body.get("Enabled", True) is not False
