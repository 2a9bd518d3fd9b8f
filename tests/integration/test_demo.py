"""The demo ends well, in time, without a terminal; and its check can fail."""

import io
import math
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from gpulease.runtime.world import monotonic
from gpulease_local import demo, demo_idle
from gpulease_local.demo_cases import CASES
from gpulease_sim.vultr import VultrCloud
from gpulease_sim.vultr.book import Entry

ALLOWED_SECONDS = 90.0
IDLE = "idle: paused=1 resumed=1 data=kept machines=2 released=1 billed_at_provider=0 cache=kept at $5.00 per month"
GOOD = "demo: leases=5 running_ok=4 released=5 billed_at_provider=0 orphans=0 duplicates=0"
LOST = [case for case in CASES if case.name == "lost"]


def _machine(cloud: VultrCloud, marker: str, *, destroyed: bool) -> None:
    now = cloud.now()
    cloud.book.add(
        Entry(
            kind="instance",
            id="planted",
            label="planted",
            region="ewr",
            plan="vc2-1c-1gb",
            tags=(marker,),
            created=now - 10,
            active_from=now - 5,
            destroyed_from=now - 1 if destroyed else math.inf,
            rates=[(now - 10, Decimal("0.01"), Decimal(5))],
        )
    )


def _nothing(cloud: VultrCloud) -> None:
    """Leave the book as it is."""


def _left_over(cloud: VultrCloud) -> None:
    _machine(cloud, "somebody", destroyed=False)


def _twice(cloud: VultrCloud) -> None:
    _machine(cloud, cloud.book_objects()[0].tags[0], destroyed=True)


def _no_fault(cloud: VultrCloud) -> None:
    cloud.replace_faults([])


def test_a_lease_comes_back_with_its_data_and_five_meet_their_mishaps_and_end_well(tmp_path: Path) -> None:
    started = monotonic()

    done = subprocess.run(
        [sys.executable, "-m", "gpulease_local.demo"],
        cwd=tmp_path,
        env={"PATH": os.defpath, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=3 * ALLOWED_SECONDS,
        check=False,
    )

    lines = done.stdout.splitlines()
    assert lines[-1] == GOOD, done.stdout[-3000:] + done.stderr[-2000:]
    assert IDLE in lines
    assert done.returncode == 0
    assert monotonic() - started < ALLOWED_SECONDS
    assert not any("NOT AS PLANNED" in line for line in lines)
    assert not any(line.startswith("\x1b") for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_the_second_machine_would_tell_if_the_data_were_lost() -> None:
    said: list[str] = []

    act = demo_idle.play(said.append, break_cache=True)

    assert not act.good
    assert act.line.startswith("idle: paused=1 resumed=1 data=LOST"), said


@pytest.mark.parametrize(
    ("tamper", "status", "said"),
    [
        (_nothing, 0, "billed_at_provider=0 orphans=0 duplicates=0"),
        (_left_over, 1, "billed_at_provider=1 orphans=1 duplicates=0"),
        (_twice, 1, "billed_at_provider=0 orphans=0 duplicates=1"),
        (_no_fault, 1, "billed_at_provider=0 orphans=0 duplicates=0"),
    ],
)
def test_the_check_fails_when_the_book_says_otherwise(
    tamper: Callable[[VultrCloud], None], status: int, said: str
) -> None:
    out = io.StringIO()

    assert demo.run(out, cases=LOST, time_scale=200.0, before_judging=tamper) == status
    assert out.getvalue().splitlines()[-1] == f"demo: leases=1 running_ok=1 released=1 {said}"
