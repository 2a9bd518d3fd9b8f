"""What happens to an instance over time: pending, running, stopping, stopped, shutting-down, terminated, gone."""

import functools
import math
from collections.abc import Callable

from gpulease_sim.aws import spots, volumes
from gpulease_sim.aws.account import Account, Machine
from gpulease_sim.aws.book import MINIMUM_SECONDS
from gpulease_sim.aws.moto_side import naive

USER_STOP = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
GUEST_STOP = ("Client.InstanceInitiatedShutdown", "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
SPOT_END = ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
SPOT_STOP = ("Server.SpotInstanceShutdown", "Server.SpotInstanceShutdown: Spot instance shutdown")
NO_CAPACITY = "Server.InsufficientInstanceCapacity"
_FORCED_SECONDS = 5.0


def later(account: Account, machine: Machine, when: float, action: Callable[[], None]) -> None:
    """Something happens to the machine then, unless its state has changed until then."""
    turn = machine.turn

    def act() -> None:
        if machine.turn == turn:
            action()

    account.at(when, act)


def enter(machine: Machine, state: str) -> None:
    """A new state; what was to come in the old one will not."""
    machine.state = state
    machine.turn += 1


def _reason(code: str) -> tuple[str, str]:
    return (code, f"{code}: {code.partition('.')[2] or code}")


def launch(account: Account, machine: Machine) -> None:
    """A new machine, or a started one, begins to boot."""
    enter(machine, "pending")
    machine.launched = account.now
    machine.moto.launch_time = naive(account.now)
    machine.boots += 1
    machine.reason = None
    machine.transition_reason = ""
    machine.interrupted = False
    behaviour = machine.behaviour
    when = account.now + machine.draws.between(behaviour.running_seconds, f"running {machine.boots}")
    action: Callable[[], None] = functools.partial(run, account, machine)
    if machine.boots == 1 and behaviour.launch_failure:
        action = functools.partial(_fail_launch, account, machine)
    elif machine.boots > 1 and behaviour.start_failure and machine.start_failures < behaviour.start_failures:
        action = functools.partial(_fail_start, account, machine)
    later(account, machine, when, action)


def _fail_launch(account: Account, machine: Machine) -> None:
    machine.reason = _reason(machine.behaviour.launch_failure)
    machine.transition_reason = machine.reason[1]
    terminated(account, machine)


def _fail_start(account: Account, machine: Machine) -> None:
    machine.start_failures += 1
    machine.boots -= 1
    machine.reason = _reason(machine.behaviour.start_failure)
    machine.transition_reason = machine.reason[1]
    enter(machine, "stopped")


def run(account: Account, machine: Machine) -> None:
    """It runs, is billed from now on and has its addresses."""
    enter(machine, "running")
    machine.running_since = account.now
    if machine.boots > 1:
        with account.moto.within():
            machine.moto.start()
        account.moto.keep_elastic(machine.region, machine.moto)
    machine.entry.begin(account.now, account.hourly(machine), MINIMUM_SECONDS)
    volumes.machine_runs(account, machine)
    name = f"{machine.boots}"
    boot = account.now + machine.draws.between(machine.behaviour.guest_boot_seconds, f"guest {name}")
    later(account, machine, boot, functools.partial(_guest_boots, account, machine))
    if machine.boots == 1:
        crash = machine.draws.between(machine.behaviour.crash_seconds, "crash")
        account.at(machine.created + crash, functools.partial(guest_shutdown, account, machine))
        reclaim = machine.draws.between(machine.behaviour.reclaim_seconds, "reclaim")
        if machine.spot and not math.isinf(reclaim):
            account.at(
                max(account.now, machine.created + reclaim - machine.behaviour.notice_seconds),
                functools.partial(reclaim_soon, account, machine, machine.created + reclaim),
            )


def _guest_boots(account: Account, machine: Machine) -> None:
    machine.guest_up = True
    seen = account.view(machine)
    for guests in list(account.guests):
        guests.booted(seen, account.now)


def checks(account: Account, machine: Machine) -> str:
    """Status of both checks: ok, initializing, impaired or not-applicable."""
    if machine.state != "running" or machine.running_since is None:
        return "not-applicable"
    if machine.impaired:
        return "impaired"
    after = machine.draws.between(machine.behaviour.ok_seconds, f"ok {machine.boots}")
    if account.now < machine.running_since + after:
        return "initializing"
    return "impaired" if machine.behaviour.impaired else "ok"


# --- stop ---


def stop(account: Account, machine: Machine, reason: tuple[str, str] = USER_STOP, *, force: bool = False) -> None:
    """Begin to stop a running one; compute is free from here on."""
    machine.reason = reason
    machine.transition_reason = f"User initiated ({_stamp(account)})" if reason is USER_STOP else reason[1]
    account.guest_ends(machine)
    enter(machine, "stopping")
    machine.entry.end(account.now)
    machine.notice_at = machine.ends_at = math.inf
    spots.instance_stops(account, machine)
    seconds = machine.draws.between(machine.behaviour.stopped_seconds, f"stopped {machine.boots}")
    if force:
        seconds = min(seconds, _FORCED_SECONDS)
    later(account, machine, account.now + seconds, functools.partial(_stopped, account, machine))


def force_stop(account: Account, machine: Machine) -> None:
    """Force=True for one that is stuck in `stopping`."""
    enter(machine, "stopping")
    later(account, machine, account.now + _FORCED_SECONDS, functools.partial(_stopped, account, machine))


def _stopped(account: Account, machine: Machine) -> None:
    enter(machine, "stopped")
    with account.moto.within():
        machine.moto.stop()
    account.moto.keep_elastic(machine.region, machine.moto)
    machine.running_since = None
    volumes.machine_stopped(account, machine)
    spots.instance_stopped(account, machine)


def guest_shutdown(account: Account, machine: Machine) -> None:
    """`shutdown` was called in the guest: stops or terminates, as the instance's attribute says."""
    if machine.state != "running":
        return
    if machine.moto.instance_initiated_shutdown_behavior == "terminate" or (
        machine.request is not None and not machine.request.persistent
    ):
        terminate(account, machine, GUEST_STOP)
    else:
        stop(account, machine, GUEST_STOP)


def reboot(account: Account, machine: Machine) -> None:
    """The guest ends and comes up again; the machine runs on."""
    account.guest_ends(machine)
    boot = account.now + machine.draws.between(machine.behaviour.guest_boot_seconds, f"guest {machine.boots}")
    later(account, machine, boot, functools.partial(_guest_boots, account, machine))


# --- terminate ---


def terminate(account: Account, machine: Machine, reason: tuple[str, str] = USER_STOP) -> None:
    """Begin the end of one that is not ending yet; compute is free from here on."""
    if not machine.live:
        return
    machine.reason = reason
    machine.transition_reason = f"User initiated ({_stamp(account)})" if reason is USER_STOP else reason[1]
    account.guest_ends(machine)
    enter(machine, "shutting-down")
    machine.entry.end(account.now)
    seconds = machine.draws.between(machine.behaviour.terminated_seconds, "terminated")
    later(account, machine, account.now + seconds, functools.partial(terminated, account, machine))


def terminated(account: Account, machine: Machine) -> None:
    """It is gone, its volumes with it or free; it is shown for another hour."""
    account.guest_ends(machine)
    enter(machine, "terminated")
    machine.ended = account.now
    machine.entry.destroy(account.now)
    volumes.machine_terminated(account, machine)
    for nic in machine.moto.nics.values():
        # moto would drop it at once where the launch described it; it lingers.
        nic.delete_on_termination = False
    with account.moto.within():
        machine.moto.terminate()
    linger = account.now + machine.draws.between(machine.behaviour.interface_linger_seconds, "linger")
    account.at(linger, functools.partial(account.moto.drop_interfaces, machine.region, machine.moto))
    account.at(account.now + machine.behaviour.visible_seconds, functools.partial(_forget, account, machine))
    spots.instance_ended(account, machine)


def _forget(account: Account, machine: Machine) -> None:
    account.machines.pop(machine.id, None)
    account.moto.drop_instance(machine.region, machine.moto, machine.reservation_id)


# --- spot ---


def reclaim_soon(account: Account, machine: Machine, ends_at: float) -> None:
    """The notice appears; the machine goes at `ends_at`."""
    if machine.state != "running" or machine.request is None:
        return
    machine.notice_at, machine.ends_at = account.now, ends_at
    spots.marked(account, machine)
    later(account, machine, ends_at, functools.partial(_reclaim, account, machine))
    if machine.guest_up:
        seen = account.view(machine)
        for guests in list(account.guests):
            guests.interruption_notice(seen, account.now, ends_at)


def _reclaim(account: Account, machine: Machine) -> None:
    machine.interrupted = True
    if machine.request is not None and machine.request.interruption != "terminate":
        stop(account, machine, SPOT_STOP)
    else:
        terminate(account, machine, SPOT_END)


def _stamp(account: Account) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(account.now, UTC).strftime("%Y-%m-%d %H:%M:%S GMT")
