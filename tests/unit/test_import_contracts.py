"""The import contracts of pyproject.toml do break when one of them is broken on purpose."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PARTS = ["runtime", "steps", "api", "providers", "ledger", "domain"]

VIOLATIONS = [
    ("core-layers", "gpulease/domain/a.py", "import gpulease.ports"),
    ("core-layers", "gpulease/ledger/a.py", "import gpulease.providers"),
    ("core-layers", "gpulease/steps/a.py", "import gpulease.api"),
    ("core-layers", "gpulease/utils.py", ""),
    ("steps-and-api-know-only-ports", "gpulease/steps/a.py", "import gpulease.ledger"),
    ("steps-and-api-know-only-ports", "gpulease/api/a.py", "def f():\n    import gpulease.providers"),
    ("domain-is-pure", "gpulease/domain/a.py", "import requests"),
    ("domain-is-pure", "gpulease/domain/a.py", "import boto3"),
    ("providers-do-not-know-each-other", "gpulease/providers/one.py", "import gpulease.providers.two"),
    ("core-stands-alone", "gpulease/runtime/a.py", "import gpulease_local"),
    ("simulator-stands-alone", "gpulease_sim/a.py", "import gpulease.errors"),
    ("cli-talks-to-the-api", "gpulease_cli/a.py", "def f():\n    import gpulease.steps"),
    ("asl-interpreter-stands-alone", "gpulease_local/asl/a.py", "from gpulease import errors"),
]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Lay out packages with the project's names in which every contract holds."""
    modules = {f"gpulease/{part}/__init__.py": "" for part in PARTS} | {
        "gpulease/__init__.py": "",
        "gpulease/errors.py": "",
        "gpulease/ports.py": "import gpulease.domain, gpulease.errors",
        "gpulease/providers/http.py": "import requests",
        "gpulease/providers/one.py": "import gpulease.providers.http, gpulease.ports",
        "gpulease/providers/two.py": "import gpulease.providers.http, gpulease.ports",
        "gpulease/steps/poll.py": "import gpulease.ports",
        "gpulease/runtime/deps.py": "import boto3, gpulease.providers.one, gpulease.ledger, gpulease.steps.poll",
        "gpulease_cli/__init__.py": "",
        "gpulease_cli/main.py": "def f():\n    import gpulease_local.server, gpulease_sim",
        "gpulease_local/__init__.py": "",
        "gpulease_local/server.py": "import gpulease.runtime.deps, gpulease_local.asl",
        "gpulease_local/asl/__init__.py": "",
        "gpulease_sim/__init__.py": "",
    }
    for path, text in modules.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def _lint(packages: Path, config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from importlinter.cli import lint_imports_command as c; c()"
    )
    command = [sys.executable, "-c", code, str(packages), "--config", str(config), "--no-cache", "--no-logo", *options]
    return subprocess.run(command, cwd=packages, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603


def test_sound_packages_keep_every_contract(packages: Path, pytestconfig: pytest.Config) -> None:
    result = _lint(packages, pytestconfig.rootpath / "pyproject.toml")

    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(("contract", "path", "code"), VIOLATIONS)
def test_a_forbidden_import_breaks_its_contract(
    packages: Path, pytestconfig: pytest.Config, contract: str, path: str, code: str
) -> None:
    (packages / path).write_text(code)

    result = _lint(packages, pytestconfig.rootpath / "pyproject.toml", "--contract", contract)

    assert result.returncode == 1, result.stdout + result.stderr
    assert "1 broken" in result.stdout


def test_every_contract_has_a_violation_to_prove_it(pytestconfig: pytest.Config) -> None:
    config = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())

    assert {c["id"] for c in config["tool"]["importlinter"]["contracts"]} == {name for name, _, _ in VIOLATIONS}
