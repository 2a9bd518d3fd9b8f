"""Settings, faults and stored objects as JSON: for the control routes and for the state file.

Needs pydantic for the types' sake; the in-process path never imports this module.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from gpulease_sim.vultr.faults import Fault
from gpulease_sim.vultr.settings import Settings, changed, with_boot_seconds

T = TypeVar("T")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
_SETTING_TYPES = get_type_hints(Settings)
_FAULT_NAMES = frozenset(each.name for each in dataclasses.fields(Fault))


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def dumped(value: object) -> str:
    """A dataclass as JSON; infinity stays infinity."""
    return json.dumps(_adapter(type(value)).dump_python(value, mode="json"))


def loaded(kind: type[T], text: str) -> T:
    """The reverse of `dumped`."""
    value: T = _adapter(kind).validate_python(json.loads(text))
    return value


def changed_settings(settings: Settings, change: Mapping[str, Any]) -> Settings:
    """`settings` with other values; raises ValueError for what is unknown or of the wrong type.

    `vm`, `metal` and `block` may name some fields of their behaviour only; `boot_seconds` sets the boot time of every
    machine.
    """
    values: dict[str, Any] = {}
    for name, value in change.items():
        if name == "boot_seconds":
            continue
        if name not in _SETTING_TYPES:
            raise ValueError(f"no such setting: {name}")
        if name in ("vm", "metal", "block"):
            values[name] = _checked(_SETTING_TYPES[name], dataclasses.asdict(changed(getattr(settings, name), value)))
        else:
            values[name] = _checked(_SETTING_TYPES[name], value)
    for rule in values.get("rules", ()):
        changed(settings.vm, rule.change)
    settings = dataclasses.replace(settings, **values)
    if "boot_seconds" in change:
        settings = with_boot_seconds(settings, float(change["boot_seconds"]))
    return settings


def fault_from(value: Mapping[str, Any]) -> Fault:
    """A fault from its JSON object; raises ValueError for what is unknown or of the wrong type."""
    if unknown := set(value) - _FAULT_NAMES:
        raise ValueError(f"no such field of a fault: {', '.join(sorted(unknown))}")
    body = value.get("body")
    if body is not None and not isinstance(body, str):
        value = {**value, "body": json.dumps(body)}
    fault: Fault = _checked(Fault, dict(value))
    return fault


def _checked(kind: Any, value: Any) -> Any:
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(str(error)) from None
