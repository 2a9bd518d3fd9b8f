"""Runs the command line in this process, against a scripted API, on a clock that only waiting moves."""

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext
from gpulease.api.app import create_app
from gpulease_cli.app import App
from gpulease_cli.main import main
from gpulease_local.front import Front, FrontServer

from tests.support.api_world import World
from tests.support.fake_api import TOKEN, FakeApi

START = datetime(2026, 1, 5, 12, 2, tzinfo=UTC)


@dataclass
class WaitingClock:
    """Time goes on by sleeping only. `on_sleep` may interrupt, as Ctrl+C does."""

    slept: float = 0.0
    on_sleep: list[Callable[[], None]] = field(default_factory=list)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.slept)

    def elapsed_seconds(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        if self.on_sleep:
            self.on_sleep.pop(0)()


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error; fails where there is not exactly one."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("gpulease: error: ")]
        return line.removeprefix("gpulease: error: ")


@dataclass
class Cli:
    """`run("ls", "--all")` runs a command line; `typed` is what the user answers (and makes it interactive)."""

    api: FakeApi
    home: Path
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    clock: WaitingClock = field(default_factory=WaitingClock)
    env: dict[str, str] = field(default_factory=dict)
    typed: str | None = None
    keys: int = 0

    def __post_init__(self) -> None:
        folder = str(self.home / ".gpulease")
        self.env = {
            "HOME": str(self.home),
            "GPULEASE_HOME": folder,
            "GPULEASE_ENDPOINT": self.api.url,
            "GPULEASE_TOKEN": TOKEN,
            **self.env,
        }

    def _new_key(self) -> str:
        self.keys += 1
        return f"key-{self.keys}"

    def run(self, *words: str) -> Result:
        if self.typed is not None:
            self.monkeypatch.setattr("sys.stdin", io.StringIO(self.typed))
        app = App(
            env=self.env,
            clock=self.clock,
            new_key=self._new_key,
            forced_interactive=self.typed is not None,
        )
        self.capsys.readouterr()
        code = main(list(words), app)
        captured = self.capsys.readouterr()
        return Result(code, captured.out, captured.err)


def interrupt() -> None:
    """What Ctrl+C does to a sleeping program."""
    raise KeyboardInterrupt


@contextmanager
def real_api(
    answer: Callable[[Mapping[str, Any]], Any],
    now: Callable[[], datetime],
    on_error: Callable[[BaseException], None],
) -> Iterator[str]:
    """The local front over what answers an API request, for a command line that talks to the real thing."""

    def front(port: int) -> Front:
        return Front(answer, port=port, token=TOKEN, user="me", now=now, request_id=lambda: "r-1", on_error=on_error)

    server = FrontServer(0, front)
    try:
        yield server.url
    finally:
        server.close()


@contextmanager
def api_over(world: World) -> Iterator[str]:
    """The API over a small world (`api_world.py`); its address."""
    app = create_app(world)
    with real_api(
        lambda event: app.resolve(event, LambdaContext()),
        world.clock.now,
        lambda error: world.log.error("request_failed", reason=str(error)),
    ) as url:
        yield url
