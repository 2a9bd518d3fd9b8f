"""A simulated Vultr account (API v2) for tests, simulations and a first try without a provider key.

It shares no code with gpulease, whose Vultr adapter it checks; it is itself checked by clients not written by
us.

In process, on any clock (Unix seconds; a virtual one makes a boot of 40 minutes cost nothing)::

    cloud = VultrCloud(clock=lambda: now, seed=1, settings=Settings(instance_limit=5))
    answer = cloud.handle("POST", "/v2/instances", {}, {"Authorization": "Bearer k", ...}, body)   # SimResponse
    answer.status, answer.json(), answer.elapsed_seconds       # the caller moves its clock by elapsed_seconds

`handle` raises `ConnectionCut` (with `elapsed_seconds` and `executed`) where no answer arrives. The cloud never
waits, never reads a real clock and has no threads; every value is drawn from the seed and the object's number,
so the order of reads changes nothing.

Over HTTP: `server.serve(cloud, clock=clock)` gives a handle with `url` (origin; the API is under /v2, the
control routes under /_control) and `close()`. `python -m gpulease_sim.vultr --port N --time-scale S --seed K
--state FILE` does it from the shell; `__main__.main(argv)` is the same as a function. `VultrCloud(...,
state=StateFile(path))` keeps everything in SQLite, committed before each answer, so that the process may be
killed at any time.

Scripting. `cloud.settings = replace(cloud.settings, …)` changes what holds from now on (`Settings`); behaviour
of machines is drawn at their creation, from `settings.vm` or `settings.metal` (`Behaviour`), changed by the
`MachineRule`s that match label, tag, plan, region or number. `cloud.faults.add(Fault(…))` makes the API in
front of the account misbehave; `outage()` and `lost_answer()` are common faults. `cloud.remove_by_hand(id)`
deletes a machine or a block as its owner would in the console; `cloud.ssh_open(address)` says whether a simulated host
accepts TCP now; `cloud.calls` are the latest calls.

Truth. `cloud.book.objects()`, `.billed()`, `.get(id)` and `.cost()` tell of every object ever created, by the
provider's own price rules: `created`, `active`, `destroyed` (when billing ended), `hourly_usd`, `cost_usd`,
`tags`, `user_data_bytes`. A machine is billed until it is gone, not until a delete is accepted.

Guests. `VultrCloud(..., guests=host)` tells a `gpulease_sim.guests.GuestHost` when machines boot (with their user data
and the number of GPUs they see), stop and end, and which blocks they have. Whoever drives the clock calls
`cloud.tell_guests()` once it has moved, at the latest at `cloud.next_guest_event()`; each API call does it as well.

Not simulated: audit logs, IAM, bandwidth, load balancers, storage gateways.
"""

from gpulease_sim.answers import ConnectionCut, SimResponse
from gpulease_sim.vultr.book import Book, BookObject
from gpulease_sim.vultr.cloud import SeenCall, VultrCloud
from gpulease_sim.vultr.faults import Fault, FaultPlan, lost_answer, outage
from gpulease_sim.vultr.settings import Behaviour, BlockBehaviour, MachineRule, Settings, with_boot_seconds

__all__ = [
    "Behaviour",
    "BlockBehaviour",
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
