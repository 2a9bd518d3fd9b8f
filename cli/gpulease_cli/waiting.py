"""Asks for leases again and again until each is as wanted.

Invariant: an API that is away for a while ends nothing. The lease lives in the deployment, not in this process.
"""

from collections.abc import Callable, Sequence

from gpulease_cli.app import App
from gpulease_cli.client import ApiProblem, ApiUnreachable, Client
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode
from gpulease_cli.progress import Progress
from gpulease_cli.text import duration
from gpulease_cli.views import LeaseView

LONGEST_OUTAGE_SECONDS = 180.0
"""So long in a row the API may be away before the waiting ends (a restart of `gpulease local` takes seconds)."""


def usual_pause_seconds(waited_seconds: float) -> float:
    """Short while a VM may become ready, long where only bare metal still boots: each request has its price."""
    steps = ((20, 1.0), (120, 2.0), (300, 5.0), (600, 15.0))
    return next((pause for until, pause in steps if waited_seconds < until), 30.0)


class WaitTimedOut(CliError):
    """The time for waiting is over; the leases go on."""


class Waiter:
    """Waits for some leases; can be asked to go on after an interruption, and counts its time-out over all of it."""

    def __init__(self, app: App, client: Client, leases: Sequence[LeaseView], timeout_seconds: int | None) -> None:
        self._app = app
        self._client = client
        self.leases = list(leases)
        self._started = app.clock.elapsed_seconds()
        self._timeout_seconds = timeout_seconds
        self._outage_since: float | None = None

    def run(self, progress: Progress, done: Callable[[LeaseView], bool]) -> None:
        """Returns when all are done. Raises WaitTimedOut, ApiError (away for too long), KeyboardInterrupt."""
        with progress:
            progress.show(self.leases, self._client.now())
            while not all(done(lease) for lease in self.leases):
                self._app.clock.sleep(self._pause_seconds())
                for i, lease in enumerate(self.leases):
                    if not done(lease):
                        self.leases[i] = self._read(lease, progress)
                progress.show(self.leases, self._client.now())

    def _read(self, lease: LeaseView, progress: Progress) -> LeaseView:
        now = self._app.clock.elapsed_seconds()
        try:
            fresh = self._client.lease(lease.id)
        except (ApiUnreachable, ApiProblem) as error:
            if isinstance(error, ApiProblem) and error.status < 500 and error.status != 429:
                raise
            if self._outage_since is None:
                self._outage_since = now
                progress.note(f"the API does not answer ({error}); still trying, the lease goes on without it")
            if now - self._outage_since > LONGEST_OUTAGE_SECONDS:
                raise
            return lease
        self._outage_since = None
        return fresh

    def _pause_seconds(self) -> float:
        """Short while things go quickly, longer later; never past the time-out. Raises WaitTimedOut after that."""
        waited = self._app.clock.elapsed_seconds() - self._started
        pause = usual_pause_seconds(waited)
        if self._timeout_seconds is None:
            return pause
        left = self._timeout_seconds - waited
        if left <= 0:
            states = ", ".join(f"{lease.label} is {lease.state}" for lease in self.leases)
            raise WaitTimedOut(
                f"{duration(waited)} are over and {states}; it goes on and is billed, "
                "see it with `gpulease show`, give it back with `gpulease down`",
                field="--timeout",
                code=ExitCode.TIMED_OUT,
            )
        return min(pause, left)
