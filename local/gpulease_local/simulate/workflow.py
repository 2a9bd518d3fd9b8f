"""A workflow whose effects are crash points, and small accounts that behave the same in every run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpulease_sim.aws import Behaviour as AwsBehaviour
from gpulease_sim.aws import Settings as AwsSettings
from gpulease_sim.vultr import Behaviour, BlockBehaviour, Settings

VM = Behaviour(
    active_seconds=(20, 20),
    ok_seconds=(12, 12),
    slow_ok_probability=0,
    locked_seconds=(4, 4),
    lock_tail_seconds=(3, 3),
    ssh_seconds=(8, 8),
    restart_seconds=(3, 3),
    list_lag_seconds=(2, 2),
    ghost_seconds=(0, 0),
    destruction_seconds=(8, 8),
    destruction_get_error_probability=1,
    quota_hold_seconds=(0, 0),
    vpc_hold_seconds=(9, 9),
    slow_vpc_hold_probability=0,
    attach_failures=(1, 1),
    attach_seconds=(4, 4),
    detach_seconds=(0, 0),
)
"""A machine that boots fast, so that polls are few, and still goes through every phase."""
METAL = Behaviour(
    active_seconds=(70, 70),
    ok_seconds=(0, 0),
    slow_ok_probability=0,
    locked_seconds=(0, 0),
    lock_tail_seconds=(5, 5),
    ssh_seconds=(50, 50),
    get_lag_seconds=(1, 1),
    list_lag_seconds=(2, 2),
    destruction_seconds=(20, 20),
    quota_hold_seconds=(0, 0),
)
BLOCK = BlockBehaviour(
    active_seconds=(6, 6),
    list_lag_seconds=(1, 1),
    attach_seconds=(4, 4),
    detach_seconds=(3, 3),
    auto_detach_seconds=(5, 5),
    delete_seconds=(2, 2),
)
AWS = AwsSettings(
    instance=AwsBehaviour(
        running_seconds=(10, 10),
        ok_seconds=(20, 20),
        guest_boot_seconds=(8, 8),
        get_lag_seconds=(1, 1),
        list_lag_seconds=(2, 2),
        stopped_seconds=(15, 15),
        terminated_seconds=(10, 10),
        interface_linger_seconds=(0, 0),
    ),
    buckets={},
)
"""Nothing refused for its rate: what is cut is chosen, not drawn."""
PLAIN = Settings(vm=VM, metal=METAL, vpc_list_lag_seconds=(1, 1))


@dataclass(frozen=True)
class Workflow:
    """A lease from request to release. It is given back `hold_seconds` after it runs, or as soon as an execution of
    it enters the state `cancel_at`."""

    name: str
    request: Mapping[str, Any]
    settings: Settings = PLAIN
    hold_seconds: float = 40.0
    cancel_at: str = ""
    aws: AwsSettings | None = None
    """On AWS, as this account behaves; None = on Vultr."""
    pause_after: float | None = None
    """Paused so many seconds after it first runs, resumed `paused_for` seconds after that is done, and given back
    `hold_seconds` after it runs again."""
    paused_for: float = 30.0
    resume: Mapping[str, str] = field(default_factory=dict)
    """What its user asks of a resume (query parameters)."""
    cache: Mapping[str, Any] | None = None
    """Made before the lease, used by it, and removed after it."""
    saves_for: float | None = None
    """Its machines have agents, which take so many seconds to save a cache when they are asked; None = no agents."""
    reasons: frozenset[str] = frozenset({"user"})
    """How it may end, whatever is cut off."""
