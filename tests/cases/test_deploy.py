"""C55: a new version comes while machines are being made and given back.

`make deploy-check` does it with the real deployment tool. Here functions are swapped for another version's in the
middle of everything, at several moments, and harder than the service would: state machines whose states have other
names end what is under way in them, and for a while no function answers.
"""

import dataclasses
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gpulease.domain.lease import LeaseState
from gpulease.domain.resource import marker_for
from gpulease_local.asl import load_definition
from gpulease_local.functions import Functions
from gpulease_local.simulate.virtual import DEPLOYMENT
from gpulease_local.stack import repository

from tests.support.case_world import ONE_METAL, R_SECONDS, CaseWorld
from tests.support.sweep_world import plant

RELEASED, RUNNING = LeaseState.RELEASED, LeaseState.RUNNING
SECOND_VERSION = """

_first = handler


def handler(event, context):
    deps.log.info("second_version")
    return _first(event, context)
"""
"""Put at the end of each function's code."""


class Deploying(Exception):
    """No function answers just now."""


@dataclass
class Deployment:
    """Another version of all functions, in a folder of its own."""

    world: CaseWorld
    folder: Path
    calls: list[tuple[float, str]] = field(default_factory=list)
    ended_executions: bool = False
    """Whether executions that were under way fail, because the state they are in is no longer there."""

    def go_live(self, *, silent_seconds: float = 0.0, other_states: bool = False) -> None:
        """From now on calls go to the new version; first there may be a time in which none answers."""
        stack = self.world.stack.stack
        shutil.copytree(repository() / "functions", self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        for app in self.folder.glob("*/app.py"):
            app.write_text(app.read_text(encoding="utf-8") + SECOND_VERSION, encoding="utf-8")
        specs = [dataclasses.replace(spec, folder=self.folder / spec.folder.name) for spec in stack.template.functions]
        new = Functions(specs, monotonic=self.world.stack.clock.time, token=stack.deps.ids.token)
        new.load_all()
        silent_until = self.world.stack.clock.time() + silent_seconds

        def call(name: str, payload: Any) -> Any:
            now = self.world.stack.clock.time()
            if now < silent_until:
                raise Deploying
            self.calls.append((now, name))
            return new.call(name, payload)

        stack.functions.call = call  # type: ignore[method-assign]
        self.ended_executions = other_states
        if other_states:
            self._rename_waits()

    def _rename_waits(self) -> None:
        stack = self.world.stack.stack
        for spec in stack.template.machines:
            text = spec.definition.read_text(encoding="utf-8")
            renamed = self.folder / spec.definition.name
            renamed.write_text(re.sub(r'"Wait(\w+)"', r'"Pause\1"', text), encoding="utf-8")
            assert renamed.read_text(encoding="utf-8") != text
            self.world.stack.engine.register(load_definition(renamed, name=spec.name, substitutions=spec.substitutions))


How = Callable[[Deployment], None]
HOW: dict[str, How] = {
    "quiet": lambda deployment: deployment.go_live(),
    "silent-for-a-while": lambda deployment: deployment.go_live(silent_seconds=45),
    "other-states": lambda deployment: deployment.go_live(other_states=True),
    "both": lambda deployment: deployment.go_live(silent_seconds=45, other_states=True),
}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
@pytest.mark.parametrize("after", [2, 33, 64])
def test_c55_a_new_version_comes_in_the_middle(
    new_world: Callable[..., CaseWorld], tmp_path: Path, how: How, after: float
) -> None:
    world = new_world()
    releasing = [world.up(name=f"r{n}", private_network="required") for n in (1, 2)]
    for lease in releasing:
        world.until(lease, RUNNING, within=600)
    forgotten = plant(world, [marker_for(DEPLOYMENT, "l-forgotten222.instance.1")])
    creating = [world.up(name="c1", private_network="required"), world.up(**{**ONE_METAL, "name": "c2"})]
    world.machine(active_seconds=60)
    for lease in releasing:
        world.down(lease)
    world.run_for(after)
    deployment, began = Deployment(world, tmp_path / "second"), world.now

    how(deployment)
    world.at(began + 2 * R_SECONDS)

    assert [world.lease(lease).state for lease in releasing] == [RELEASED, RELEASED]
    assert [world.lease(lease).state for lease in creating[:1]] == [RUNNING]
    world.until(creating[1], RUNNING, within=3600)
    assert began < world.gone_at(forgotten) <= began + 3 * R_SECONDS, "seen twice, older than V, then given back"
    assert {name for _, name in deployment.calls} >= {"PollReadinessFunction", "MarkRunningFunction", "SweepFunction"}
    assert len(world.ours("instance")) == 4, "three VMs that were asked for, and the forgotten one"
    assert len(world.ours("bare_metal")) == 1
    for lease in creating:
        world.down(lease)
    for lease in creating:
        world.until(lease, RELEASED, within=900)
    world.assert_right_at_the_end(may_log=("States.Runtime",) if deployment.ended_executions else ())


def test_c55_the_deploy_check_does_it_with_the_real_tool() -> None:
    text = (repository() / "tests" / "e2e" / "deploy_check.py").read_text(encoding="utf-8")

    assert "update_under_way(" in text
    assert '"2 provisioning, 2 releasing"' in text
