"""`gpulease local`: the whole stack on one computer, against simulated clouds or real providers.

Invariants: everything that must outlive the process is on disk before it is answered (ledger, executions, the simulated
cloud, the simulated clock), so kill -9 loses nothing and a start goes on where it was. One server per data folder. A
real provider is never driven by a clock that runs fast.
"""

import getpass
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from gpulease.domain.agent_protocol import HEARTBEAT_PATH
from gpulease.domain.resource import ResourceState
from gpulease.errors import GpuleaseError
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_agents import SqliteAgentStore
from gpulease.ledger.sqlite_drains import SqliteDrainStore
from gpulease.ledger.sqlite_offers import SqliteOfferStore
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ledger.sqlite_sweeps import SqliteSweepStore
from gpulease.ports import Ledger, Policy
from gpulease.runtime.world import RandomIds
from gpulease_sim.vultr import VultrCloud

from gpulease_local.asl import DefinitionRefused, SqliteStore
from gpulease_local.asl.engine import NAME_KEPT_SECONDS
from gpulease_local.banner import closing_lines, opening_lines
from gpulease_local.books import open_records
from gpulease_local.deps import LineLog, LogAlarms
from gpulease_local.front import Front, FrontServer
from gpulease_local.home import (
    DataLock,
    HomeRefused,
    RollingFile,
    home_of,
    kept_deployment,
    kept_token,
    private_folder,
    write_private,
)
from gpulease_local.options import DEFAULT_PORT, SIMULATED, AwsSetup, Options, ServerRefused, check, folder_name
from gpulease_local.sides import sides_of
from gpulease_local.stack import Stack, World, repository
from gpulease_local.template import TemplateRefused, read_template
from gpulease_local.world import DepsClock

__all__ = ["AwsSetup", "LocalServer", "Options", "ServerRefused", "main"]

LOG_BYTES = 20_000_000
FORGET_EXECUTIONS_EVERY_SECONDS = 86_400.0
WORKERS = 8
"""Provider calls under way at once; each may wait a minute for an answer."""
TELL_GUESTS_EVERY_SECONDS = 5.0


class LocalServer:
    """A started server. `run` moves it until told to stop; `close` ends it and frees the folder."""

    def __init__(
        self, options: Options, env: Mapping[str, str], show: Callable[[str], None] = lambda line: None
    ) -> None:
        """`show`: where a line goes that somebody must read."""
        options = replace(options, aws=options.aws.completed(env))
        check(options)
        self.options = options
        self._show = show
        home = options.home or home_of(env)
        self.public_folder = private_folder(options.data_dir or home / "local")
        self.folder = private_folder(self.public_folder / folder_name(options))
        self.stopping = threading.Event()
        with ExitStack() as opened:
            opened.callback(DataLock(self.public_folder / "lock").release)
            self.stack = self._stack(env, home, opened)
            self.stack.load()
            opened.callback(self.stack.close)
            self._have_offers()
            self.front = self._front()
            opened.callback(self.front.close)
            self._opened = opened.pop_all()

    @property
    def url(self) -> str:
        """Where the API is."""
        return self.front.url

    @property
    def cloud(self) -> VultrCloud | None:
        """The simulated Vultr of this process, if it has one."""
        return self.sides.cloud

    def run(self, stop: threading.Event | None = None) -> None:
        """Move leases and schedules until `stop` (by default `stopping`) is set."""
        self.stack.engine.run_forever(self.stopping if stop is None else stop)

    def close(self) -> None:
        """Finish what is under way, close all files. Nothing is given back: leases go on at the next start."""
        (self.public_folder / "api.json").unlink(missing_ok=True)
        self._opened.close()

    # --- parts ---

    def _stack(self, env: Mapping[str, str], home: Path, opened: ExitStack) -> Stack:
        options, folder, ids = self.options, self.folder, RandomIds()
        log_file = RollingFile(folder / "gpulease.log", LOG_BYTES)
        opened.callback(log_file.close)
        database = folder / "gpulease.sqlite"
        sides = self.sides = sides_of(options, env, folder, home / "keys", opened, self._show)
        deployment = kept_deployment(folder / "deployment.json", folder.name, ids.token)
        log = LineLog(log_file, DepsClock(sides.clock).now, options.log_level)
        ledger = SqliteLedger(database)
        opened.callback(ledger.close)
        database.chmod(0o600)
        refuse_to_lose_sight(ledger, sides.accounts)
        self._store = store = SqliteStore(database)
        opened.callback(store.close)
        world = World(
            clock=sides.clock,
            sleep=sides.sleep,
            accounts=sides.accounts,
            ledger=ledger,
            offers=SqliteOfferStore(ledger.file),
            sweeps=SqliteSweepStore(ledger.file),
            agents=SqliteAgentStore(ledger.file),
            drains=SqliteDrainStore(ledger.file),
            shared=SqliteSharedReads(ledger.file),
            ids=ids,
            secrets=sides.secrets,
            probe=sides.probe,
            notifier=LogAlarms(log, show=self._show),
            log=log,
            # Whoever holds this computer's token is the one who pays.
            policy=Policy(
                deployment=deployment,
                admins=frozenset({f"local:{getpass.getuser()}"}),
                agent_url=(options.agent_url or "").rstrip("/"),
            ),
            store=store,
            seed=options.seed,
            workers=WORKERS,
            time_scale=sides.scale,
        )
        return Stack(read_template(options.template or repository() / "template.yaml"), world)

    def _have_offers(self) -> None:
        """The first request must find offers; later starts use the kept ones and renew them on the side."""
        empty = not self.stack.deps.offers.load()
        if empty:
            self.stack.fill_price_lists()
        self.stack.start_schedules(price_lists_now=not empty)
        self.stack.engine.call_every(FORGET_EXECUTIONS_EVERY_SECONDS, self._forget_executions)
        if self.cloud is not None and self.options.guests is not None:
            # Machines boot also while nobody asks for them.
            self.stack.engine.call_every(TELL_GUESTS_EVERY_SECONDS, self.cloud.tell_guests)

    def _forget_executions(self) -> None:
        """Ended ones whose names are free again; what they did is in the ledger."""
        self._store.prune(self.sides.clock.time() - NAME_KEPT_SECONDS)

    def _front(self) -> FrontServer:
        stack, folder = self.stack, self.public_folder
        if not stack.template.routes:
            raise ServerRefused("the template has no route: there is no API to serve")
        token = kept_token(folder / "token", stack.deps.ids.token)
        routes = {route.key.partition(" ")[2]: route for route in stack.template.routes}
        route = routes.get("/{proxy+}") or stack.template.routes[0]
        agents = routes.get(HEARTBEAT_PATH)

        def front(port: int) -> Front:
            return Front(
                lambda event: stack.functions.call(route.function, event),
                port=port,
                token=token,
                user=_user(),
                now=stack.deps.clock.now,
                request_id=stack.deps.ids.token,
                on_error=lambda error: stack.deps.log.error(
                    "request_failed", error=type(error).__name__, reason=str(error)
                ),
                route_key=route.key,
                agents=None if agents is None else lambda event: stack.functions.call(agents.function, event),
                agent_host=urlsplit(self.options.agent_url or "").netloc,
            )

        try:
            server = FrontServer(self.options.port, front)
        except OSError as error:
            raise ServerRefused(f"port {self.options.port} cannot be used: {error.strerror}; give another") from error
        write_private(folder / "api.json", json.dumps({"url": server.url, "token": token}) + "\n")
        return server


def refuse_to_lose_sight(ledger: Ledger, accounts: Collection[str]) -> None:
    """A provider that is left out while something is rented there would go on billing, and nobody would look."""
    held = {
        resource.account
        for record in open_records(ledger)
        for resource in record.resources
        if resource.state is not ResourceState.RELEASED
    }
    if held - set(accounts):
        everybody = ",".join([*accounts, *sorted(held - set(accounts))])
        missing = ", ".join(sorted(held - set(accounts)))
        raise ServerRefused(f"something is still held at {missing}: start with --provider {everybody}")


def _user() -> str:
    """The name of whoever runs this; where the system knows none (a container), the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def main(
    provider: str = SIMULATED,
    port: int = DEFAULT_PORT,
    data_dir: Path | str | None = None,
    time_scale: float = 1.0,
    vultr_url: str | None = None,
    seed: int = 0,
    template: Path | str | None = None,
    *,
    log_level: str = "info",
    agent_url: str | None = None,
    aws: AwsSetup | None = None,
    env: Mapping[str, str] | None = None,
    out: TextIO | None = None,
) -> int:
    """Serve until Ctrl+C or SIGTERM. Returns the exit status: 0 after a clean end, 2 when it could not start."""
    options = Options(
        provider=provider,
        port=port,
        data_dir=None if data_dir is None else Path(data_dir).expanduser(),
        time_scale=time_scale,
        vultr_url=vultr_url,
        seed=seed,
        template=None if template is None else Path(template),
        log_level=log_level,
        agent_url=agent_url,
        aws=aws or AwsSetup(),
    )
    target = sys.stdout if out is None else out
    try:
        server = LocalServer(
            options, os.environ if env is None else env, lambda line: print(line, file=target, flush=True)
        )
    except KeyboardInterrupt:
        return 130
    except (ServerRefused, HomeRefused, TemplateRefused, DefinitionRefused, GpuleaseError) as error:
        print(f"gpulease: error: local: {error}", file=sys.stderr)
        return 2
    try:
        _say(target, opening_lines(server.stack, server.sides, server.url, server.folder, server.public_folder))
        _until_stopped(server)
        _say(target, closing_lines(server.stack, real=server.sides.real))
    finally:
        server.close()
    return 0


def _until_stopped(server: LocalServer) -> None:
    """Run until the first signal; the second one ends the process as usual."""
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, _frame: object) -> None:
        server.stopping.set()
        for each, handler in before.items():
            signal.signal(each, handler)

    for each in (signal.SIGINT, signal.SIGTERM):
        before[each] = signal.signal(each, stop)
    server.run()


def _say(out: TextIO, lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=out, flush=True)
