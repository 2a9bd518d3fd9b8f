"""Choice rules, compiled once into functions.

Invariants: a value of another type than the rule's compares as false; a Variable that leads nowhere ends the
execution with States.Runtime (only IsPresent may ask about it); And and Or stop at the first decisive rule.
"""

import operator
import re
from collections.abc import Callable
from typing import Any

from gpulease_local.asl.paths import ReferencePath, Scope, is_missing, parse_path

Rule = Callable[[Any, Scope], bool]


def is_string(value: Any) -> bool:
    """Tell whether a JSON value is a string."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Tell whether a JSON value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_boolean(value: Any) -> bool:
    """Tell whether a JSON value is true or false."""
    return isinstance(value, bool)


_Test = Callable[[Any], bool]
_Comparison = Callable[[Any, Any], bool]

_COMPARISONS: dict[str, tuple[_Test, _Comparison]] = {
    "StringEquals": (is_string, operator.eq),
    "NumericEquals": (is_number, operator.eq),
    "NumericLessThan": (is_number, operator.lt),
    "NumericLessThanEquals": (is_number, operator.le),
    "NumericGreaterThan": (is_number, operator.gt),
    "NumericGreaterThanEquals": (is_number, operator.ge),
    "BooleanEquals": (is_boolean, operator.eq),
}
_TYPE_TESTS: dict[str, _Test] = {
    "IsNull": lambda value: value is None,
    "IsString": is_string,
    "IsNumeric": is_number,
}


class RuleRefused(ValueError):
    """A rule outside the subset; `field` names the part."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


def compile_rule(rule: Any, where: str, *, allowed: frozenset[str] = frozenset()) -> Rule:
    """Compile one rule; `allowed` names the fields beside the comparison (Next at the top)."""
    if not isinstance(rule, dict):
        raise RuleRefused(where, "a rule must be an object")
    names = [name for name in rule if name not in allowed and name not in ("Variable", "Comment")]
    if len(names) != 1:
        raise RuleRefused(where, f"a rule has exactly one operator, this one has {sorted(names) or 'none'}")
    name = names[0]
    operand = rule[name]
    field = f"{where}.{name}"
    if name in ("And", "Or", "Not"):
        if "Variable" in rule:
            raise RuleRefused(f"{where}.Variable", f"{name} takes no Variable")
        return _combine(name, operand, field)
    variable = _path(rule.get("Variable"), f"{where}.Variable")
    if name == "IsPresent":
        wanted = _boolean(operand, field)
        return lambda data, scope: (not is_missing(variable.find(data, scope))) is wanted
    if name in _TYPE_TESTS:
        test, wanted = _TYPE_TESTS[name], _boolean(operand, field)
        return lambda data, scope: test(variable.read(data, scope)) is wanted
    if name == "StringMatches":
        pattern = _pattern(operand, field)
        return lambda data, scope: is_string(value := variable.read(data, scope)) and bool(pattern.fullmatch(value))
    return _compare(name, operand, variable, field)


def _combine(name: str, operand: Any, field: str) -> Rule:
    if name == "Not":
        inner = compile_rule(operand, field)
        return lambda data, scope: not inner(data, scope)
    if not isinstance(operand, list) or not operand:
        raise RuleRefused(field, "must be a list of rules")
    rules = [compile_rule(rule, f"{field}[{index}]") for index, rule in enumerate(operand)]
    if name == "And":
        return lambda data, scope: all(rule(data, scope) for rule in rules)
    return lambda data, scope: any(rule(data, scope) for rule in rules)


def _compare(name: str, operand: Any, variable: ReferencePath, field: str) -> Rule:
    by_path = name.endswith("Path") and name.removesuffix("Path") in _COMPARISONS
    known = _COMPARISONS.get(name.removesuffix("Path") if by_path else name)
    if known is None:
        raise RuleRefused(field, "this operator is not supported")
    right_type, compare = known
    find = variable.read
    if by_path:
        other = _path(operand, field).read

        def against_path(data: Any, scope: Scope) -> bool:
            left, right = find(data, scope), other(data, scope)
            return right_type(left) and right_type(right) and compare(left, right)

        return against_path
    if not right_type(operand):
        raise RuleRefused(field, "the operand has the wrong type")

    def against_constant(data: Any, scope: Scope) -> bool:
        value = find(data, scope)
        return right_type(value) and compare(value, operand)

    return against_constant


def _path(text: Any, field: str) -> ReferencePath:
    if not isinstance(text, str):
        raise RuleRefused(field, "must be a path")
    try:
        return parse_path(text)
    except ValueError as refused:
        raise RuleRefused(field, str(refused)) from refused


def _boolean(operand: Any, field: str) -> bool:
    if not isinstance(operand, bool):
        raise RuleRefused(field, "must be true or false")
    return operand


def _pattern(operand: Any, field: str) -> re.Pattern[str]:
    if not isinstance(operand, str):
        raise RuleRefused(field, "must be a string")
    # `*` stands for any characters; `\*` and `\\` are the characters themselves.
    parts = re.findall(r"\\[*\\]|\*|[^*\\]+|\\", operand)
    return re.compile(
        "".join(".*" if part == "*" else re.escape(part[-1:] if part[0] == "\\" else part) for part in parts), re.S
    )
