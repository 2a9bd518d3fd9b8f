"""The rules of this house hold in this repository, and each check does report a planted violation."""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import house_rules
from tests.support.house_rules import Allowed

# Who else may read the clock, wait, be random or read the environment. An entry that nothing needs fails too.
IMPURE_ALLOWED = (
    Allowed("cli/gpulease_cli/app.py", "is where the command line takes its environment", frozenset({"os.environ"})),
    Allowed("cli/gpulease_cli/clock.py", "is the wall clock of the command line"),
    Allowed("layers/core/python/gpulease/guest/agent.py", "is a program of its own, which runs on rented machines"),
    Allowed("local/gpulease_local/asl/clocks.py", "is the wall clock of the local engine", frozenset({"time.time"})),
    Allowed("local/gpulease_local/server.py", "takes the environment of `gpulease local`", frozenset({"os.environ"})),
    Allowed("simulator/gpulease_sim/wall_clock.py", "is the wall clock of a simulator that is served over HTTP"),
    Allowed("tests/asl/engines.py", "waits for engines that run in real time"),
    Allowed("tests/asl/runtime_bootstrap.py", "runs inside a real function process of another engine"),
    Allowed("tests/contract/ledger/test_sqlite.py", "hands a child process an environment", frozenset({"os.environ"})),
    Allowed("tests/support/asl.py", "waits for an engine on the wall clock"),
    Allowed("tests/support/deployed.py", "hands child processes an environment", frozenset({"os.environ"})),
    Allowed("tests/support/local_server.py", "hands a child process an environment", frozenset({"os.environ"})),
    Allowed("tests/support/ministack.py", "waits for a real child process and hands it an environment"),
    Allowed("tests/unit/cli/test_main.py", "hands a child process an environment", frozenset({"os.environ"})),
    Allowed("tests/unit/test_isolation.py", "looks at the environment that tests get", frozenset({"os.environ"})),
)
LONG_ALLOWED = (
    Allowed("layers/core/python/gpulease/guest/agent.py", "is one file because that is how it is delivered"),
    Allowed("tests/asl/machines.py", "is one table of small cases, read entry by entry"),
)

Plant = Callable[[str, str], None]


@pytest.fixture
def repository(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write a file, given its path and text, into an empty repository at `tmp_path`."""

    def write(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")

    return write


# --- this repository ---


def test_clock_randomness_and_environment_are_used_in_the_runtime_alone(repository: Path) -> None:
    assert house_rules.impure_uses(repository, IMPURE_ALLOWED) == []


def test_files_stay_short(repository: Path) -> None:
    assert house_rules.long_files(repository, LONG_ALLOWED) == []


def test_handlers_import_only_the_runtime_and_their_step(repository: Path) -> None:
    assert house_rules.function_imports(repository) == []


def test_the_cli_imports_the_local_server_and_the_simulator_only_when_used(repository: Path) -> None:
    assert house_rules.eager_cli_imports(repository) == []


def test_each_step_bears_one_name_everywhere(repository: Path) -> None:
    assert house_rules.word_chain(repository) == []


# --- planted violations: clock, randomness, environment ---

IMPURE_CODE = [
    ("import datetime\nx = datetime.datetime.now()", "datetime.datetime.now"),
    ("from datetime import datetime as dt, UTC\nx = dt.now(UTC)", "datetime.datetime.now"),
    ("from datetime import datetime\nx = datetime.utcnow()", "datetime.datetime.utcnow"),
    ("import time\nx = time.time()", "time.time"),
    ("import time as t\nx = t.sleep", "time.sleep"),
    ("from time import monotonic as m\ndef f(clock=m): pass", "time.monotonic"),
    ("import uuid\nx = uuid.uuid4()", "uuid.uuid4"),
    ("from uuid import uuid4\nx = str(uuid4())", "uuid.uuid4"),
    ("import random\nx = random.choice([1])", "random.choice"),
    ("from random import Random\nx = Random(1)", "random.Random"),
    ("import secrets\nx = secrets.token_hex()", "secrets.token_hex"),
    ("import os\nx = os.environ['A']", "os.environ"),
    ("from os import environ\nx = environ.get('A')", "os.environ"),
    ("import os\nx = os.getenv('A')", "os.getenv"),
]


@pytest.mark.parametrize(("code", "name"), IMPURE_CODE)
def test_an_impure_use_in_the_core_is_reported(tmp_path: Path, plant: Plant, code: str, name: str) -> None:
    plant("layers/core/python/gpulease/steps/poll.py", code)

    assert house_rules.impure_uses(tmp_path, ()) == [
        f"layers/core/python/gpulease/steps/poll.py:2: {name} outside layers/core/python/gpulease/runtime/"
    ]


@pytest.mark.parametrize(("code", "name"), IMPURE_CODE)
def test_the_runtime_may_do_all_of_it(tmp_path: Path, plant: Plant, code: str, name: str) -> None:
    plant("layers/core/python/gpulease/runtime/clock.py", code)

    assert house_rules.impure_uses(tmp_path, ()) == []


def test_names_that_only_look_alike_are_not_reported(tmp_path: Path, plant: Plant) -> None:
    plant(
        "layers/core/python/gpulease/steps/poll.py",
        """
        import datetime
        import os

        def run(deps, time, random):
            now = deps.clock.now()
            return now, time.time(), random.random(), datetime.timedelta(1), os.path, "os.environ"
        """,
    )

    assert house_rules.impure_uses(tmp_path, ()) == []


@pytest.mark.parametrize(
    "folder", ["local/gpulease_local", "simulator/gpulease_sim", "cli/gpulease_cli", "functions/a"]
)
def test_an_impure_use_elsewhere_is_reported_unless_it_is_excused(tmp_path: Path, plant: Plant, folder: str) -> None:
    plant(f"{folder}/a.py", "import time\ntime.sleep(1)\ntime.time()")

    excused = house_rules.impure_uses(tmp_path, (Allowed(f"{folder}/a.py", "why", frozenset({"time.sleep"})),))

    assert len(house_rules.impure_uses(tmp_path, ())) == 2
    assert excused == [f"{folder}/a.py:3: time.time outside layers/core/python/gpulease/runtime/"]


def test_outside_the_core_a_seeded_generator_may_be_made_but_not_an_unseeded_one(tmp_path: Path, plant: Plant) -> None:
    plant("simulator/gpulease_sim/faults.py", "import random\na = random.Random(7)\nb = random.Random()")

    assert house_rules.impure_uses(tmp_path, ()) == [
        "simulator/gpulease_sim/faults.py:3: random.Random() outside layers/core/python/gpulease/runtime/"
    ]


def test_an_excuse_that_nothing_needs_is_reported(tmp_path: Path) -> None:
    assert len(house_rules.impure_uses(tmp_path, (Allowed("cli/gone.py", "why"),))) == 1
    assert len(house_rules.long_files(tmp_path, (Allowed("cli/gone.py", "why"),))) == 1


# --- planted violations: length and imports ---


@pytest.mark.parametrize("path", ["layers/core/python/gpulease/a.py", "tests/unit/a.py", "web/app.js"])
def test_a_file_over_400_lines_is_reported_unless_it_is_excused(tmp_path: Path, plant: Plant, path: str) -> None:
    plant(path, "x = 1\n" * 401)
    plant("cli/gpulease_cli/short.py", "x = 1\n" * 400)

    assert house_rules.long_files(tmp_path, ()) == [f"{path}: 401 lines, more than 400: split it"]
    assert house_rules.long_files(tmp_path, (Allowed(path, "why"),)) == []


@pytest.mark.parametrize(
    "code",
    [
        "import gpulease.ledger.dynamo",
        "from gpulease.providers import vultr",
        "from gpulease import domain",
        "import gpulease_sim",
    ],
)
def test_a_handler_that_reaches_past_its_wiring_is_reported(tmp_path: Path, plant: Plant, code: str) -> None:
    plant("functions/poll/app.py", f"from gpulease.runtime import step\nfrom gpulease.steps import poll\n{code}")

    findings = house_rules.function_imports(tmp_path)

    assert len(findings) == 1
    assert findings[0].startswith("functions/poll/app.py:3: ")


def test_an_eager_import_of_the_local_server_in_the_cli_is_reported(tmp_path: Path, plant: Plant) -> None:
    plant(
        "cli/gpulease_cli/main.py",
        """\
        from typing import TYPE_CHECKING
        from gpulease_local.server import serve
        if TYPE_CHECKING:
            from gpulease_sim import World

        def simulate():
            import gpulease_sim
        """,
    )

    assert house_rules.eager_cli_imports(tmp_path) == [
        "cli/gpulease_cli/main.py:2: imports gpulease_local.server.serve at module level: import it where it is used"
    ]


# --- planted violations: one name per step ---

STATE = {"Type": "Task", "Resource": "${AttachNetworkFunctionArn}", "End": True}


@pytest.fixture
def one_step(tmp_path: Path, plant: Plant) -> Path:
    """Lay out a repository of one step in which every link holds."""
    plant("statemachines/provision.asl.json", json.dumps({"States": {"AttachNetwork": STATE}}))
    plant("functions/attach_network/app.py", "")
    plant("layers/core/python/gpulease/steps/attach_network.py", "")
    plant(
        "template.yaml",
        """
        Resources:
          AttachNetworkFunction:
            Type: AWS::Serverless::Function
            Properties:
              CodeUri: functions/attach_network/
              Role: !GetAtt Role.Arn
              Name: !Sub ["${A}", {A: !Ref B}]
        """,
    )
    return tmp_path


def test_a_whole_chain_is_in_order(one_step: Path) -> None:
    assert house_rules.word_chain(one_step) == []


@pytest.mark.parametrize(
    ("broken", "finding"),
    [
        ("functions/attach_network/app.py", "there is no functions/attach_network/app.py"),
        ("layers/core/python/gpulease/steps/attach_network.py", "there is no layers/core/python/gpulease/steps/"),
        ("template.yaml", "template.yaml has no AttachNetworkFunction"),
    ],
)
def test_a_missing_link_is_reported(one_step: Path, broken: str, finding: str) -> None:
    (one_step / broken).unlink()

    findings = house_rules.word_chain(one_step)

    assert len(findings) == 1
    assert finding in findings[0]


def test_a_state_that_calls_another_function_is_reported(one_step: Path, plant: Plant) -> None:
    state = {**STATE, "Resource": "${DetachVolumeFunctionArn}"}
    plant("statemachines/provision.asl.json", json.dumps({"States": {"AttachNetwork": state}}))

    assert house_rules.word_chain(one_step) == [
        "statemachines/provision.asl.json: AttachNetwork: does not call AttachNetworkFunction"
    ]


def test_a_function_with_the_code_of_another_step_is_reported(one_step: Path) -> None:
    template = one_step / "template.yaml"
    template.write_text(template.read_text().replace("functions/attach_network/", "functions/api/"))

    findings = house_rules.word_chain(one_step)

    assert len(findings) == 1
    assert "holds the code of functions/api" in findings[0]


def test_tasks_inside_parallel_and_map_states_are_checked(one_step: Path, plant: Plant) -> None:
    inner = {"States": {"DetachVolume": STATE}}
    states = {
        "AttachNetwork": STATE,
        "Both": {"Type": "Parallel", "Branches": [inner]},
        "Each": {"Type": "Map", "ItemProcessor": {"States": {"DeleteVolume": STATE}}},
    }
    plant("statemachines/provision.asl.json", json.dumps({"States": states}))

    findings = "\n".join(house_rules.word_chain(one_step))

    assert "DetachVolume: there is no functions/detach_volume/app.py" in findings
    assert "DeleteVolume: there is no functions/delete_volume/app.py" in findings


def test_a_task_of_another_service_needs_no_function(one_step: Path, plant: Plant) -> None:
    task = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution"}
    plant("statemachines/provision.asl.json", json.dumps({"States": {"AttachNetwork": STATE, "GoOn": task}}))

    assert house_rules.word_chain(one_step) == []


def test_a_step_that_no_state_machine_has_is_reported(one_step: Path, plant: Plant) -> None:
    plant("functions/forgotten/app.py", "")
    plant("layers/core/python/gpulease/steps/forgotten.py", "")

    assert house_rules.word_chain(one_step) == ["functions/forgotten/app.py: is a step that no state machine has"]


def test_a_scheduled_function_needs_no_state_machine(one_step: Path, plant: Plant) -> None:
    plant("functions/check_leases/app.py", "")
    plant("layers/core/python/gpulease/steps/check_leases.py", "")
    template = one_step / "template.yaml"
    function = {"Type": "AWS::Serverless::Function", "Properties": {"Events": {"Minute": {"Type": "ScheduleV2"}}}}
    template.write_text(f"{template.read_text()}  CheckLeasesFunction: {json.dumps(function)}\n")

    assert house_rules.word_chain(one_step) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("statemachines/provision.json", "{}"),
        ("statemachines/provision.asl.json", '{"States": {"Done": {"Type": "Succeed"}}}'),
        ("template.yaml", "Resources: {Provision: {Type: 'AWS::Serverless::StateMachine'}}"),
    ],
)
def test_finding_no_task_where_there_are_state_machines_is_reported(
    tmp_path: Path, plant: Plant, path: str, text: str
) -> None:
    plant(path, text)

    assert len(house_rules.word_chain(tmp_path)) == 1
