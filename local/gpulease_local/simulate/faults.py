"""Fault profiles of the simulation: what goes wrong at the provider, and how often.

Rates are far above what providers show, so that a few hundred leases meet every fault many times.
"""

import math
import random

from gpulease_sim.vultr import Fault, MachineRule, Settings

CREATES = r"/(instances|bare-metals|vpcs|blocks)"
OBJECTS = r"/(instances|bare-metals|vpcs|blocks)/.+"


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
