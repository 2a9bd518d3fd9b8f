"""The engine: moves executions on, one loop for simulation (virtual clock) and for one computer (wall clock).

Invariants
* Executions change only under the engine's lock and, once started, only by the loop (and by `stop`).
* The store has an execution's state before the call that the state announces is made: a task that was interrupted is
  called again (at least once), none is skipped; `start` is durable before it returns.
* Every heap entry of an execution carries its generation; a late answer, timeout or wake-up of an older generation
  is ignored.
* Choice and Pass run on within one turn of the loop; every Task, Wait and end is a turn of its own, so executions
  due at the same time interleave step by step.
"""

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpulease_local.asl import interpreter
from gpulease_local.asl.calls import Invoke, TaskReply, TransitionEvent
from gpulease_local.asl.clocks import EngineClock
from gpulease_local.asl.errors import (
    MARSHAL_ERROR,
    RUNTIME,
    TIMEOUT,
    EngineRefused,
    ExecutionAlreadyExists,
    ExecutionDoesNotExist,
    InvalidExecutionInput,
    StateError,
    StateMachineDoesNotExist,
)
from gpulease_local.asl.execution import Execution, Status, check_name, iso_time
from gpulease_local.asl.loop import Loop
from gpulease_local.asl.model import Choice, Fail, Pass, Service, State, StateMachine, Succeed, Task, Wait
from gpulease_local.asl.paths import check_size, decode_json, encode_json
from gpulease_local.asl.retry import find_catcher, find_retrier
from gpulease_local.asl.store import MemoryStore, Store

HISTORY_LIMIT = 25_000  # https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
NAME_KEPT_SECONDS = 90 * 86_400  # the name of an ended execution is free again after this

_log = logging.getLogger(__name__)


class Engine(Loop):
    """Runs state machines. With `workers=0` tasks are called by the loop itself, else by that many threads.

    With workers, callbacks of `call_at` and `call_every` run on them too (a repeated one never beside itself), and
    `start`, `stop`, `describe`, `executions` and `call_at` may be used from any thread. Without workers `invoke` runs
    under the engine's lock, and what it or a callback raises comes out of `run_…`.
    """

    def __init__(
        self,
        *,
        clock: EngineClock,
        seed: int,
        invoke: Invoke,
        store: Store | None = None,
        workers: int = 0,
    ) -> None:
        super().__init__(clock=clock, workers=workers)
        self.on_transition: Callable[[TransitionEvent], None] | None = None
        self.on_failed: Callable[[Execution], None] | None = None  # ended, and not as Succeeded
        self._rng = random.Random(seed)  # noqa: S311 - jitter, not secrets
        self._invoke = invoke
        self._store = MemoryStore() if store is None else store
        self._machines: dict[str, StateMachine] = {}
        self._running = {(e.machine, e.name): e for e in self._store.select(None, Status.RUNNING)}

    # Machines and executions -------------------------------------------------------------------------

    def register(self, machine: StateMachine) -> None:
        """Make a machine known; executions of it that were running when the process ended go on."""
        with self._woken:
            first_time = machine.name not in self._machines
            self._machines[machine.name] = machine
            if first_time:
                for execution in self._running.values():
                    if execution.machine == machine.name:
                        self._resume(machine, execution)
            self._woken.notify()

    def start(self, machine_name: str, name: str, input: Mapping[str, Any]) -> str:
        """Start an execution and return its id; it is durable when this returns.

        A running execution of the same name and input is returned as it is (the service's rule); otherwise a taken name
        raises ExecutionAlreadyExists.
        """
        check_name(name)
        try:
            text = encode_json(input)
            check_size(text, "The input")
        except (TypeError, ValueError, StateError) as refused:
            raise InvalidExecutionInput(str(refused)) from refused
        with self._woken:
            machine = self._machines.get(machine_name)
            if machine is None:
                raise StateMachineDoesNotExist(machine_name)
            data = decode_json(text)
            now = self._clock.time()
            known = self._find(machine_name, name)
            if known is not None:
                if known.status is Status.RUNNING and known.input == data:
                    return known.arn
                if known.stop_time is None or known.stop_time + NAME_KEPT_SECONDS > now:
                    raise ExecutionAlreadyExists(known.arn)
            execution = Execution(machine_name, name, data, now, machine.start_at, data, now)
            self._store.insert(execution)
            self._running[machine_name, name] = execution
            self._resume(machine, execution)
            self._woken.notify()
            return execution.arn

    def stop(self, machine_name: str, name: str, error: str = "", cause: str = "") -> None:
        """Abort an execution; no Catch runs, a call under way is not stopped but its answer is dropped."""
        with self._woken:
            execution = self._find(machine_name, name)
            if execution is None:
                raise ExecutionDoesNotExist(f"{machine_name}:{name}")
            if execution.status is Status.RUNNING:
                self._end(execution, Status.ABORTED, self._clock.time(), error=error or None, cause=cause or None)

    def describe(self, machine_name: str, name: str) -> Execution:
        """Return a copy of an execution; ExecutionDoesNotExist when there is none."""
        with self._lock:
            execution = self._find(machine_name, name)
            if execution is None:
                raise ExecutionDoesNotExist(f"{machine_name}:{name}")
            return execution.copy()

    def executions(self, machine_name: str | None = None, status: str | None = None) -> Iterator[Execution]:
        """Yield copies of executions, oldest first, optionally of one machine or one status."""
        with self._lock:
            found = [e.copy() for e in self._store.select(machine_name, Status(status) if status else None)]
        yield from found

    # One execution -----------------------------------------------------------------------------------

    def _find(self, machine_name: str, name: str) -> Execution | None:
        return self._running.get((machine_name, name)) or self._store.get(machine_name, name)

    def _idle(self) -> bool:
        return not self._running

    def _resume(self, machine: StateMachine, execution: Execution) -> None:
        self._agenda.add(execution.due, execution, (execution.generation, None))
        if machine.timeout_seconds is not None:
            deadline = execution.start_time + machine.timeout_seconds
            self._agenda.add(deadline, execution, (None, _deadline_reached))

    def _move(self, what: Execution, detail: Any) -> None:
        """Process one heap entry of an execution: wake-up, answer, task timeout or deadline."""
        execution = what
        generation, then = detail
        if execution.status is not Status.RUNNING or generation not in (None, execution.generation):
            return
        now = self._clock.time()
        machine = self._machines[execution.machine]
        state = machine.states.get(execution.state)
        try:
            if then is not None:
                then(self, state, execution, now)
            elif state is None:
                raise StateError(RUNTIME, f"The state {execution.state} is no longer part of {machine.name}")
            elif not execution.entered:
                self._enter(machine, execution, execution.state, execution.data, now, came_from=None)
            elif isinstance(state, Task):
                self._call(state, execution, now)
            else:
                output = interpreter.run_through(state, execution.data, execution)
                self._go_on(machine, state, execution, output, now)
        except StateError as failed:
            self._fail(execution, failed, now)

    def _enter(
        self,
        machine: StateMachine,
        execution: Execution,
        name: str,
        data: Any,
        now: float,
        came_from: str | None,
        error: str | None = None,
    ) -> None:
        """Enter a state, run on through Choice and Pass, and park at the next Task, Wait or end."""
        execution.entered_time = now
        execution.entered = True
        while True:
            execution.state = name
            execution.data = data
            execution.retries = []
            execution.transitions += 1
            execution.events += 1
            if self.on_transition is not None:
                self._tell(execution, now, came_from, name, error)
            if execution.events >= HISTORY_LIMIT:
                raise _history_full()
            state = machine.states[name]
            if isinstance(state, Choice):
                following: str | None
                following, data = interpreter.run_choice(state, data, execution)
            elif isinstance(state, Pass):
                data = interpreter.run_pass(state, data, execution)
                following = state.next
            else:
                self._settle(state, execution, now)
                return
            execution.events += 1
            if following is None:
                self._end(execution, Status.SUCCEEDED, now, output=data)
                return
            came_from, name, error = name, following, None

    def _settle(self, state: State, execution: Execution, now: float) -> None:
        if isinstance(state, Task):
            execution.retries = [0] * len(state.retry)
            self._park(execution, now)
        elif isinstance(state, Wait):
            self._park(execution, now + interpreter.wait_seconds(state, execution.data, execution))
        elif isinstance(state, Succeed):
            output = interpreter.run_through(state, execution.data, execution)
            execution.events += 1
            self._end(execution, Status.SUCCEEDED, now, output=output)
        elif isinstance(state, Fail):
            self._end(execution, Status.FAILED, now, error=state.error, cause=state.cause)
        else:
            raise TypeError(f"unknown kind of state {state!r}")

    def _park(self, execution: Execution, due: float) -> None:
        execution.generation += 1
        execution.due = due
        self._store.update(execution)
        self._agenda.add(due, execution, (execution.generation, None))

    def _go_on(self, machine: StateMachine, state: State, execution: Execution, output: Any, now: float) -> None:
        execution.events += 1
        if state.next is None:
            self._end(execution, Status.SUCCEEDED, now, output=output)
        else:
            self._enter(machine, execution, state.next, output, now, came_from=state.name)

    def _end(
        self,
        execution: Execution,
        status: Status,
        now: float,
        *,
        output: Any = None,
        error: str | None = None,
        cause: str | None = None,
    ) -> None:
        execution.generation += 1
        execution.events = min(execution.events + 1, HISTORY_LIMIT)  # the limit counts this last one too
        execution.status = status
        execution.output = output
        execution.error = error
        execution.cause = cause
        execution.stop_time = now
        self._store.update(execution)
        self._running.pop((execution.machine, execution.name), None)
        if self.on_transition is not None:
            self._tell(execution, now, execution.state, None, error)
        if self.on_failed is not None and status is not Status.SUCCEEDED:
            self.on_failed(execution.copy())

    def _tell(self, execution: Execution, now: float, came_from: str | None, to: str | None, error: str | None) -> None:
        if self.on_transition is not None:
            event = TransitionEvent(now, execution.machine, execution.name, came_from, to, execution.status, error)
            self.on_transition(event)

    # Tasks -------------------------------------------------------------------------------------------

    def _call(self, task: Task, execution: Execution, now: float) -> None:
        """Make a task's call; the answer comes back as a heap entry, or at once when it took no time."""
        if self._closed:
            return  # the store has it parked before the call: the next process makes it
        if execution.events + 2 >= HISTORY_LIMIT:
            raise _history_full()
        execution.events += 2
        payload = interpreter.task_payload(task, execution.data, execution)
        if task.service is Service.START_EXECUTION:
            self._answer(task, execution, self._start_other(task, execution, payload, now), now)
            return
        generation = execution.generation
        if self._pool is None:
            try:
                reply = self._invoke(task.target, payload)
            except BaseException:
                # As if the process had died in the call: whoever runs the loop on makes the call again.
                self._agenda.add(now, execution, (generation, None))
                raise
            if execution.generation == generation:  # else the called code stopped this very execution
                self._receive_later(task, execution, reply, now)
            return
        if task.timeout_seconds is not None:
            self._agenda.add(now + task.timeout_seconds, execution, (generation, _task_timed_out))
        self._pool.submit(self._call_on_worker, execution, generation, task.target, payload)

    def _receive_later(self, task: Task, execution: Execution, reply: TaskReply, now: float) -> None:
        """Deliver an answer at the virtual time when it arrives; one that took too long is a timeout."""
        if task.timeout_seconds is not None and reply.duration_seconds > task.timeout_seconds:
            due = now + task.timeout_seconds
            self._agenda.add(due, execution, (execution.generation, _task_timed_out))
        elif reply.duration_seconds > 0.0:
            due = now + reply.duration_seconds
            self._agenda.add(due, execution, (execution.generation, _Arrived(reply)))
        else:
            self._answer(task, execution, reply, now)

    def _call_on_worker(self, execution: Execution, generation: int, target: str, payload: Any) -> None:
        try:
            reply = self._invoke(target, payload)
        except Exception as broken:
            _log.exception("invoke_failed")
            reply = TaskReply(error="Lambda.Unknown", cause=f"{type(broken).__name__}: {broken}")
        with self._woken:
            self._agenda.add(self._clock.time(), execution, (generation, _Arrived(reply)))
            self._woken.notify()

    def _start_other(self, task: Task, execution: Execution, payload: Any, now: float) -> TaskReply:
        name = interpreter.execution_name(task, execution.data, execution)
        try:
            arn = self.start(task.target, name, decode_json(payload) if isinstance(payload, str) else payload)
        except (EngineRefused, ValueError) as refused:
            error = type(refused).__name__ if isinstance(refused, EngineRefused) else "InvalidExecutionInput"
            return TaskReply(error=f"StepFunctions.{error}Exception", cause=str(refused))
        return TaskReply({"ExecutionArn": arn, "StartDate": iso_time(now)})

    def _answer(self, task: Task, execution: Execution, reply: TaskReply, now: float) -> None:
        execution.events += 1
        execution.generation += 1  # its timeout, or a second answer, comes too late from here on
        if reply.error is not None:
            raise StateError(reply.error, reply.cause)
        try:
            text = encode_json(reply.value)
        except (TypeError, ValueError) as refused:
            raise StateError(MARSHAL_ERROR, f"The answer of {task.target} is not JSON: {refused}") from refused
        check_size(text, f"The answer of {task.target}")
        output = interpreter.task_output(task, execution.data, decode_json(text), execution)
        self._go_on(self._machines[execution.machine], task, execution, output, now)

    def _fail(self, execution: Execution, failed: StateError, now: float) -> None:
        """Retry, catch, or end the execution; only a Task has Retry and Catch."""
        machine = self._machines[execution.machine]
        task = machine.states.get(execution.state)
        if isinstance(task, Task):
            if len(execution.retries) != len(task.retry):  # resumed under a newer definition
                execution.retries = [0] * len(task.retry)
            index = find_retrier(task.retry, failed.error, execution.retries)
            if index is not None:
                delay = task.retry[index].delay_seconds(execution.retries[index], self._rng)
                execution.retries[index] += 1
                execution.transitions += 1
                self._tell(execution, now, task.name, task.name, failed.error)
                self._park(execution, now + delay)
                return
            catcher = find_catcher(task.catch, failed.error)
            if catcher is not None:
                try:
                    error_output = {"Error": failed.error, "Cause": failed.cause}
                    data = interpreter.place(catcher.result_path, execution.data, error_output)
                    execution.events += 1
                    self._enter(machine, execution, catcher.next, data, now, task.name, failed.error)
                    return
                except StateError as again:
                    # Raised by the catcher itself or by a state entered after it: parked states never get here.
                    failed = again
        self._end(execution, Status.FAILED, now, error=failed.error, cause=failed.cause)


def _history_full() -> StateError:
    return StateError(RUNTIME, f"The execution reached the maximum number of history events ({HISTORY_LIMIT}).")


# What a heap entry may do beside waking its execution up ----------------------------------------------


class _Arrived:
    """An answer that arrives."""

    __slots__ = ("_reply",)

    def __init__(self, reply: TaskReply) -> None:
        self._reply = reply

    def __call__(self, engine: Engine, state: State | None, execution: Execution, now: float) -> None:
        if not isinstance(state, Task):
            raise StateError(RUNTIME, f"The state {execution.state} is no longer a Task")
        engine._answer(state, execution, self._reply, now)


def _task_timed_out(engine: Engine, state: State | None, execution: Execution, now: float) -> None:
    execution.events += 1
    raise StateError(TIMEOUT, f"{execution.state} took longer than its TimeoutSeconds")


def _deadline_reached(engine: Engine, state: State | None, execution: Execution, now: float) -> None:
    engine._end(execution, Status.TIMED_OUT, now, error=TIMEOUT, cause="The execution took too long")
