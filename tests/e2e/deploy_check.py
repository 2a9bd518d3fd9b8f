"""`make deploy-check`: is the stack deployed, does a lease live its whole life in it, and does an update harm nobody?

Everything is real but the cloud: the SAM CLI builds and deploys, functions run under their own roles, requests are
signed, and pauses between polls take their time. What takes long and needs nothing of the rest goes on beside it. The
last line says what was found, and is printed whatever that is; the exit status is 0 only when all is as it should be.
"""

import contextlib
import json
import re
import socketserver
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpulease.ledger.dynamo import DynamoLedger
from gpulease.runtime.world import RandomIds, SystemClock, monotonic, sleep
from gpulease_cli.client import ApiProblem, Client
from gpulease_cli.views import LeaseView
from gpulease_local.books import Comparison, all_records, compare
from gpulease_sim.vultr import BookObject

from tests.support import template_checks
from tests.support.deploy_report import NotAsExpected, Report, until
from tests.support.deployed import STACK, Caller, Deployed, Sam, Simulator
from tests.support.ministack import REGION, server

REPOSITORY = Path(__file__).resolve().parents[2]
TIME_SCALE = 60.0
UPDATED = "+changed"
KEY = "check-key-0123456789"
SLOWER_SECONDS = 10.0
"""By how much machines are slower than two deployments, so that those under way last longer than one."""
SPEC = {"gpu_count": 1, "plan_kinds": ["vm"], "max_duration_seconds": 3600}
SCHEDULED = ("CheckLeasesFunction", "SweepFunction", "RefreshOffersFunction")


def main() -> int:
    """Run the check. 0 = everything as expected."""
    report = Report()
    complete = False
    try:
        with tempfile.TemporaryDirectory(prefix="gpulease-deploy-") as work:
            _check(report, Path(work))
        complete = True
    except Exception as error:
        report.say(f"FAILED: {type(error).__name__}: {error}")
        if "--trace" in sys.argv:
            raise
    print(report.line())
    return 0 if complete and report.as_expected else 1


def _check(report: Report, work: Path) -> None:
    with contextlib.ExitStack() as stack:
        sam = Sam(server(checks_policies=True), work, REPOSITORY)
        ssh_port = stack.enter_context(_open_port())
        settings = {"public_address": "127.0.0.1", "requests_per_second": None}
        simulator = Simulator.start(time_scale=TIME_SCALE, settings=settings, repository=REPOSITORY)
        stack.callback(simulator.stop)
        # Nothing runs on the simulated machines here: that their SSH port answers is what makes them ready.
        parameters = {"VultrUrl": simulator.url, "SshPort": str(ssh_port), "Agents": "false"}

        report.say("stand-in of AWS and simulated Vultr: they answer")
        source = sam.copy("stack")
        beside = stack.enter_context(ThreadPoolExecutor(max_workers=3))
        checks = [beside.submit(check, sam, source) for check in template_checks.ALL]
        built = beside.submit(sam.build, source)
        for check in checks:
            report.say(check.result())
        built.result()
        report.say("built")
        began = monotonic()
        sam.deploy(source, parameters)
        deployed = Deployed(sam.server)
        report.found["stack"] = deployed.status()
        report.say(f"stack: {report.found['stack']}")

        slow_seconds = 2 * (monotonic() - began) + SLOWER_SECONDS
        world = World(report, sam, deployed, simulator, Caller.create(sam.server, "alice"), slow_seconds)
        runs_before = world.make_schedules_frequent()
        change = beside.submit(_change, sam, source)
        world.configure_command_line()
        world.fill_catalogue()
        world.live_one_lease(Caller.create(sam.server, "mallory"))
        releasing = world.rent_beside_a_failed_workflow()
        world.see_schedules_fire(runs_before)
        change.result()
        report.say("another version: built")
        world.update_under_way(source, parameters, releasing)
        world.compare_books()
        world.delete_stack(source)


def _change(sam: Sam, source: Path) -> None:
    """Make another version of what lies in `source` and build it."""
    module = source / "layers" / "core" / "python" / "gpulease" / "__init__.py"
    text = module.read_text(encoding="utf-8")
    changed = re.sub(r'^(__version__ = ".*)"$', rf'\1{UPDATED}"', text, flags=re.MULTILINE)
    if changed == text:
        raise NotAsExpected(f"{module} says no version")
    module.write_text(changed, encoding="utf-8")
    sam.build(source)


@contextlib.contextmanager
def _open_port() -> Iterator[int]:
    """A port of this computer that accepts connections: every simulated machine's SSH."""

    class Accept(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            """Nothing is said: that the connection was accepted is all that is looked at."""

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Accept) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        yield int(listener.server_address[1])
        listener.shutdown()


@dataclass
class World:
    """The deployed stack, its provider and its user; each method is one part of the check."""

    report: Report
    sam: Sam
    deployed: Deployed
    simulator: Simulator
    user: Caller
    slow_seconds: float

    @property
    def api(self) -> Client:
        """The API as its user sees it."""
        return self.user.client(self.deployed.api_url())

    def configure_command_line(self) -> None:
        """The command line finds the stack, and puts the provider's key where the functions look for it."""
        missing = self._gpulease("configure", "--stack", "nowhere", expected=4)
        if "there is no stack 'nowhere'" not in missing:
            raise NotAsExpected(f"configure of a missing stack: {missing}")
        self._gpulease("configure", "--stack", STACK)
        self._gpulease("secrets", "set", "vultr", typed=KEY)
        stored = self.sam.server.client("secretsmanager").get_secret_value(SecretId=f"gpulease/{STACK}/vultr")
        if stored["SecretString"] != KEY:
            raise NotAsExpected("the stored key is not the one that was typed")
        # The stand-in serves the API under another address than AWS would.
        config = self.sam.work / "gpulease" / "config.toml"
        output = self.deployed.outputs()["ApiUrl"]
        config.write_text(config.read_text().replace(output, self.deployed.api_url()))
        leases = self._gpulease("ls", "--json", caller=self.user)
        refused = self._gpulease("ls", caller=Caller("", "AKIAUNKNOWN000000000", "x"), expected=5)
        if json.loads(leases)["leases"] or "did not let you in (403" not in refused:
            raise NotAsExpected(f"ls: {leases!r}; with wrong credentials: {refused!r}")
        self.report.say("command line: configured, key stored, signs its requests")

    def fill_catalogue(self) -> None:
        """One round of reading offers."""
        done = self.deployed.invoke("RefreshOffersFunction")
        if done["failed"] or not done["offers"]:
            raise NotAsExpected(f"refresh_offers: {done}")
        self.report.say(f"catalogue: {done['offers']} offers")

    def live_one_lease(self, stranger: Caller) -> None:
        """From accepted to released through the API, with others kept out."""
        self.report.found["unsigned"] = _status(lambda: next(Client(self.deployed.api_url()).leases(), None))
        lease = self._rent("first")
        other = stranger.client(self.deployed.api_url())
        seen, ended = _status(lambda: other.lease(lease)), _status(lambda: other.release(lease))
        listed = [each.id for each in other.leases()]
        self.report.found["foreign"] = seen if seen == ended and not listed else f"{seen}/{ended}/{len(listed)}"
        self._wait_for({lease: "running"}, 240)
        self.report.say("lease: running")
        self.api.release(lease)
        self._wait_for({lease: "released"}, 240)
        self.report.found["lease"] = self.api.lease(lease).state
        self.report.say("lease: released")

    def make_schedules_frequent(self) -> dict[str, int]:
        """The rare schedules are made frequent for the occasion; how often each called its function before."""
        scheduler = self.sam.server.client("scheduler")
        before = {name: self._runs(name) for name in SCHEDULED}
        for listed in scheduler.list_schedules()["Schedules"]:
            kept = scheduler.get_schedule(Name=listed["Name"], GroupName=listed["GroupName"])
            wanted = ("Name", "GroupName", "FlexibleTimeWindow", "Target", "State")
            scheduler.update_schedule(
                **{name: kept[name] for name in wanted if name in kept}, ScheduleExpression="rate(1 minute)"
            )
        return before

    def see_schedules_fire(self, before: dict[str, int]) -> None:
        """Each schedule has called its function since then, not counting the one call that the check made itself."""
        own = {"RefreshOffersFunction": 1}
        until(
            lambda: all(self._runs(name) > before[name] + own.get(name, 0) for name in SCHEDULED),
            150,
            "schedules did not fire",
        )
        self.report.say(f"schedules: {', '.join(SCHEDULED)} called")

    def rent_beside_a_failed_workflow(self) -> list[str]:
        """Two leases that will be slow to give back; the workflow of one is aborted, told of and started again."""
        self._machines(destruction_seconds=self.slow_seconds)
        leases = [self._rent("r1"), self._rent("r2")]
        machines = self.sam.server.client("stepfunctions")
        arn = f"{self.deployed.resources()['ProvisionStateMachine']}".replace(":stateMachine:", ":execution:")
        machines.stop_execution(executionArn=f"{arn}:{leases[0]}-provision-1", error="Aborted", cause="by the check")

        def goes_on() -> bool:
            self.deployed.invoke("CheckLeasesFunction")
            return any(each.kind == "workflow_restarted" for each in self.api.all_events(leases[0]))

        try:
            until(goes_on, 120, "an aborted workflow was not started again")
        except NotAsExpected as late:
            told = [line for line in self.deployed.log_lines("CheckLeasesFunction") if line["level"] != "INFO"]
            raise NotAsExpected(f"{late}: {_why(self.api, self.api.lease(leases[0]))}; {told[-5:]}") from None
        [restart] = [each for each in self.api.all_events(leases[0]) if each.kind == "workflow_restarted"]
        if restart.raw["facts"]["told"] is not True:
            raise NotAsExpected("an aborted workflow was found by its lease's own due time, not by its message")
        self._wait_for(dict.fromkeys(leases, "running"), 240)
        self.report.say("two more leases: running, one after its workflow was aborted and told of through the queue")
        return leases

    def update_under_way(self, source: Path, parameters: dict[str, str], releasing: list[str]) -> None:
        """A new version is deployed while two machines are being made and two given back (case C55)."""
        self._machines(active_seconds=self.slow_seconds, destruction_seconds=2)
        creating = [self._rent("c1"), self._rent("c2")]
        for lease in releasing:
            self.api.release(lease)
        until(lambda: all(self._asked(lease) for lease in creating), 120, "nothing was asked of the provider")
        before = self._states(creating, releasing)
        self.report.say(f"under way: {before}")
        self.sam.deploy(source, parameters)
        status, after = self.deployed.status(), self._states(creating, releasing)
        self.report.say(f"update: {status}, leases {before} → {after}")
        version = str(self.api.health()["version"])
        self._wait_for(dict.fromkeys(creating, "running") | dict.fromkeys(releasing, "released"), 400)
        for lease in creating:
            self.api.release(lease)
        self._wait_for(dict.fromkeys(creating, "released"), 400)
        self.report.say("update: two leases went on to run, two to be released")
        wrong = [
            status if status != "UPDATE_COMPLETE" else "",
            f"version-{version}" if not version.endswith(UPDATED) else "",
            "not-under-way" if {before, after} != {"2 provisioning, 2 releasing"} else "",
        ]
        self.report.found["update"] = ",".join(filter(None, wrong)) or "ok"

    def compare_books(self) -> None:
        """The provider's own book against the ledger."""
        comparison = self._comparison()
        left = comparison.orphans + comparison.duplicates + comparison.billed
        self.report.found["orphans"] = str(left)
        machines = sum(bill.machines for bill in comparison.bills)
        self.report.say(f"books: {comparison.leases} leases, {machines} machines, {comparison.released} released")
        for finding in comparison.findings:
            self.report.say(f"  {finding}")
        if not comparison.clean:
            raise NotAsExpected("the provider's book and the ledger disagree")

    def delete_stack(self, source: Path) -> None:
        """The stack goes, its ledger stays."""
        table = self.deployed.resources()["LedgerTable"]
        self.sam.run("sam", "delete", "--stack-name", STACK, "--no-prompts", "--region", REGION, cwd=source)
        left = self.sam.server.client("dynamodb").list_tables()["TableNames"]
        if left != [table]:
            raise NotAsExpected(f"tables after the stack was deleted: {left}")
        self.report.say("deleted: the ledger is what is left of the stack")

    # --- parts --------------------------------------------------------------------------------------------------------

    def _gpulease(self, *words: str, typed: str = "", caller: Caller | None = None, expected: int = 0) -> str:
        """Run the command line in a process of its own, as an administrator or as `caller`; what it printed."""
        done = subprocess.run(  # noqa: S603 - our own command line
            [sys.executable, "-m", "gpulease_cli", *words],
            cwd=REPOSITORY,
            env={
                "PATH": "/usr/bin:/bin",
                "GPULEASE_HOME": str(self.sam.work / "gpulease"),
                "AWS_ENDPOINT_URL": self.sam.server.endpoint_url,
                "AWS_REGION": REGION,
                "AWS_CONFIG_FILE": str(self.sam.work / "no-config"),
                "AWS_SHARED_CREDENTIALS_FILE": str(self.sam.work / "no-credentials"),
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_ACCESS_KEY_ID": caller.access_key if caller else "test",
                "AWS_SECRET_ACCESS_KEY": caller.secret_key if caller else "test",
            },
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != expected:
            raise NotAsExpected(f"gpulease {' '.join(words)}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout if expected == 0 else done.stderr

    def _rent(self, name: str) -> str:
        return self.api.create_lease({**SPEC, "name": name}, idempotency_key=f"check-{name}").id

    def _wait_for(self, wanted: dict[str, str], seconds: float) -> None:
        api = self.api

        def reached() -> bool:
            for lease, state in wanted.items():
                view = api.lease(lease)
                if view.state == "released" and state != "released":
                    raise NotAsExpected(f"{lease} ended: {_why(api, view)}")
                if view.state != state:
                    return False
            return True

        try:
            until(reached, seconds, f"not reached: {wanted}")
        except NotAsExpected as late:
            states = {lease: api.lease(lease).state for lease in wanted}
            faults = "; ".join(self.deployed.faults()) or "no fault in any execution"
            stories = " / ".join(_why(api, api.lease(lease)) for lease in wanted if states[lease] != wanted[lease])
            raise NotAsExpected(f"{late}, but {states}: {faults}: {stories}") from None

    def _asked(self, lease: str) -> bool:
        return any(each.provider_id for each in self.api.lease(lease).resources)

    def _states(self, *leases: list[str]) -> str:
        states = [self.api.lease(lease).state for group in leases for lease in group]
        return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))

    def _machines(self, **seconds: float) -> None:
        """How long machines that are created from now on take, in seconds of this computer's clock."""
        self._control("POST", "settings", {"vm": {name: value * TIME_SCALE for name, value in seconds.items()}})

    def _runs(self, function: str) -> int:
        return sum(line.get("message") == "schedule_done" for line in self.deployed.log_lines(function))

    def _comparison(self) -> Comparison:
        here, ids = self.sam.server, RandomIds()
        resources = self.deployed.resources()
        ledger = DynamoLedger(here.client("dynamodb"), resources["LedgerTable"], ids=ids, sleep=sleep)
        function = here.client("lambda").get_function_configuration(FunctionName=resources["ApiFunction"])
        deployment = function["Environment"]["Variables"]["GPULEASE_DEPLOYMENT"]
        wire = self._control("GET", "book?all=1")["objects"]
        book = [_book_object(each) for each in wire]
        return compare(book, all_records(ledger), deployment, SystemClock().now())

    def _control(self, method: str, route: str, body: Any = None) -> Any:
        url = f"{self.simulator.origin}/_control/{route}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.loads(answer.read() or b"null")


def _book_object(wire: dict[str, Any]) -> BookObject:
    money = {name: Decimal(wire[name]) for name in ("hourly_usd", "cost_usd")}
    return BookObject(**{**wire, **money, "tags": tuple(wire["tags"])})


def _status(call: Callable[[], object]) -> str:
    """The HTTP status of a call through the client; 200 where it was let in."""
    try:
        call()
    except ApiProblem as problem:
        return str(problem.status)
    return "200"


def _why(api: Client, view: LeaseView) -> str:
    return "; ".join(event.text for event in api.all_events(view.id))


if __name__ == "__main__":
    sys.exit(main())
