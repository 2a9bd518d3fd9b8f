"""The providers' side of the local server: simulated clouds in this process, one served beside it, or real ones.

Invariants: whoever answers for the machines also sets the clock, and there is one clock; only a simulator's clock may
run fast; a real provider is always named as such.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gpulease.ports import Probe, Secrets
from gpulease.providers.requests_transport import RequestsTransport
from gpulease.runtime.world import TcpProbe, monotonic
from gpulease_sim.vultr import VultrCloud
from gpulease_sim.vultr.state_file import StateFile

from gpulease_local.asl import ScaledClock
from gpulease_local.deps import Account, FixedSecrets, UserSecrets
from gpulease_local.options import AWS, IN_PROCESS, SIMULATED, VULTR, Options
from gpulease_local.remote_simulator import RemoteSimulator, is_loopback
from gpulease_local.sim_transport import SimTransport
from gpulease_local.world import OpenPorts, continued_clock, scaled_sleep


@dataclass(frozen=True)
class Side:
    """How one provider is reached. `words` say for people what it is."""

    words: str
    real: bool
    account: Account
    secrets: Secrets
    probe: Probe
    cloud: VultrCloud | None = None


@dataclass(frozen=True)
class Time:
    """Which time holds: real, or a simulator's."""

    clock: ScaledClock
    scale: float = 1.0


@dataclass(frozen=True)
class Sides:
    """All providers of one server, in order of preference, and the one clock they have."""

    each: tuple[Side, ...]
    time: Time

    @property
    def accounts(self) -> Mapping[str, Account]:
        """By name; an account has its provider's."""
        return {side.account.provider: side.account for side in self.each}

    @property
    def real(self) -> bool:
        """Whether anything here costs money."""
        return any(side.real for side in self.each)

    @property
    def clock(self) -> ScaledClock:
        return self.time.clock

    @property
    def scale(self) -> float:
        return self.time.scale

    @property
    def sleep(self) -> Callable[[float], None]:
        """A pause in seconds of `clock`."""
        return scaled_sleep(self.scale)

    @property
    def secrets(self) -> Secrets:
        """Each account's own."""
        return _SecretsOf({side.account.provider: side.secrets for side in self.each})

    @property
    def probe(self) -> Probe:
        """Real machines are all on one network; a simulated one is known to its own cloud."""
        return self.each[0].probe if self.real else _AnyOf(tuple(side.probe for side in self.each))

    @property
    def cloud(self) -> VultrCloud | None:
        """The simulated Vultr of this process, if it has one."""
        return next((side.cloud for side in self.each if side.cloud is not None), None)


def sides_of(
    options: Options, env: Mapping[str, str], folder: Path, keys: Path, opened: ExitStack, say: Callable[[str], None]
) -> Sides:
    """What the options name. Raises ServerRefused, or ProviderAuthFailed when a real provider has no key."""
    if options.providers[0] in IN_PROCESS:
        return _simulated(options, folder, opened)
    # Imported where it is wanted: boto3 and its models are slow to load.
    if options.providers == (AWS,) and options.aws.url:
        from gpulease_local.aws_side import served_aws_side

        return Sides(*served_aws_side(options.aws))
    if options.providers == (VULTR,):
        side, time = vultr_side(options.vultr_url, env, keys)
        return Sides((side,), time)
    return Sides(tuple(_real(name, options, env, keys, say) for name in options.providers), Time(ScaledClock()))


def _real(name: str, options: Options, env: Mapping[str, str], keys: Path, say: Callable[[str], None]) -> Side:
    if name == VULTR:
        return real_vultr_side(options.vultr_url, env, keys)
    from gpulease_local.aws_side import real_aws_side

    return real_aws_side(options.aws, say)


def _simulated(options: Options, folder: Path, opened: ExitStack) -> Sides:
    time = Time(continued_clock(folder / "clock.json", options.time_scale), options.time_scale)

    def side(name: str) -> Side:
        if name == SIMULATED:
            return simulated_side(folder, options, time, opened)
        from gpulease_local.aws_side import simulated_aws_side

        return simulated_aws_side(options.aws, time, seed=options.seed, settings=options.aws_simulator)

    return Sides(tuple(side(name) for name in options.providers), time)


def simulated_side(folder: Path, options: Options, time: Time, opened: ExitStack) -> Side:
    """A simulated Vultr in this process, kept in `folder`."""
    state = StateFile(folder / "simulated-vultr.sqlite")
    opened.callback(state.close)
    cloud = VultrCloud(time.clock.time, options.seed, options.simulator, state=state, guests=options.guests)
    if options.faults:
        cloud.replace_faults(list(options.faults))
    return Side(
        words="simulated Vultr (nothing is rented, nothing costs money)",
        real=False,
        account=Account(VULTR, SimTransport(cloud, passed=scaled_sleep(time.scale))),
        secrets=FixedSecrets(),
        probe=OpenPorts(cloud.ssh_open),
        cloud=cloud,
    )


def vultr_side(url: str | None, env: Mapping[str, str], keys: Path) -> tuple[Side, Time]:
    """Vultr itself, or whatever speaks its API at `url`; on this computer that may be our simulator, which is asked.

    Raises ProviderAuthFailed when a real provider has no key.
    """
    simulator = RemoteSimulator(url) if url and is_loopback(url) else None
    time = simulator.time() if simulator else None
    if simulator is None or time is None:
        return real_vultr_side(url, env, keys), Time(ScaledClock())
    side = Side(
        words=f"simulated Vultr at {url} (nothing is rented, nothing costs money)",
        real=False,
        account=Account(VULTR, RequestsTransport(monotonic=monotonic), url or ""),
        secrets=FixedSecrets(),
        probe=OpenPorts(simulator.ssh_open),
    )
    return side, Time(ScaledClock(scale=time.scale, origin=time.now), time.scale)


def real_vultr_side(url: str | None, env: Mapping[str, str], keys: Path) -> Side:
    """Vultr itself, or another address of its API. Raises ProviderAuthFailed when there is no key."""
    secrets = UserSecrets(env, keys)
    secrets.provider_key(VULTR)  # refused here, in one line, rather than at the first lease
    return Side(
        words="Vultr: REAL machines, real money" + (f" (API at {url})" if url else ""),
        real=True,
        account=Account(VULTR, RequestsTransport(monotonic=monotonic), url or ""),
        secrets=secrets,
        probe=TcpProbe(),
    )


class _SecretsOf:
    """`ports.Secrets` by account."""

    def __init__(self, accounts: Mapping[str, Secrets]) -> None:
        self._accounts = accounts

    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        return self._accounts[account].provider_key(account, fresh=fresh)


class _AnyOf:
    """`ports.Probe` that asks one after the other."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._probes = probes

    def tcp_open(self, address: str, port: int) -> bool:
        return any(probe.tcp_open(address, port) for probe in self._probes)
