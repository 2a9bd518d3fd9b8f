"""Whole leases under faults with strings in them that must stay where they are: the account's key, the start script,
the comment of an SSH key.

The script may be in the user data at the provider and in the ledger's row for it, the comment also in the lease's own
row and in what its owner is shown of it, the key in the calls' own header alone. Everything else that the stack writes,
hands on or answers is searched.
"""

import base64
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpulease.domain.lease import LeaseKind
from gpulease.ports import Deps
from gpulease.providers import http
from gpulease.steps import select_offer
from gpulease_local import functions
from gpulease_local.asl import TaskReply, TransitionEvent
from gpulease_local.simulate import run, virtual
from gpulease_local.simulate.run import Simulation
from gpulease_local.simulate.scenario import Wish, wishes
from gpulease_local.simulate.virtual import ApiRefused
from gpulease_sim.vultr import Fault

from tests.support.canaries import Canaries, LookingHandler, api_answer

KEY = "CANARYKEY0a1b2c3d4e5f60718293a4b5c6d7e8f9ABCDEF"
SCRIPT = "CANARYSCRIPT password=Zq9xWv7Tn5Rk3Pj1Mh8Lf6Gd4Sb2 curl"
COMMENT = "CANARYCOMMENT-mary-at-the-laptop-of-the-observatory"


class Searched:
    """One simulation in which everything that leaves a function is searched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, faults: str, leases: int) -> None:
        self.canaries = Canaries(key=KEY, script=SCRIPT, comment=COMMENT)
        look, owner_alone = self.canaries.look, Canaries(key=KEY, script=SCRIPT)
        self.to_owners = owner_alone

        class Secrets:
            def provider_key(self, account: str, *, fresh: bool = False) -> str:
                return KEY

        class Log(virtual.Silent):
            def info(self, event: str, **facts: object) -> None:
                look("log", (event, facts))

            warning = info

            def error(self, event: str, **facts: object) -> None:
                super().error(event, **facts)
                look("log", (event, facts))

            def alarm(self, name: str, text: str, facts: Any) -> None:
                super().alarm(name, text, facts)
                look("alarm", (name, text, facts))

        kept_call, kept_invoke = functions.Functions.call, functions.Functions.invoke

        def call(self: functions.Functions, name: str, payload: Any) -> Any:
            is_api = name == "ApiFunction"
            if not is_api:
                look("function input", payload)
            try:
                answer = kept_call(self, name, payload)
            except Exception as error:
                look("error", (str(error), repr(error), repr(vars(error))))
                raise
            if is_api:
                owner_alone.look("an answer to the owner", api_answer(answer))
            else:
                look("function output", answer)
            return answer

        def invoke(self: functions.Functions, name: str, payload: Any) -> TaskReply:
            reply = kept_invoke(self, name, payload)
            look("task reply", (reply.value, reply.error, reply.cause))
            return reply

        monkeypatch.setattr(virtual, "FixedSecrets", Secrets)
        monkeypatch.setattr(virtual, "Silent", Log)
        monkeypatch.setattr(functions.Functions, "call", call)
        monkeypatch.setattr(functions.Functions, "invoke", invoke)
        monkeypatch.setattr(run, "wishes", lambda *asked: [_with_secrets(each) for each in wishes(*asked)])
        self.simulation = Simulation(leases=leases, seed=21, faults=faults)
        self.stack = self.simulation.stack
        self.simulation.listener = self._transition
        # The provider repeats the key in what it says about a refusal, in each of its forms.
        said = f"Invalid API token {KEY}"
        ours = '"user_data"'
        self.stack.cloud.faults.add(
            Fault(method="POST", request_body=ours, status=400, error=said, execute=False, times=1),
            Fault(method="POST", request_body=ours, status=500, error=said, execute=False, times=1, skip=2),
            Fault(method="POST", request_body=ours, body=f'{{"token": "{KEY}"', times=1, skip=4),
            Fault(method="GET", status=401, error=said, execute=False, times=2, skip=40),
            Fault(method="GET", status=502, html=True, error=said, execute=False, times=2, skip=80),
            Fault(method="DELETE", status=403, error=said, execute=False, times=1, skip=2),
        )

    def run(self) -> Canaries:
        """Live all the leases, ask for everything afterwards, and search what is kept."""
        self.report = self.simulation.run()
        look = self.canaries.look
        for lease in self.stack.leases():
            for event in self.stack.events(lease.id):
                look("event", event.model_dump(mode="json"))
            record = self.stack.record(lease.id)
            look("lease row", record.lease.model_dump(mode="json", exclude={"spec": {"ssh_keys"}}))
            for resource in record.resources:
                look("resource row", resource.model_dump(mode="json"))
            if lease.kind is not LeaseKind.MACHINE:
                continue
            for path in ("", "/events"):
                self._ask("GET", f"/v1/leases/{lease.id}{path}", owner=lease.owner)
            with pytest.raises(ApiRefused) as refused:
                self.stack.api("GET", f"/v1/leases/{lease.id}", owner="arn:aws:iam::111122223333:user/eve")
            look("an answer to somebody else", refused.value.problem)
        for execution in self.stack.engine.executions():
            look("execution", (execution.name, execution.input, execution.data, execution.output, execution.cause))
        for path in ("/v1/leases", "/v1/offers", "/v1/doctor", "/v1/health", "/openapi.json"):
            self._ask("GET", path)
        self._be_refused()
        return self.canaries

    def _ask(self, method: str, path: str, body: Any = None, **more: Any) -> None:
        self.stack.api(method, path, body, **more)

    def _be_refused(self) -> None:
        """Requests that are wrong because of, or next to, what must not be repeated."""
        for wrong in (
            {"start_script": SCRIPT + "x" * 40_000},
            {"start_script": [SCRIPT]},
            {"start_script": SCRIPT, "start_script_base64": SCRIPT},
            {"start_scirpt": SCRIPT},
            {"start_script": SCRIPT, "gpu_count": 99},
            {"ssh_keys": [f"-----BEGIN OPENSSH PRIVATE KEY----- {SCRIPT}"]},
        ):
            with pytest.raises(ApiRefused) as refused:
                self.stack.api("POST", "/v1/leases", wrong)
            self.canaries.look("refusal", (refused.value.problem, str(refused.value)))

    def _transition(self, event: TransitionEvent) -> None:
        self.canaries.look("transition", repr(event))
        execution = self.stack.engine.describe(event.machine, event.execution)
        self.canaries.look("execution", (execution.input, execution.data, execution.output, execution.cause))


def _with_secrets(wish: Wish) -> Wish:
    keys = [f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE {COMMENT}"]
    return replace(wish, request={**wish.request, "start_script": f"#!/bin/sh\n{SCRIPT}\n", "ssh_keys": keys})


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Searched] = []
    root = logging.getLogger()
    handlers: list[LookingHandler] = []
    level = root.level

    def make(faults: str, leases: int = 14) -> Searched:
        made.append(Searched(monkeypatch, faults, leases))
        handlers.append(LookingHandler(made[-1].canaries))
        root.addHandler(handlers[-1])
        root.setLevel(logging.DEBUG)
        return made[-1]

    yield make
    root.setLevel(level)
    for handler in handlers:
        root.removeHandler(handler)
    for each in made:
        each.stack.close()


@pytest.mark.parametrize("faults", ["default", "all"])
def test_secrets_stay_where_they_belong(search: Any, faults: str, capfd: pytest.CaptureFixture[str]) -> None:
    searched = search(faults)

    canaries = searched.run()

    canaries.look("terminal", "".join(capfd.readouterr()))
    assert (faults == "all") == bool(searched.report.misfortunes)
    assert canaries.found == set()
    assert searched.to_owners.found == set()
    for place in ("log", "alarm", "error", "logging", "task reply", "execution", "event", "lease row", "refusal"):
        assert canaries.looked.get(place, 0) > 0, place
    books = [each for each in searched.stack.cloud.book.objects() if each.user_data]
    assert books
    at_provider = Canaries(script=SCRIPT, comment=COMMENT)
    at_provider.look("user data", books[0].user_data)
    machine = next(lease for lease in searched.stack.leases() if lease.kind is LeaseKind.MACHINE)
    at_provider.look("script row", searched.stack.ledger.start_script(machine.id))
    assert at_provider.found_in("user data") == {"script", "comment"}
    assert at_provider.found_in("script row") == {"script"}


LEAKS: dict[str, Callable[[Deps, str], object]] = {
    "log": lambda deps, lease_id: deps.log.info("chosen", script=deps.ledger.start_script(lease_id)),
    "alarm": lambda deps, lease_id: deps.notifier.alarm("x", "y", {"key": deps.secrets.provider_key("vultr")}),
    "logging": lambda deps, lease_id: logging.getLogger("x").debug("%s", deps.ledger.load(lease_id).lease.spec),
}


@pytest.mark.parametrize("place", sorted(LEAKS))
def test_a_planted_leak_is_found(search: Any, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    kept = select_offer.run

    def run(command: Any, deps: Deps) -> Any:
        LEAKS[place](deps, command.lease_id)
        return kept(command, deps)

    monkeypatch.setattr(select_offer, "run", run)

    assert place in {where for where, _ in search("default", 3).run().found}


def test_a_leak_into_an_execution_is_found(search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = select_offer.run

    def run(command: Any, deps: Deps) -> Any:
        if deps.ledger.load(command.lease_id).lease.attempts:
            return kept(command, deps)
        raise RuntimeError(f"could not run {deps.ledger.start_script(command.lease_id)!r}")

    monkeypatch.setattr(select_offer, "run", run)

    found = search("none", 1).run().found

    assert {("error", "script"), ("task reply", "script"), ("execution", "script")} <= found


def test_a_key_that_the_provider_repeats_is_found_where_nothing_masks_it(
    search: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "mask", lambda text, key: text)

    found = search("default").run().found

    assert {("error", "key"), ("event", "key")} & found


@pytest.mark.parametrize("form", [str, lambda t: t.encode().hex(), lambda t: base64.b64encode(t.encode()).decode()])
def test_a_canary_is_found_in_every_form(form: Any) -> None:
    canaries = Canaries(script=SCRIPT)

    canaries.look("x", {"deep": [form(f"ab{SCRIPT}cd")]})

    assert canaries.found_in("x") == {"script"}
