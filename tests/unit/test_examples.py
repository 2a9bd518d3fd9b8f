"""The files in `examples/` are what they say: the API's own models read them, and the scripts do their work."""

import ast
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from gpulease.api.schemas import LeaseRequest
from gpulease.domain.policy import Then
from gpulease.domain.spec import MAX_START_SCRIPT_BYTES
from gpulease_cli.request import build, from_file
from gpulease_local.server import LocalServer, Options

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LEASES = ("train.yaml", "dev-box.yaml", "lease.json")
SCRIPTS = ("finetune.sh", "session.sh")
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
BASH = shutil.which("bash") or "bash"


def _request(name: str, **more: Any) -> LeaseRequest:
    """As the command line reads it, and then as the API does."""
    body = build(from_file(str(EXAMPLES / name)), more).body
    return LeaseRequest.model_validate_json(json.dumps(body))


def test_each_file_is_tested_here_and_told_of() -> None:
    files = {each.name for each in EXAMPLES.iterdir()}
    told = (EXAMPLES / "README.md").read_text(encoding="utf-8")

    assert files == {*LEASES, *SCRIPTS, "README.md"}
    assert [name for name in (*LEASES, *SCRIPTS) if f"({name})" not in told] == []


@pytest.mark.parametrize("name", LEASES)
def test_a_lease_file_is_a_request_that_the_api_takes(name: str) -> None:
    request = _request(name)

    assert request.name and request.gpu
    assert request.policy is not None and request.policy.budget_usd is not None
    assert request.policy.idle.enabled


def test_the_training_lease_keeps_the_work_of_its_start_script() -> None:
    request = _request("train.yaml", start_script=(EXAMPLES / "finetune.sh").read_text(encoding="utf-8"))

    assert request.cache is not None and request.policy is not None
    assert {"/root/work", "/root/.cache/huggingface"} <= set(request.cache.mounts)
    assert request.policy.idle.then is Then.PAUSE
    assert 0 < len(request.script()) <= MAX_START_SCRIPT_BYTES


def _program(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!{BASH}\n{text}\n")
    file.chmod(0o755)


def _run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own script
        [BASH, str(EXAMPLES / script)],
        env={"PATH": PATH, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_start_script_makes_a_service_that_each_boot_and_each_machine_goes_on_with(tmp_path: Path) -> None:
    work, units, programs = tmp_path / "work", tmp_path / "units", tmp_path / "programs"
    units.mkdir()
    said = tmp_path / "said"
    _program(programs, "systemctl", f'echo "systemctl $*" >> {said}')
    # Neither packages nor a GPU are here: Python's own part is what it is asked to do.
    python = f'echo "python $*" >> {said}'
    _program(programs, "python3", f'[ "$2" = venv ] && mkdir -p "$3/bin" && cp {programs}/venv-python "$3/bin/python"')
    _program(programs, "venv-python", python)
    given = {"WORK": str(work), "UNITS": str(units), "PATH": f"{programs}:{PATH}"}

    first = _run("finetune.sh", **given)
    again = _run("finetune.sh", **given)

    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    ast.parse((work / "train.py").read_text(encoding="utf-8"))
    unit = (units / "train.service").read_text(encoding="utf-8")
    assert f"exec $$(command -v gpulease-busy || true) {work}/venv/bin/python {work}/train.py" in unit
    lines = said.read_text(encoding="utf-8").splitlines()
    assert lines[-1] == "systemctl start --no-block train.service"
    assert sum("pip install" in line for line in lines) == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_the_session_with_curl_rents_and_gives_back(tmp_path: Path) -> None:
    server = LocalServer(Options(port=0, data_dir=tmp_path / "home" / "local", time_scale=200.0), {})
    loop = threading.Thread(target=server.run)
    loop.start()
    try:
        done = _run("session.sh", GPULEASE_HOME=str(tmp_path / "home"), HOME=str(tmp_path), EVERY_SECONDS="0.2")
        cloud = server.cloud
        assert cloud is not None
        left = cloud.book.billed()
    finally:
        server.stopping.set()
        loop.join()
        server.close()

    assert done.returncode == 0, done.stdout + done.stderr
    assert "connect: ssh " in done.stdout and done.stdout.splitlines()[-1] == "done: user"
    assert left == []


def test_the_session_ends_with_what_the_api_refuses(tmp_path: Path) -> None:
    server = LocalServer(Options(port=0, data_dir=tmp_path / "local"), {})
    try:
        done = _run("session.sh", GPULEASE_ENDPOINT=server.url, GPULEASE_TOKEN="wrong", HOME=str(tmp_path))  # noqa: S106
    finally:
        server.close()

    assert done.returncode != 0 and "POST /v1/leases?dry_run=true: 401" in done.stderr
