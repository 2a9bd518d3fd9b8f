"""AWS as the local server reaches it: with the user's own credentials, or a simulated account here or served beside.

Invariants: no simulated account is ever reached with real credentials, and no real one at an address that was given;
what a real account refuses is said before anything is served (`aws_login.py`).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gpulease.providers.aws.options import AwsOptions, parse_subnets
from gpulease.providers.requests_transport import RequestsTransport
from gpulease.runtime.world import TcpProbe, monotonic

from gpulease_local.asl import ScaledClock
from gpulease_local.aws_login import log_in, regions_of
from gpulease_local.deps import Account, FixedSecrets
from gpulease_local.options import AWS, AwsSetup, ServerRefused
from gpulease_local.remote_simulator import RemoteSimulator
from gpulease_local.sides import Side, Time
from gpulease_local.sim_transport import NoTransport
from gpulease_local.world import OpenPorts, scaled_sleep

if TYPE_CHECKING:
    from gpulease_sim.aws import Settings

_FREE = "nothing is rented, nothing costs money"
_NOT_KEPT = "it ends with this process: leases of an earlier run are found lost"


def real_aws_side(setup: AwsSetup, say: Callable[[str], None]) -> Side:
    """The user's own account. Raises ServerRefused saying what is missing and what to do."""
    options = AwsOptions(
        regions=regions_of(setup),
        subnets=_subnets(setup),
        security_group=setup.security_group,
        image=setup.image,
        profile=setup.profile,
    )
    owner = log_in(options, say)
    where = ", ".join(options.regions)
    return Side(
        words=f"AWS: REAL machines, real money ({owner}; {where})",
        real=True,
        account=Account(AWS, RequestsTransport(monotonic=monotonic), options=options),
        secrets=FixedSecrets(),
        probe=TcpProbe(),
    )


def simulated_aws_side(setup: AwsSetup, time: Time, *, seed: int, settings: "Settings | None") -> Side:
    """A simulated account in this process. It has no state file."""
    simulated = _simulator()
    # Another one at each start: ids that come again would be taken for machines of an earlier run.
    cloud = simulated.cloud(time.clock.time, seed * 1_000_003 + int(time.clock.time()), settings)
    account = simulated.account(cloud, passed=scaled_sleep(time.scale), regions=_within(setup, cloud.settings.regions))
    return Side(
        words=f"simulated AWS ({_FREE}; {_NOT_KEPT})",
        real=False,
        account=account,
        secrets=FixedSecrets(),
        probe=OpenPorts(cloud.ssh_open),
    )


def served_aws_side(setup: AwsSetup) -> tuple[tuple[Side], Time]:
    """A simulated account that `gpulease simulator aws` serves on this computer, and its clock."""
    simulator = RemoteSimulator(setup.url)
    time = simulator.time()
    if time is None:
        raise ServerRefused(f"no simulated AWS answers at {setup.url}: start one with `gpulease simulator aws`")
    simulated = _simulator()
    regions = setup.region_names or simulated.regions
    options = AwsOptions(
        regions=tuple(regions),
        subnets=_subnets(setup),
        security_group=setup.security_group,
        image=setup.image,
        catalogue=lambda: simulated.catalogue(regions),
    )
    side = Side(
        words=f"simulated AWS at {setup.url} ({_FREE})",
        real=False,
        account=Account(AWS, NoTransport(), setup.url, options),
        secrets=FixedSecrets(),
        probe=OpenPorts(simulator.ssh_open),
    )
    return (side,), Time(ScaledClock(scale=time.scale, origin=time.now), time.scale)


def _subnets(setup: AwsSetup) -> dict[str, str]:
    try:
        subnets = parse_subnets(setup.subnets)
    except ValueError as error:
        raise ServerRefused(f"--aws-subnets: {error}") from None
    regions = setup.region_names
    for zone in subnets:
        if regions and not zone.startswith(regions):
            raise ServerRefused(f"--aws-subnets: {zone} is in none of the regions {', '.join(regions)}")
    return subnets


def _within(setup: AwsSetup, known: Sequence[str]) -> tuple[str, ...]:
    regions: tuple[str, ...] = setup.region_names or _simulator().regions
    for region in regions:
        if region not in known:
            raise ServerRefused(f"the simulated AWS has no region {region!r}; it has {', '.join(known)}")
    return regions


class _Simulator:
    """What is used of the simulated AWS, which needs a package that real use does not."""

    def __init__(self) -> None:
        from gpulease_sim.aws import AwsCloud

        from gpulease_local.simulate import virtual_aws

        self.cloud = AwsCloud
        self.account: Any = virtual_aws.aws_account
        self.catalogue = virtual_aws.catalogue
        self.regions: tuple[str, ...] = virtual_aws.REGIONS


def _simulator() -> _Simulator:
    try:
        return _Simulator()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "moto":
            raise
        raise ServerRefused("the simulated AWS needs the extra packages: pip install 'gpulease[sim]'") from None
