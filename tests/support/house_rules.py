"""The rules of this house that ruff, mypy and import-linter cannot express, as functions over a folder.

Each check takes the repository's root and returns its findings as `path:line: what is wrong`, sorted; none is good.
They read text and never import what they check, so a broken module cannot hide behind an import error.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CORE = "layers/core/python/gpulease"
RUNTIME = f"{CORE}/runtime/"
SOURCE_FOLDERS = ("layers/core", "functions", "cli", "local", "simulator", "tests", "bench")
LONGEST_FILE_LINES = 400

# What reads the clock, waits, makes something random or reads the environment. A name that ends in a dot is a module.
IMPURE = (
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.environ",
    "os.getenv",
    "os.urandom",
    "random.",
    "secrets.",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.sleep",
    "time.time",
    "time.time_ns",
    "uuid.uuid1",
    "uuid.uuid4",
)
# Outside the core a seeded generator may be made; within it, one is injected.
SEEDED = "random.Random"


@dataclass(frozen=True)
class Allowed:
    """An exception to a rule: a file, or a folder (ending in a slash), and why; `names` where a rule has names."""

    path: str
    reason: str
    names: frozenset[str] = frozenset()

    def covers(self, path: str) -> bool:
        """Say whether this exception is meant for that file."""
        return path == self.path or (self.path.endswith("/") and path.startswith(self.path))


def _python_files(root: Path, folders: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for folder in folders:
        for file in sorted((root / folder).rglob("*.py")):
            yield file.relative_to(root).as_posix(), file


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """Map each local name that an import made to what it stands for, e.g. `dt` to `datetime.datetime`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.AST, imported: Mapping[str, str]) -> str | None:
    """Return the full name that an expression like `dt.now` refers to, if it begins with an imported name."""
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, imported)
        return f"{base}.{node.attr}" if base else None
    return imported.get(node.id) if isinstance(node, ast.Name) else None


def _impure_name(name: str) -> str | None:
    for impure in IMPURE:
        if impure.endswith("."):
            if name.startswith(impure):
                return name
        elif name == impure or name.startswith(f"{impure}."):
            return impure
    return None


def _impure_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) for every use, called or passed on; `random.Random(seed)` comes as `random.Random`."""
    imported = _imported_names(tree)
    unseeded = {
        id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and not (node.args or node.keywords)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = _dotted(node, imported)
        impure = _impure_name(name) if name else None
        # In `os.environ.get` both the whole and its part match: only the part that is the banned name counts.
        if impure and name == impure:
            yield node.lineno, f"{impure}()" if impure == SEEDED and id(node) in unseeded else impure


def impure_uses(root: Path, allowed: tuple[Allowed, ...]) -> list[str]:
    """Find uses of the clock, randomness and the environment outside the runtime and the named exceptions."""
    found: list[str] = []
    needed: set[Allowed] = set()
    for path, file in _python_files(root, tuple(f for f in SOURCE_FOLDERS if f != "bench")):
        if path.startswith(RUNTIME):
            continue
        for line, name in _impure_uses(ast.parse(file.read_text(encoding="utf-8"), path)):
            if name == SEEDED and not path.startswith("layers/"):
                continue
            excuses = [a for a in allowed if a.covers(path) and (not a.names or name in a.names)]
            needed.update(excuses)
            if not excuses:
                found.append(f"{path}:{line}: {name} outside {RUNTIME}")
    found += [f"{a.path}: is excused from the runtime rule and no longer needs it" for a in allowed if a not in needed]
    return sorted(found)


def long_files(root: Path, allowed: tuple[Allowed, ...]) -> list[str]:
    """Find source files of ours that are longer than `LONGEST_FILE_LINES`."""
    found: list[str] = []
    needed: set[Allowed] = set()
    files = [f for folder in (*SOURCE_FOLDERS, "web", "examples") for f in sorted((root / folder).rglob("*.*"))]
    for file in files:
        if file.suffix not in {".py", ".js", ".css", ".sh"}:
            continue
        path = file.relative_to(root).as_posix()
        lines = len(file.read_text(encoding="utf-8").splitlines())
        if lines <= LONGEST_FILE_LINES:
            continue
        excuses = [a for a in allowed if a.covers(path)]
        needed.update(excuses)
        if not excuses:
            found.append(f"{path}: {lines} lines, more than {LONGEST_FILE_LINES}: split it")
    found += [f"{a.path}: is excused for its length and no longer needs it" for a in allowed if a not in needed]
    return sorted(found)


def function_imports(root: Path) -> list[str]:
    """Find handlers that reach past their wiring: a function imports runtime, steps and api of ours, nothing else."""
    found = []
    for path, file in _python_files(root, ("functions",)):
        tree = ast.parse(file.read_text(encoding="utf-8"), path)
        for line, module in _modules_imported(tree):
            parts = module.split(".")
            ours = parts[0].startswith("gpulease")
            if ours and (parts[0] != "gpulease" or parts[1:2] not in (["runtime"], ["steps"], ["api"])):
                found.append(
                    f"{path}:{line}: a handler imports {module}; only gpulease.runtime, steps and api are for it"
                )
    return sorted(found)


def eager_cli_imports(root: Path) -> list[str]:
    """Find module-level imports, in the CLI, of what only `local` and `simulate` need: they make every command slow."""
    found = []
    for path, file in _python_files(root, ("cli",)):
        tree = ast.parse(file.read_text(encoding="utf-8"), path)
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(function)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            if id(node) in inside:
                continue
            for line, module in _modules_imported_by(node):
                if module.partition(".")[0] in {"gpulease_local", "gpulease_sim"}:
                    found.append(f"{path}:{line}: imports {module} at module level: import it where it is used")
    return sorted(found)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _modules_imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        yield from _modules_imported_by(node)


def _modules_imported_by(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield node.lineno, alias.name
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            yield node.lineno, f"{node.module}.{alias.name}"


class _TemplateLoader(yaml.SafeLoader):
    """Reads a CloudFormation template; `!Sub x` and the like become their plain value."""


def _plain(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


_TemplateLoader.add_multi_constructor("!", _plain)


def _template_resources(root: Path) -> dict[str, Any]:
    template = root / "template.yaml"
    if not template.exists():
        return {}
    document = yaml.load(template.read_text(encoding="utf-8"), Loader=_TemplateLoader)  # noqa: S506 - a SafeLoader
    resources: dict[str, Any] = document.get("Resources") or {}
    return resources


def _tasks(states: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name, state) of every Task that calls a function, also inside Parallel and Map states."""
    for name, state in states.items():
        if state.get("Type") == "Task":
            resource = str(state.get("Resource", ""))
            if not resource.startswith("arn:aws:states:::") or ":lambda:" in resource:
                yield name, state
        inner = [*state.get("Branches", []), state.get("ItemProcessor"), state.get("Iterator")]
        for machine in inner:
            if machine:
                yield from _tasks(machine["States"])


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def word_chain(root: Path) -> list[str]:
    """Find steps whose state, folder, template resource and module do not bear one name."""
    found: list[str] = []
    resources = _template_resources(root)
    steps: set[str] = set()
    for file in sorted((root / "statemachines").glob("*.asl.json")):
        path = file.relative_to(root).as_posix()
        for state, definition in _tasks(json.loads(file.read_text(encoding="utf-8"))["States"]):
            step, function = _snake(state), f"{state}Function"
            steps.add(step)
            found += [f"{path}: {state}: {problem}" for problem in _broken_links(root, step, function, resources)]
            if function not in json.dumps(definition):
                found.append(f"{path}: {state}: does not call {function}")
    found += _floor(root, resources, steps)
    for app in sorted((root / "functions").glob("*/app.py")):
        step = app.parent.name
        is_step = (root / CORE / "steps" / f"{step}.py").exists() and not _has_events(resources, step)
        if is_step and step not in steps:
            found.append(f"functions/{step}/app.py: is a step that no state machine has")
    return sorted(set(found))


def _broken_links(root: Path, step: str, function: str, resources: Mapping[str, Any]) -> Iterator[str]:
    for file in (f"functions/{step}/app.py", f"{CORE}/steps/{step}.py"):
        if not (root / file).exists():
            yield f"there is no {file}"
    resource = resources.get(function)
    if resource is None:
        yield f"template.yaml has no {function}"
        return
    code = str(resource.get("Properties", {}).get("CodeUri", "")).strip("/")
    if code.removeprefix("./") != f"functions/{step}":
        yield f"{function} in template.yaml holds the code of {code or 'nothing'}, not of functions/{step}"


def _has_events(resources: Mapping[str, Any], step: str) -> bool:
    """Say whether a function is called by a schedule, a route or the like, and so by no state machine."""
    name = "".join(word.capitalize() for word in step.split("_")) + "Function"
    function = resources.get(name, {})
    integrations = [r for r in resources.values() if str(r.get("Type", "")) == "AWS::ApiGatewayV2::Integration"]
    has_route = any(name in str(r["Properties"].get("IntegrationUri")) for r in integrations)
    return has_route or bool(function.get("Properties", {}).get("Events"))


def _floor(root: Path, resources: Mapping[str, Any], steps: set[str]) -> list[str]:
    """A check that found nothing to check is a finding where there should be something."""
    machines = [name for name, r in resources.items() if str(r.get("Type", "")).endswith("::StateMachine")]
    files = [file for file in (root / "statemachines").rglob("*") if file.is_file()]
    if (machines or files) and not steps:
        return ["statemachines/: there are state machines, but no Task was found in statemachines/*.asl.json"]
    return []
