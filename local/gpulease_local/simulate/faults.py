"""Fault profiles of the simulation: what goes wrong at the provider, and how often.

Rates are far above what providers show, so that a few hundred leases meet every fault many times.
"""

import math
import random
from typing import Any

from gpulease_sim.aws import Fault as AwsFault
from gpulease_sim.aws import Rule
from gpulease_sim.aws import Settings as AwsSettings
from gpulease_sim.vultr import Fault, MachineRule, Settings

CREATES = r"/(instances|bare-metals|vpcs|blocks)"
OBJECTS = r"/(instances|bare-metals|vpcs|blocks)/.+"
AWS_CREATES = "RunInstances|CreateVolume|CreateSecurityGroup"
AWS_DELETES = "TerminateInstances|DeleteVolume|DeleteSecurityGroup"


def settings_of(profile: str, seed: int, machines: int) -> Settings:
    """The account's behaviour for about so many machines."""
    if profile == "none":
        return Settings()
    draw = random.Random(f"faults-{seed}")  # noqa: S311 - sameness is wanted here
    numbers = range(1, 4 * machines + 1)

    def some(share: float) -> tuple[int, ...]:
        return tuple(n for n in numbers if draw.random() < share) or (math.inf,)  # type: ignore[return-value]

    return Settings(
        no_capacity_probability=0.08,
        vanishing=frozenset({"ewr/vcg-a16-2c-8g-2vram"}),
        vpc_list_lag_seconds=(0, 20),
        rules=(
            MachineRule(nth=some(0.15), change={"list_lag_seconds": (0, 60), "get_lag_seconds": (0, 45)}),
            MachineRule(nth=some(0.10), change={"ok_seconds": (120, 500)}),
            MachineRule(nth=some(0.02), change={"stuck": "pending"}),
            MachineRule(nth=some(0.02), change={"stuck": "installingbooting"}),
            MachineRule(nth=some(0.02), change={"ssh_seconds": math.inf}),
            MachineRule(nth=some(0.10), change={"locked_until_seconds": 240}),
            MachineRule(nth=some(0.05), change={"not_active_until_seconds": 180, "locked_until_seconds": 400}),
            MachineRule(nth=some(0.08), change={"deletes_ignored": 2}),
            MachineRule(nth=some(0.10), change={"attach_failures": (4, 9)}),
            MachineRule(nth=some(0.02), change={"attach_failures": math.inf}),
            MachineRule(nth=some(0.05), change={"detach_seconds": math.inf, "vpc_hold_seconds": (60, 240)}),
            MachineRule(nth=some(0.10), change={"ghost_seconds": (10, 40)}),
            MachineRule(nth=some(0.01 if profile == "all" else 0.0), change={"suspend_after_seconds": (20, 400)}),
        ),
    )


def aws_settings_of(profile: str, seed: int, machines: int) -> AwsSettings:
    """The same for the AWS account. A third of what runs on spot is reclaimed."""
    if profile == "none":
        return AwsSettings()
    draw = random.Random(f"aws-faults-{seed}")  # noqa: S311 - sameness is wanted here
    numbers = range(1, 4 * machines + 1)

    def some(share: float, kind: str = "instance", spot: bool | None = None, **change: Any) -> Rule:
        return Rule(kind, spot=spot, nth=tuple(n for n in numbers if draw.random() < share) or (0,), change=change)

    def disks(share: float, **change: Any) -> Rule:
        return some(share, "volume", **change)

    return AwsSettings(
        no_capacity_probability=0.08,
        not_offered=frozenset({"us-east-1b/g4dn.xlarge", "us-west-2/g6.xlarge"}),
        rules=(
            some(0.15, get_lag_seconds=(0, 30), list_lag_seconds=(0, 60)),
            some(0.10, ok_seconds=(240, 700)),
            some(0.02, ok_seconds=math.inf),
            some(0.02, impaired=True),
            some(0.02, guest_boot_seconds=math.inf),
            some(0.03, launch_failure="Server.InternalError"),
            some(0.02, launch_failure="Client.VolumeLimitExceeded"),
            some(0.02, launch_failure="Server.InsufficientInstanceCapacity"),
            some(0.08, start_failure="Server.InsufficientInstanceCapacity", start_failures=1),
            some(0.08, terminates_ignored=2),
            some(0.10, stopped_seconds=(120, 600)),
            some(0.10, terminated_seconds=(60, 300)),
            some(0.05, interface_linger_seconds=(120, 420)),
            some(0.33, spot=True, reclaim_seconds=(120, 5400)),
            disks(0.10, get_lag_seconds=(0, 20), list_lag_seconds=(0, 40)),
            disks(0.08, attached_seconds=(30, 120)),
            disks(0.02, attached_seconds=math.inf),
            disks(0.08, detached_seconds=(60, 240)),
            disks(0.04, detached_seconds=math.inf),
            disks(0.02, fails=True),
            disks(0.06, available_seconds=(20, 90)),
        ),
    )


def aws_faults_of(profile: str) -> list[AwsFault]:
    """What the API in front of the AWS account does wrong."""
    if profile in ("none", "all"):
        return []
    return [
        AwsFault(action=AWS_CREATES, cut=True, delay_seconds=10, probability=0.06),
        AwsFault(action=AWS_CREATES, execute=False, cut=True, delay_seconds=5, probability=0.03),
        AwsFault(action=AWS_CREATES, code="InternalError", execute=True, probability=0.03),
        AwsFault(action=AWS_CREATES, html=True, execute=True, status=504, delay_seconds=20, probability=0.02),
        AwsFault(action=AWS_CREATES, code="RequestLimitExceeded", probability=0.02),
        AwsFault(action=AWS_CREATES, code="SomethingNobodyKnows", probability=0.01),
        AwsFault(action=AWS_DELETES, cut=True, delay_seconds=10, probability=0.05),
        AwsFault(action=AWS_DELETES, code="InternalError", probability=0.10),
        AwsFault(action=AWS_DELETES, code="SomethingNobodyKnows", probability=0.03),
        AwsFault(action="StopInstances|StartInstances", cut=True, delay_seconds=10, probability=0.05),
        AwsFault(action="StopInstances|StartInstances", code="InternalError", probability=0.05),
        AwsFault(action="StartInstances", code="InsufficientInstanceCapacity", status=500, probability=0.10),
        AwsFault(action="(Attach|Detach)Volume", code="IncorrectState", probability=0.05),
        AwsFault(action="(Attach|Detach)Volume", cut=True, delay_seconds=5, probability=0.03),
        AwsFault(action="Describe.*", code="RequestLimitExceeded", probability=0.01),
        AwsFault(action="Describe.*", html=True, status=502, probability=0.02),
        AwsFault(action="Describe.*", execute=False, cut=True, delay_seconds=10, probability=0.01),
        AwsFault(action="DescribeInstances|DescribeVolumes", empty=True, probability=0.003),
    ]


def faults_of(profile: str) -> list[Fault]:
    """What the API in front of the account does wrong."""
    if profile in ("none", "all"):
        # "all" has its own: `storm.py` at each effect, `climate.py` for everybody.
        return []
    return [
        Fault(method="POST", path=CREATES, cut=True, delay_seconds=30, probability=0.06),
        Fault(method="POST", path=CREATES, execute=False, cut=True, delay_seconds=5, probability=0.03),
        Fault(method="POST", path=CREATES, status=504, html=True, delay_seconds=30, probability=0.03),
        Fault(method="POST", path=CREATES, status=500, error="Internal error", probability=0.02),
        Fault(method="POST", path=CREATES, status=429, execute=False, retry_after=5, probability=0.02),
        Fault(method="POST", path=CREATES, body="{}", probability=0.01),
        Fault(method="DELETE", path=OBJECTS, cut=True, delay_seconds=30, probability=0.05),
        Fault(method="DELETE", path=OBJECTS, status=500, execute=False, probability=0.10),
        Fault(method="DELETE", path=OBJECTS, status=502, html=True, execute=False, probability=0.03),
        Fault(method="GET", status=429, execute=False, retry_after=3, probability=0.01),
        Fault(method="GET", status=502, html=True, execute=False, probability=0.02),
        Fault(method="GET", execute=False, cut=True, delay_seconds=10, probability=0.01),
    ]
