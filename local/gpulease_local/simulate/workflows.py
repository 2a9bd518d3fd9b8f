"""The workflows whose every effect is a crash point, each in a small world that is the same in every run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpulease_sim.aws import Behaviour as AwsBehaviour
from gpulease_sim.aws import Settings as AwsSettings
from gpulease_sim.vultr import Behaviour, BlockBehaviour, MachineRule, Settings

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
_A16 = {"plan_kinds": ["vm"], "gpu": ["A16"], "regions": ["ord", "lax"]}


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
    cache: Mapping[str, Any] | None = None
    """Made before the lease, used by it, and removed after it."""
    reasons: frozenset[str] = frozenset({"user"})
    """How it may end, whatever is cut off."""


def _ruled(*rules: MachineRule, **more: Any) -> Settings:
    return Settings(
        **{"vm": VM, "metal": METAL, "vpc_list_lag_seconds": (1, 1), "rules": rules, "block": BLOCK, **more}
    )


_WITH_VPC = _A16 | {"private_network": "required"}
_CANCELS = ("SelectOffer", "CreateInstance", "PollInstance", "CreateNetwork", "AttachNetwork", "PollReadiness")
_CACHE = {"name": "models", "provider": "vultr", "region": "ord", "size_gb": 20}
_WITH_CACHE = {"plan_kinds": ["vm"], "gpu": ["A16"], "regions": ["ord"]}
CACHE_WORKFLOWS: tuple[Workflow, ...] = (
    Workflow("cache", _WITH_CACHE, _ruled(), cache=_CACHE),
    Workflow(
        "cache_refused_while_locked",
        _WITH_CACHE,
        _ruled(MachineRule(change={"lock_tail_seconds": (40, 40)})),
        cache=_CACHE,
        hold_seconds=5.0,
    ),
    Workflow(
        "cache_stays_attached",
        _WITH_CACHE,
        _ruled(block=replace(BLOCK, never_detaches_probability=1)),
        cache=_CACHE,
        hold_seconds=5.0,
    ),
    Workflow(
        "cache_at_second_offer",
        _WITH_CACHE,
        _ruled(vanishing=frozenset({"ord/vcg-a16-2c-8g-2vram"})),
        cache=_CACHE,
        hold_seconds=5.0,
    ),
    Workflow("cancel_at_AttachVolume", _WITH_CACHE, _ruled(), cache=_CACHE, cancel_at="AttachVolume"),
)
_PAUSED: dict[str, Any] = {"cache": _CACHE, "pause_after": 20.0, "hold_seconds": 5.0}
_G6 = {"plans": ["g6.xlarge"], "regions": ["us-east-1"]}
_STOPPED: dict[str, Any] = {"aws": AWS, "pause_after": 20.0, "hold_seconds": 5.0}
STOP_WORKFLOWS: tuple[Workflow, ...] = (
    Workflow("pause_stops", _G6, **_STOPPED),
    Workflow("cancel_at_StartInstance", _G6, **_STOPPED, cancel_at="StartInstance"),
)
PAUSE_WORKFLOWS: tuple[Workflow, ...] = (
    *STOP_WORKFLOWS,
    Workflow("pause_keeps_cache", _WITH_CACHE, _ruled(), **_PAUSED),
    Workflow(
        "pause_while_locked",
        _WITH_CACHE | {"private_network": "preferred"},
        _ruled(MachineRule(change={"locked_until_seconds": 120, "deletes_ignored": 1})),
        **_PAUSED,
    ),
    *(
        Workflow(f"cancel_at_{state}", _WITH_CACHE, _ruled(), **_PAUSED, cancel_at=state)
        for state in ("StopInstance", "KeepCache", "PollStopped", "MarkPaused")
    ),
)
WORKFLOWS: tuple[Workflow, ...] = (
    Workflow("vm_with_network", _WITH_VPC),
    Workflow("bare_metal_without_network", {"plan_kinds": ["bare_metal"], "gpu_count": 4, "private_network": "none"}),
    Workflow(
        "second_offer_after_no_capacity",
        _A16 | {"private_network": "preferred"},
        _ruled(vanishing=frozenset({"ord/vcg-a16-2c-8g-2vram", "lax/vcg-a16-2c-8g-2vram"})),
    ),
    Workflow(
        "network_unsupported",
        _A16 | {"private_network": "preferred"},
        _ruled(plans_without_vpc=frozenset({"vcg-a16-2c-8g-2vram"})),
    ),
    Workflow(
        "release_refused_at_first",
        _WITH_VPC,
        _ruled(MachineRule(change={"locked_until_seconds": 150, "deletes_ignored": 1, "detach_seconds": math.inf})),
        hold_seconds=5.0,
    ),
    Workflow(
        "never_ready",
        _A16 | {"private_network": "none"},
        _ruled(MachineRule(change={"suspend_after_seconds": 27})),
        reasons=frozenset({"boot_failed"}),
    ),
    Workflow("expired", _A16 | {"max_duration_seconds": 60}, hold_seconds=math.inf, reasons=frozenset({"expired"})),
    *(Workflow(f"cancel_at_{state}", _WITH_VPC, cancel_at=state) for state in _CANCELS),
    Workflow("cancel_at_MarkRunning", _A16, cancel_at="MarkRunning"),
    *CACHE_WORKFLOWS,
    *PAUSE_WORKFLOWS,
)


def workflows_of(provider: str) -> tuple[Workflow, ...]:
    """Those of one provider, or all (`mixed`)."""
    return tuple(each for each in WORKFLOWS if provider in ("mixed", "vultr" if each.aws is None else "aws"))


def by_name(name: str) -> Workflow:
    """Raises KeyError."""
    return {workflow.name: workflow for workflow in WORKFLOWS}[name]
