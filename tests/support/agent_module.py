"""`guest/agent.py` as a module, as it is sent to machines."""

import types
from typing import Any

from gpulease.agent_program import agent_program


def agent_module() -> Any:
    """A fresh one: nothing of the control plane imports it."""
    module = types.ModuleType("agent_on_a_machine")
    exec(compile(agent_program().source, "agent.py", "exec"), module.__dict__)  # noqa: S102 - our own program
    return module
