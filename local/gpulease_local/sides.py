"""The provider's side of the local server: a simulated cloud in this process, one that is served beside it, or Vultr.

Invariants: whoever answers for the machines also sets the clock; only a simulator's clock may run fast; a real provider
is always named as such.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gpulease.ports import Probe, Secrets
from gpulease.providers.http import Transport
from gpulease.providers.requests_transport import RequestsTransport
from gpulease.runtime.world import TcpProbe, monotonic
from gpulease_sim.guests import GuestHost
from gpulease_sim.vultr import Fault, Settings, VultrCloud
from gpulease_sim.vultr.state_file import StateFile

from gpulease_local.asl import ScaledClock
from gpulease_local.deps import FixedSecrets, UserSecrets
from gpulease_local.remote_simulator import RemoteSimulator, is_loopback
from gpulease_local.sim_transport import SimTransport
from gpulease_local.world import OpenPorts, continued_clock, scaled_sleep

VULTR = "vultr"


@dataclass(frozen=True)
class Side:
    """How the provider is reached, and which time holds. `words` say for people what it is."""

    words: str
    real: bool
    clock: ScaledClock
    scale: float
    transport: Transport
    secrets: Secrets
    probe: Probe
    base_url: str = ""
    cloud: VultrCloud | None = None

    @property
    def sleep(self) -> Callable[[float], None]:
        """A pause in seconds of `clock`."""
        return scaled_sleep(self.scale)


def simulated_side(
    folder: Path,
    *,
    scale: float,
    seed: int,
    settings: Settings | None,
    faults: tuple[Fault, ...],
    guests: GuestHost | None = None,
    opened: ExitStack,
) -> Side:
    """A simulated Vultr in this process, kept in `folder`."""
    clock = continued_clock(folder / "clock.json", scale)
    state = StateFile(folder / "simulated-vultr.sqlite")
    opened.callback(state.close)
    cloud = VultrCloud(clock.time, seed, settings, state=state, guests=guests)
    if faults:
        cloud.replace_faults(list(faults))
    return Side(
        words="simulated Vultr (nothing is rented, nothing costs money)",
        real=False,
        clock=clock,
        scale=scale,
        transport=SimTransport(cloud, passed=scaled_sleep(scale)),
        secrets=FixedSecrets(),
        probe=OpenPorts(cloud.ssh_open),
        cloud=cloud,
    )


def vultr_side(url: str | None, env: Mapping[str, str], keys: Path) -> Side:
    """Vultr itself, or whatever speaks its API at `url`; on this computer that may be our simulator, which is asked.

    Raises ProviderAuthFailed when a real provider has no key.
    """
    secrets = UserSecrets(env, keys)
    simulator = RemoteSimulator(url) if url and is_loopback(url) else None
    time = simulator.time() if simulator else None
    if simulator is not None and time is not None:
        return Side(
            words=f"simulated Vultr at {url} (nothing is rented, nothing costs money)",
            real=False,
            clock=ScaledClock(scale=time.scale, origin=time.now),
            scale=time.scale,
            transport=RequestsTransport(monotonic=monotonic),
            secrets=FixedSecrets(),
            probe=OpenPorts(simulator.ssh_open),
            base_url=url or "",
        )
    secrets.provider_key(VULTR)  # refused here, in one line, rather than at the first lease
    return Side(
        words="Vultr: REAL machines, real money" + (f" (API at {url})" if url else ""),
        real=True,
        clock=ScaledClock(),
        scale=1.0,
        transport=RequestsTransport(monotonic=monotonic),
        secrets=secrets,
        probe=TcpProbe(),
        base_url=url or "",
    )
