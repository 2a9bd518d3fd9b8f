"""The same on AWS: launches with tokens, security groups, spot, volumes, and machines that are stopped and started."""

from dataclasses import replace
from typing import Any

from gpulease_sim.aws import Rule, Settings, VolumeBehaviour

from gpulease_local.simulate.workflow import AWS, Workflow

VOLUME = VolumeBehaviour(
    available_seconds=(4, 4),
    get_lag_seconds=(0, 0),
    list_lag_seconds=(1, 1),
    attached_seconds=(3, 3),
    detached_seconds=(5, 5),
    deleted_seconds=(2, 2),
)


def _ruled(*rules: Rule, **more: Any) -> Settings:
    return replace(AWS, volume=VOLUME, rules=rules, **more)


_L4 = {"gpu": ["L4"], "regions": ["us-east-1"]}
_ONE = {"plans": ["g6.xlarge"], "regions": ["us-east-1"]}
_WITH_GROUP = _ONE | {"private_network": "required", "network_scope": "lease"}
_CACHE = {"name": "models", "provider": "aws", "region": "us-east-1", "zone": "us-east-1b", "size_gb": 20}
_FAST: dict[str, Any] = {"cache": _CACHE | {"throughput_mibps": 400}, "hold_seconds": 5.0}
_CACHED: dict[str, Any] = {"cache": _CACHE, "hold_seconds": 5.0}
_PAUSED: dict[str, Any] = {"pause_after": 10.0, "hold_seconds": 5.0}
_REPLACED: dict[str, Any] = {
    "cache": _CACHE,
    "pause_after": 10.0,
    "resume": {"on_no_capacity": "replace", "wait_seconds": "0"},
}
AWS_WORKFLOWS: tuple[Workflow, ...] = (
    Workflow("aws_with_network", _WITH_GROUP, aws=_ruled(), hold_seconds=5.0),
    Workflow("aws_spot", _ONE | {"spot": "spot"}, aws=_ruled(), hold_seconds=5.0),
    Workflow(
        "aws_second_offer_after_no_capacity",
        _L4,
        aws=_ruled(capacity={"us-east-1a/g6.xlarge": 0}),
        hold_seconds=5.0,
    ),
    Workflow(
        "aws_launch_fails",
        _L4,
        aws=_ruled(Rule(nth=(1,), change={"launch_failure": "Server.InsufficientInstanceCapacity"})),
        hold_seconds=5.0,
    ),
    Workflow(
        "aws_end_ignored_at_first",
        _ONE,
        aws=_ruled(Rule(change={"terminates_ignored": 1, "terminated_seconds": 40})),
        hold_seconds=5.0,
    ),
    Workflow("aws_cache", _ONE, aws=_ruled(), **_FAST),
    Workflow("aws_pause_with_cache", _ONE, aws=_ruled(), **_CACHED, pause_after=10.0),
    Workflow(
        "aws_start_falls_back",
        _ONE,
        aws=_ruled(Rule(change={"start_failure": "Server.InsufficientInstanceCapacity", "start_failures": 1})),
        **_PAUSED,
    ),
    # No capacity for the stopped machine: its cache's volume goes over to a new one, and the old one is given back.
    Workflow(
        "replace_with_cache",
        _ONE,
        aws=_ruled(Rule(nth=(1,), change={"start_failure": "Server.InsufficientInstanceCapacity"})),
        **_REPLACED,
        # For the old one to be gone first.
        hold_seconds=60.0,
    ),
    # The new one cannot be had either: the stopped one is started at the next resume, with the volume back.
    Workflow(
        "replace_comes_to_nothing_with_cache",
        _ONE,
        aws=_ruled(
            Rule(nth=(1,), change={"start_failure": "Server.InsufficientInstanceCapacity", "start_failures": 1}),
            Rule(nth=(2,), change={"launch_failure": "Server.InsufficientInstanceCapacity"}),
        ),
        **_REPLACED,
        hold_seconds=5.0,
    ),
    *(
        Workflow(f"aws_cancel_at_{state}", _WITH_GROUP, aws=_ruled(), cancel_at=state)
        for state in ("CreateInstance", "PollInstance", "CreateNetwork")
    ),
    Workflow("aws_cancel_at_AttachVolume", _ONE, aws=_ruled(), cache=_CACHE, cancel_at="AttachVolume"),
    *(
        Workflow(f"aws_cancel_at_{state}", _ONE, aws=_ruled(), **_PAUSED, cancel_at=state)
        for state in ("StopInstance", "PollStopped", "MarkPaused")
    ),
)
