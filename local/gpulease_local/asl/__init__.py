"""A small Amazon States Language engine: the same state machines on one computer and in simulation."""

from gpulease_local.asl.calls import Invoke, TaskReply, TransitionEvent
from gpulease_local.asl.clocks import EngineClock, ScaledClock, VirtualClock
from gpulease_local.asl.definition import load_definition
from gpulease_local.asl.engine import Engine
from gpulease_local.asl.errors import (
    DefinitionRefused,
    EngineRefused,
    ExecutionAlreadyExists,
    ExecutionDoesNotExist,
    InvalidExecutionInput,
    InvalidName,
    StateMachineDoesNotExist,
)
from gpulease_local.asl.execution import Execution, Status
from gpulease_local.asl.model import StateMachine
from gpulease_local.asl.store import MemoryStore, SqliteStore, Store
from gpulease_local.asl.timers import Handle

__all__ = [
    "DefinitionRefused",
    "Engine",
    "EngineClock",
    "EngineRefused",
    "Execution",
    "ExecutionAlreadyExists",
    "ExecutionDoesNotExist",
    "Handle",
    "InvalidExecutionInput",
    "InvalidName",
    "Invoke",
    "MemoryStore",
    "ScaledClock",
    "SqliteStore",
    "StateMachine",
    "StateMachineDoesNotExist",
    "Status",
    "Store",
    "TaskReply",
    "TransitionEvent",
    "VirtualClock",
    "load_definition",
]
