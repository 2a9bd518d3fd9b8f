"""What every command needs: the client, the clock, the streams, and how to ask the user.

One App is made per run and handed to commands as click's context object; tests make their own.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from gpulease_cli.clock import Clock, WallClock, new_key
from gpulease_cli.endpoint import Endpoint, discover

if TYPE_CHECKING:
    from rich.console import Console

    from gpulease_cli.client import Client


def _is_tty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


@dataclass
class App:
    """Streams are looked up when used, so that redirected ones are respected."""

    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Clock = field(default_factory=WallClock)
    new_key: Callable[[], str] = new_key
    endpoint_option: str | None = None
    token_option: str | None = None
    forced_interactive: bool | None = None
    """For tests; None = look at the streams."""

    @property
    def interactive(self) -> bool:
        """Whether there is somebody to ask."""
        if self.forced_interactive is not None:
            return self.forced_interactive
        return _is_tty(sys.stdin) and _is_tty(sys.stderr)

    @property
    def live(self) -> bool:
        """Whether progress may be drawn in place instead of as lines."""
        return _is_tty(sys.stderr) and self.env.get("TERM") != "dumb"

    def endpoint(self) -> Endpoint:
        """Raises CliError."""
        return discover(self.env, url=self.endpoint_option, token=self.token_option)

    def client(self, *, timeout_seconds: float = 30.0) -> "Client":
        from gpulease_cli.client import Client

        endpoint = self.endpoint()
        if endpoint.sends_token_in_the_clear:
            self.note(f"warning: {endpoint.url} is not encrypted; the token travels in the clear")
        sign = None
        if endpoint.is_signed and endpoint.profile is not None:
            from gpulease_cli.sigv4 import Sigv4Signer

            sign = Sigv4Signer(endpoint.profile.region, endpoint.profile.aws_profile or None)
        return Client(endpoint.url, endpoint.token, timeout_seconds=timeout_seconds, clock=self.clock, sign=sign)

    # --- output -------------------------------------------------------------------------------------------------------

    def print_json(self, value: Any) -> None:
        """The one document of a `--json` command."""
        sys.stdout.write(json.dumps(value, indent=2) + "\n")
        sys.stdout.flush()

    def print_json_line(self, value: Any) -> None:
        """One of several documents, each on a line of its own."""
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    def clear(self) -> None:
        """Begin a fresh screen, or a blank line where there is no screen."""
        sys.stdout.write("\x1b[2J\x1b[H" if _is_tty(sys.stdout) else "\n")

    def say(self, line: str = "") -> None:
        """A line of the result."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def note(self, line: str) -> None:
        """A line beside the result: progress, warnings, hints."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def error(self, line: str) -> None:
        """The one line of a command that ends badly and still has a result to print."""
        self.note(f"gpulease: error: {line}")

    def console(self, *, stderr: bool = False) -> "Console":
        """For tables and colours. Not a terminal: as wide as the content, so nothing is cut for a file or a pipe."""
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        width = None if _is_tty(stream) else 1000
        return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)

    # --- questions ----------------------------------------------------------------------------------------------------

    def confirm(self, question: str) -> bool:
        """Yes or no; no is the default. The question goes to stderr, so that stdout stays the result."""
        return self.ask(f"{question} [y/N] ", {"y": "y", "yes": "y", "n": "n", "no": "n", "": "n"}) == "y"

    def ask(self, question: str, answers: Mapping[str, str], tries: int = 3) -> str:
        """Ask until one of the answers is typed; gives its meaning. End of input or nonsense: that of an empty line."""
        for _ in range(tries):
            sys.stderr.write(question)
            sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                break
            typed = line.strip().lower()
            if typed in answers:
                return answers[typed]
        return answers[""]


def names(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
