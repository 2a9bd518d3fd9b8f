"""What runs on simulated machines, as the simulators see it: they tell when a machine boots, stops and ends, and which
volumes it sees. What a guest does then (an agent, a workload) is not theirs.

Times are the simulator's clock. Calls come in order for one machine, on the thread that drives the simulator; a guest
must not call the simulator back from inside one.
"""

from datetime import datetime
from typing import Protocol


class GuestHost(Protocol):
    """Gets the events of all machines of one simulated provider account."""

    def booted(self, machine_id: str, user_data: bytes, gpus: int, at: datetime) -> None:
        """The operating system is up; the first time cloud-init runs `user_data`. Also after a reboot or start."""
        ...

    def stopped(self, machine_id: str, at: datetime) -> None:
        """Powered off (stopped, halted, rebooting); its disk stays."""
        ...

    def ended(self, machine_id: str, at: datetime) -> None:
        """Destroyed: nothing of it is left."""
        ...

    def volume_attached(self, machine_id: str, volume_id: str, at: datetime) -> None: ...

    def volume_detached(self, machine_id: str, volume_id: str, at: datetime) -> None: ...


class NoGuests:
    """Machines on which nothing runs."""

    def booted(self, machine_id: str, user_data: bytes, gpus: int, at: datetime) -> None: ...

    def stopped(self, machine_id: str, at: datetime) -> None: ...

    def ended(self, machine_id: str, at: datetime) -> None: ...

    def volume_attached(self, machine_id: str, volume_id: str, at: datetime) -> None: ...

    def volume_detached(self, machine_id: str, volume_id: str, at: datetime) -> None: ...
