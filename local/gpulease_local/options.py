"""What a local server is asked to be, and which wishes make no sense together.

Invariant: what is real and what is simulated is never mixed. They share one clock, and only a simulated one may run
fast; and nobody should have to guess which of the machines in a list cost money.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpulease_sim.guests import GuestHost
from gpulease_sim.vultr import Fault, Settings

from gpulease_local.remote_simulator import is_loopback

if TYPE_CHECKING:
    from gpulease_sim.aws import Settings as AwsSimulator

SIMULATED, SIMULATED_AWS, VULTR, AWS = "simulated", "simulated-aws", "vultr", "aws"
IN_PROCESS = (SIMULATED, SIMULATED_AWS)
KNOWN = (*IN_PROCESS, VULTR, AWS)
ACCOUNT_OF = {SIMULATED: VULTR, SIMULATED_AWS: AWS, VULTR: VULTR, AWS: AWS}
"""Under which name leases know it: a simulated provider has the name of what it stands for."""
DEFAULT_PORT = 8765


class ServerRefused(Exception):
    """The server cannot start as asked; one line for people."""


@dataclass(frozen=True)
class AwsSetup:
    """Where and as whom machines are rented at AWS; texts as people give them, empty = not given."""

    regions: str = ""
    """Comma list. Empty = the region of the profile or the environment."""
    profile: str = ""
    """Of the user's AWS configuration; empty = as for every AWS tool."""
    subnets: str = ""
    """`us-east-1a=subnet-1,…`; empty = the default subnets."""
    security_group: str = ""
    image: str = ""
    url: str = ""
    """Of a served simulator (`gpulease simulator aws`)."""

    def completed(self, env: Mapping[str, str]) -> "AwsSetup":
        """With `GPULEASE_AWS_*` for what was not given."""
        fields = ("regions", "profile", "subnets", "security_group", "image", "url")
        found = {name: env.get(f"GPULEASE_AWS_{name.upper()}", "") for name in fields if not getattr(self, name)}
        return replace(self, **found)

    @property
    def region_names(self) -> tuple[str, ...]:
        """The named regions, in order."""
        return tuple(dict.fromkeys(each.strip() for each in self.regions.split(",") if each.strip()))


@dataclass(frozen=True)
class Options:
    """What to serve. `data_dir` (by default `<home>/local`) holds token and address, one folder in it the rest."""

    provider: str = SIMULATED
    """One of `KNOWN`, or several with commas, in order of preference."""
    port: int = DEFAULT_PORT
    data_dir: Path | None = None
    time_scale: float = 1.0
    vultr_url: str | None = None
    aws: AwsSetup = AwsSetup()
    seed: int = 0
    template: Path | None = None
    home: Path | None = None
    log_level: str = "info"
    agent_url: str | None = None
    """Where machines reach this server; None = they get no agent."""
    simulator: Settings | None = None
    """How the simulated Vultr account behaves from its first start on."""
    aws_simulator: "AwsSimulator | None" = None
    """How the simulated AWS account behaves."""
    guests: GuestHost | None = None
    """What runs on the simulated Vultr's machines; None = nothing."""
    faults: tuple[Fault, ...] = ()
    """Scripted misbehaviour of the simulated Vultr; not kept over a restart."""

    @property
    def providers(self) -> tuple[str, ...]:
        """In order of preference."""
        return tuple(each.strip() for each in self.provider.split(",") if each.strip())


def folder_name(options: Options) -> str:
    """Where the ledger is. All real providers have one: who rents at one more must not lose sight of what is rented.

    Leases at a served simulator, or at another address, are not leases at the real one: each address has its own.
    """
    url = options.vultr_url if VULTR in options.providers else None
    if AWS in options.providers:
        url = options.aws.url or url
    if url:
        names = "+".join(sorted(options.providers))
        return f"{names}-at-{re.sub(r'[^a-z0-9.]+', '-', urlsplit(url).netloc.lower())}"
    return "+".join(sorted(options.providers)) if options.providers[0] in IN_PROCESS else "real"


def check(options: Options) -> None:
    """Raise ServerRefused for what makes no sense together."""
    _check_providers(options.providers)
    simulated = options.providers[0] in IN_PROCESS
    if not 0 < options.time_scale <= 10_000:
        raise ServerRefused("the time scale must be above 0 and at most 10000")
    if not simulated and options.time_scale != 1:
        raise ServerRefused("a real provider runs in real time: the time scale is for the simulated ones")
    if options.agent_url is not None:
        _check_url(options.agent_url)
    if options.vultr_url is not None:
        if VULTR not in options.providers:
            raise ServerRefused(f"an address of Vultr's API goes with provider {VULTR}")
        _check_url(options.vultr_url)
        if is_loopback(options.vultr_url) and len(options.providers) > 1:
            raise ServerRefused(f"{options.vultr_url}: a served provider has a clock of its own; give it alone")
    if AWS in options.providers and options.aws.url:
        if not is_loopback(options.aws.url):
            raise ServerRefused(f"{options.aws.url}: only a simulator on this computer is served at an address")
        if len(options.providers) > 1:
            raise ServerRefused(f"{options.aws.url}: a served simulator has a clock of its own; give it alone")


def _check_providers(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in KNOWN:
            raise ServerRefused(f"no provider is called {name!r}; known: {', '.join(KNOWN)}")
    if not names:
        raise ServerRefused(f"no provider is named; known: {', '.join(KNOWN)}")
    if len({name in IN_PROCESS for name in names}) > 1:
        raise ServerRefused("real and simulated providers cannot be mixed: they have one clock, and one list of leases")
    if len(set(names)) < len(names):
        raise ServerRefused(f"{', '.join(names)}: each provider once")


def _check_url(url: str) -> None:
    address = urlsplit(url)
    if not address.hostname or (address.scheme != "https" and not is_loopback(url)):
        raise ServerRefused(f"{url}: must be https, or http on this computer")
