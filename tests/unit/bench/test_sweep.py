"""The measurement of the schedules goes with what the schedules use."""

import pytest

from bench import bench_sweep


def test_the_check_and_the_sweep_run_on_what_the_measurement_gives_them(capsys: pytest.CaptureFixture[str]) -> None:
    status = bench_sweep.main((10,), machines=20, rounds=2)

    said = capsys.readouterr().out.splitlines()
    assert status == 0
    assert "10 commit, 1 due, 10 load" in said[2], "every lease that is due is looked at"
    assert said[-1].startswith("     20 machines at the provider"), said
