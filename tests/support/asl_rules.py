"""Rules that every state machine of ours keeps, over a parsed definition, so that each can be shown to fail."""

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from gpulease import errors

Definition = Mapping[str, Any]
SERVICE_ERRORS = ("Lambda.", "States.", "Sandbox.", "Runtime.")


def definitions(root: Path) -> dict[str, Definition]:
    """Name → definition of every file in statemachines/."""
    return {
        p.name.partition(".")[0]: json.loads(p.read_text()) for p in sorted((root / "statemachines").glob("*.json"))
    }


def targets(state: Mapping[str, Any]) -> Iterator[str]:
    """Every state that may follow."""
    if "Next" in state:
        yield state["Next"]
    if "Default" in state:
        yield state["Default"]
    for branch in (*state.get("Choices", ()), *state.get("Catch", ())):
        yield branch["Next"]


def graph_faults(definition: Definition) -> list[str]:
    """Targets that do not exist, states that nothing leads to, states from which no end can be reached."""
    states = definition["States"]
    faults = [f"{name} → {t} does not exist" for name, s in states.items() for t in targets(s) if t not in states]
    reached, todo = set(), [definition["StartAt"]]
    while todo:
        name = todo.pop()
        if name in states and name not in reached:
            reached.add(name)
            todo.extend(targets(states[name]))
    faults += [f"{name} is never reached" for name in states if name not in reached]
    ending = {name for name, s in states.items() if s["Type"] in ("Succeed", "Fail")}
    while more := {n for n, s in states.items() if n not in ending and any(t in ending for t in targets(s))}:
        ending |= more
    return faults + [f"{name} leads to no end" for name in states if name not in ending]


def task_faults(definition: Definition) -> list[str]:
    """Tasks without TimeoutSeconds, Retry or a last Catch of everything; errors caught under names nobody raises."""
    known = {name for name in vars(errors) if isinstance(getattr(errors, name), type)}
    faults = []
    for name, state in definition["States"].items():
        if state["Type"] != "Task":
            continue
        faults += [f"{name} has no {key}" for key in ("TimeoutSeconds", "Retry", "Catch") if not state.get(key)]
        if state.get("Catch") and state["Catch"][-1]["ErrorEquals"] != ["States.ALL"]:
            faults.append(f"{name}: its last Catch is not States.ALL")
        for entry in (*state.get("Retry", ()), *state.get("Catch", ())):
            faults += [
                f"{name}: no error is called {error}"
                for error in entry["ErrorEquals"]
                if error not in known and not error.startswith(SERVICE_ERRORS)
            ]
        if any("States.ALL" in entry["ErrorEquals"] for entry in state.get("Retry", ())):
            faults.append(f"{name}: Retry of States.ALL would repeat what must not be repeated")
    return faults


def _outcomes_of(step: str) -> frozenset[str]:
    outcomes: frozenset[str] = import_module(f"gpulease.steps.{step}").OUTCOMES
    return outcomes


def outcome_faults(
    definition: Definition,
    module_of: Callable[[str], str],
    outcomes_of: Callable[[str], frozenset[str]] = _outcomes_of,
) -> list[str]:
    """Outcomes that a step can return and its Choice does not name, and the other way round."""
    faults = []
    for name, state in definition["States"].items():
        following = definition["States"].get(state.get("Next", ""), {})
        if state["Type"] != "Task" or following.get("Type") != "Choice":
            continue
        named = {branch["StringEquals"] for branch in following["Choices"]}
        outcomes = outcomes_of(module_of(name))
        faults += [f"{name}: outcome {o} has no branch in {state['Next']}" for o in sorted(outcomes - named)]
        faults += [f"{name}: {state['Next']} names {o}, which it never returns" for o in sorted(named - outcomes)]
    return faults
