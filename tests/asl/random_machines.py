"""Machines nobody thought of: made from a seed out of the features that all three engines have.

Each is a chain of Pass, Choice and Task states over data whose paths and types are known, so that it stays clear of the
faults in `known_faults`. What must come out is not known beforehand: the engines must only agree.
"""

import random
from typing import Any

from tests.asl.machines import Case, Outcome, raises, returns, task

UNKNOWN = Outcome("UNKNOWN")
ERRORS = ("Throttled", "Unavailable", "Rejected")
TEXTS = ("gpu", "gpu-1", "cpu", "")
NUMBERS = (-1, 0, 1, 2.5, 70)


def random_cases(number: int, seed: int) -> list[Case]:
    """Return that many machines; the same seed gives the same ones."""
    rng = random.Random(seed)  # noqa: S311 - a generator of test cases
    return [_Maker(rng).case(f"random_{index}") for index in range(number)]


class _Maker:
    """Makes one machine and knows which paths lead to what."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._texts = ["$.text", "$.deep.text", "$.list[0]"]
        self._numbers = ["$.number", "$.deep.number", "$.list[1]"]
        self._truths = ["$.truth"]
        self._scripts: dict[str, list[dict[str, Any]]] = {}
        self._states: dict[str, Any] = {}

    def case(self, name: str) -> Case:
        """Return the machine."""
        rng = self._rng
        data = {
            "text": rng.choice(TEXTS),
            "number": rng.choice(NUMBERS),
            "truth": rng.random() < 0.5,
            "deep": {"text": rng.choice(TEXTS), "number": rng.choice(NUMBERS)},
            "list": [rng.choice(TEXTS), rng.choice(NUMBERS)],
        }
        kinds = [*rng.choices(("pass", "choice"), k=3), "task", "choice", rng.choice(("task", "pass"))]
        for index, kind in enumerate(kinds):
            following = f"S{index + 1}" if index + 1 < len(kinds) else "Done"
            getattr(self, f"_{kind}")(f"S{index}", following)
        self._states["Done"] = {"Type": "Succeed"}
        return Case(name, self._states, UNKNOWN, data, self._scripts)

    def _pass(self, name: str, following: str) -> None:
        place = f"$.of{name}"
        state: dict[str, Any] = {"Type": "Pass", "ResultPath": place, "Next": following}
        if self._rng.random() < 0.5:
            text, number = self._rng.choice(self._texts), self._rng.choice(self._numbers)
            state["Parameters"] = {"t.$": text, "n.$": number, "c": {"fixed": [1, None], "whole.$": "$.deep"}}
            self._texts.append(f"{place}.t")
            self._numbers.append(f"{place}.n")
            self._texts.append(f"{place}.c.whole.text")
        else:
            state["InputPath"] = self._rng.choice(self._texts)
            self._texts.append(place)
        self._states[name] = state

    def _choice(self, name: str, following: str) -> None:
        targets = [f"{name}{letter}" for letter in "ABC"]
        rules = [{**self._rule(2), "Next": target} for target in targets[:2]]
        self._states[name] = {"Type": "Choice", "Choices": rules, "Default": targets[2]}
        for target in targets:
            self._states[target] = {"Type": "Pass", "Result": target, "ResultPath": f"$.of{name}", "Next": following}
        self._texts.append(f"$.of{name}")

    def _rule(self, depth: int) -> dict[str, Any]:
        rng = self._rng
        if depth and rng.random() < 0.5:
            operator = rng.choice(("And", "Or", "Not"))
            if operator == "Not":
                return {"Not": self._rule(depth - 1)}
            return {operator: [self._rule(depth - 1) for _ in range(rng.randint(1, 3))]}
        kind = rng.choice(("text", "number", "truth", "type"))
        if kind == "text":
            operator, operand = rng.choice(
                (
                    ("StringEquals", rng.choice(TEXTS)),
                    ("StringEqualsPath", rng.choice(self._texts)),
                    ("StringMatches", rng.choice(("gpu*", "*u-*", "*", "g.u"))),
                )
            )
            return {"Variable": rng.choice(self._texts), operator: operand}
        if kind == "number":
            operator = rng.choice(("Equals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"))
            number: dict[str, Any] = {"Variable": rng.choice([*self._numbers, *self._texts])}
            if rng.random() < 0.4:
                number[f"Numeric{operator}Path"] = rng.choice(self._numbers)
            else:
                number[f"Numeric{operator}"] = rng.choice(NUMBERS)
            return number
        if kind == "truth":
            return {"Variable": rng.choice(self._truths), "BooleanEquals": rng.random() < 0.5}
        test = rng.choice(("IsPresent", "IsString", "IsNumeric", "IsNull"))
        paths = [*self._texts, *self._numbers, *(("$.nowhere",) if test == "IsPresent" else ())]
        return {"Variable": rng.choice(paths), test: rng.random() < 0.5}

    def _task(self, name: str, following: str) -> None:
        rng = self._rng
        function = f"f{name}"
        fails = rng.choices(ERRORS, k=rng.choice((0, 1, 1, 2, 3)))
        self._scripts[function] = [*(raises(error) for error in fails), returns({"said": rng.choice(TEXTS)})]
        fields: dict[str, Any] = {"ResultSelector": {"p.$": "$.Payload.said"}, "ResultPath": f"$.of{name}"}
        retry = [
            {
                "ErrorEquals": rng.sample([*ERRORS, "States.TaskFailed"], k=rng.randint(1, 2)),
                "IntervalSeconds": 1,
                "BackoffRate": 1.0,
                "MaxAttempts": rng.randint(0, 2),
            }
            for _ in range(rng.randint(0, 2))
        ]
        catch = [
            {"ErrorEquals": [error], "ResultPath": f"$.of{name}", "Next": following}
            for error in rng.sample([*ERRORS, "States.TaskFailed"], k=rng.randint(0, 2))
        ]
        if rng.random() < 0.5:
            catch.append({"ErrorEquals": ["States.ALL"], "ResultPath": f"$.of{name}", "Next": following})
        if retry:
            fields["Retry"] = retry
        if catch:
            fields["Catch"] = catch
        payload = {"t.$": rng.choice(self._texts), "n.$": rng.choice(self._numbers)}
        self._states[name] = task(function, payload, Next=following, **fields)
