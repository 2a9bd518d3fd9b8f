"""A simulated Vultr account (API v2) for tests, simulations and a first try without a provider key."""

from gpulease_sim.vultr.api import ConnectionCut, SimResponse
from gpulease_sim.vultr.book import Book, BookObject
from gpulease_sim.vultr.cloud import SeenCall, VultrCloud
from gpulease_sim.vultr.faults import Fault, FaultPlan, lost_answer, outage
from gpulease_sim.vultr.settings import Behaviour, MachineRule, Settings, with_boot_seconds

__all__ = [
    "Behaviour",
    "Book",
    "BookObject",
    "ConnectionCut",
    "Fault",
    "FaultPlan",
    "MachineRule",
    "SeenCall",
    "Settings",
    "SimResponse",
    "VultrCloud",
    "lost_answer",
    "outage",
    "with_boot_seconds",
]
