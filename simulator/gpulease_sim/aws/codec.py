"""Settings and faults from JSON, for the control routes. Needs pydantic; the in-process path never imports this."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from gpulease_sim.aws.faults import Fault
from gpulease_sim.aws.settings import Settings, changed

_SETTING_TYPES = get_type_hints(Settings)
_FAULT_NAMES = frozenset(each.name for each in dataclasses.fields(Fault))


def changed_settings(settings: Settings, change: Mapping[str, Any]) -> Settings:
    """`settings` with other values; raises ValueError for what is unknown or of the wrong type.

    `instance` and `volume` may name some fields of their behaviour only.
    """
    values: dict[str, Any] = {}
    for name, value in change.items():
        if name not in _SETTING_TYPES:
            raise ValueError(f"no such setting: {name}")
        if name in ("instance", "volume"):
            whole = changed(getattr(settings, name), value)
            values[name] = _checked(type(whole), dataclasses.asdict(whole))
        else:
            values[name] = _checked(_SETTING_TYPES[name], value)
    return dataclasses.replace(settings, **values)


def fault_from(value: Mapping[str, Any]) -> Fault:
    """A fault from its JSON object; raises ValueError for what is unknown or of the wrong type."""
    if unknown := set(value) - _FAULT_NAMES:
        raise ValueError(f"no such field of a fault: {', '.join(sorted(unknown))}")
    fault: Fault = _checked(Fault, dict(value))
    return fault


def _checked(kind: Any, value: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError(str(error)) from None
