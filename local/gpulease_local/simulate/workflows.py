"""The workflows whose every effect is a crash point, each in a small world that is the same in every run."""

import math
from dataclasses import replace
from typing import Any

from gpulease_sim.vultr import MachineRule, Settings

from gpulease_local.simulate.workflow import AWS, BLOCK, METAL, VM
from gpulease_local.simulate.workflow import Workflow as Workflow
from gpulease_local.simulate.workflows_aws import AWS_WORKFLOWS

_A16 = {"plan_kinds": ["vm"], "gpu": ["A16"], "regions": ["ord", "lax"]}


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
    Workflow("cache_saved_first", _WITH_CACHE, _ruled(), cache=_CACHE, hold_seconds=5.0, saves_for=100.0),
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
    Workflow("pause_saves_first", _WITH_CACHE, _ruled(), **_PAUSED, saves_for=8.0),
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
    *AWS_WORKFLOWS,
)


def workflows_of(provider: str) -> tuple[Workflow, ...]:
    """Those of one provider, or all (`mixed`)."""
    return tuple(each for each in WORKFLOWS if provider in ("mixed", "vultr" if each.aws is None else "aws"))


def by_name(name: str) -> Workflow:
    """Raises KeyError."""
    return {workflow.name: workflow for workflow in WORKFLOWS}[name]
