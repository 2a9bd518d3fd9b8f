"""The demo's leases on a server that is killed (kill -9) again and again: `make kill-test` (KILLS=50 KILL_SEED=1).

One server process after the other over the same files. The moments are drawn from a seed and fall into every phase:
while leases are asked for, created, attached, cancelled, and given back. The simulated cloud's clock goes on while the
server is down, as a real one's would. The last line is read from the provider's book, which lies in a file of its own;
the exit status is 1 when something is billed, orphaned or doubled.
"""

import argparse
import contextlib
import random
import sys
import tempfile
from pathlib import Path

from gpulease.runtime.world import monotonic, sleep
from gpulease_cli.client import ApiProblem, ApiUnreachable, Client
from gpulease_local.demo_cases import CASES, settings_for
from gpulease_sim.vultr.state_file import StateFile

from tests.support.local_server import LocalProcess

REPOSITORY = Path(__file__).resolve().parents[2]
TIME_SCALE = 25.0
"""A start takes about a second and a half, forty simulated seconds: a machine still has most of its ten minutes."""
SHARE_WHILE_RELEASING = 0.3
LIMIT_SECONDS = 400.0


class Run:
    """Users who go on asking until they are answered, and a server that keeps dying."""

    def __init__(self, server: LocalProcess, kills: int, luck: random.Random) -> None:
        self._server = server
        self._luck = luck
        self._kills_starting = round(kills * (1 - SHARE_WHILE_RELEASING))
        self._kills = kills
        self._killed = 0
        self._ids: dict[str, str] = {}
        self._give_up = monotonic() + LIMIT_SECONDS + 3 * kills

    def play(self) -> bool:
        """All leases up and down again; False when time ran out first."""
        self._server.start()
        while self._killed < self._kills_starting:
            self._ask()
            self._strike(0.05, 3.0)
        if not self._until("running", "released"):
            return False
        while self._killed < self._kills:
            self._give_back()
            self._strike(0.0, 1.2)
        return self._until("released")

    def _strike(self, least: float, most: float) -> None:
        sleep(self._luck.uniform(least, most))
        self._server.kill()
        self._killed += 1
        sys.stderr.write(f"kill {self._killed} of {self._kills}\n")
        self._server.start()

    def _until(self, *states: str) -> bool:
        while monotonic() < self._give_up:
            self._ask()
            if states == ("released",):
                self._give_back()
            with contextlib.suppress(ApiUnreachable):
                seen = {self._client.lease(lease_id).state for lease_id in self._ids.values()}
                if len(self._ids) == len(CASES) and seen <= set(states):
                    return True
            sleep(0.2)
        return False

    @property
    def _client(self) -> Client:
        return self._server.client

    def _ask(self) -> None:
        for case in CASES:
            with contextlib.suppress(ApiUnreachable):
                lease = self._client.create_lease(case.body(), idempotency_key=f"kill-{case.name}")
                self._ids[case.name] = lease.id
                if case.cancelled and lease.state == "provisioning":
                    self._client.release(lease.id)

    def _give_back(self) -> None:
        for lease_id in self._ids.values():
            with contextlib.suppress(ApiUnreachable, ApiProblem):
                self._client.release(lease_id)


def main(kills: int, seed: int) -> int:
    """Play, stop the server, hold the provider's book against the ledger."""
    with tempfile.TemporaryDirectory(prefix="gpulease-kill-") as name:
        folder = Path(name) / "data"
        (folder / "simulated").mkdir(parents=True, mode=0o700)
        folder.chmod(0o700)
        state = StateFile(folder / "simulated" / "simulated-vultr.sqlite")
        state.write_settings(settings_for(CASES))
        state.close()
        with contextlib.closing(LocalProcess(folder, REPOSITORY, time_scale=TIME_SCALE)) as server:
            ended = Run(server, kills, random.Random(seed)).play()  # noqa: S311 - moments, not secrets
            server.stop()
            found = server.compare()
    for finding in found.findings:
        sys.stderr.write(f"found: {finding}\n")
    sys.stdout.write(
        f"kill-test: kills={kills} seed={seed} leases={found.leases} released={found.released} "
        f"billed_at_provider={found.billed} orphans={found.orphans} duplicates={found.duplicates}\n"
    )
    return 0 if ended and found.clean and found.released == len(CASES) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    raise SystemExit(main(arguments.kills, arguments.seed))
