"""The same seed gives the same run, down to the last transition."""

from bench.bench_engine import run_elsewhere


def test_two_processes_with_different_hash_seeds_write_the_same_log() -> None:
    first = run_elsewhere(150, "1")
    second = run_elsewhere(150, "2")

    assert first["states"] > 150 * 5
    assert first["digest"] == second["digest"]


def test_another_number_of_executions_gives_another_log() -> None:
    assert run_elsewhere(10, "1")["digest"] != run_elsewhere(11, "1")["digest"]
