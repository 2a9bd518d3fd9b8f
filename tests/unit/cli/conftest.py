"""A scripted API and a command line in front of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_world import Cli
from tests.support.fake_api import FakeApi, serving


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving(FakeApi()) as served:
        yield served


@pytest.fixture
def cli(api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(api, tmp_path, capsys, monkeypatch)
