"""`gpulease simulate`: whole leases by the thousand in virtual time, under faults, audited by the provider's book."""

import sys

EXIT_BROKEN = 1


def main(*, leases: int, seed: int, faults: str, json_output: bool) -> int:
    """Run, print the report; 1 when an orphan, a duplicate or a stuck lease was found."""
    from gpulease_local.simulate.report import describe
    from gpulease_local.simulate.run import simulate

    report = simulate(leases=leases, seed=seed, faults=faults)
    sys.stdout.write(report.as_json() + "\n" if json_output else "\n".join(describe(report)) + "\n")
    return 0 if report.ok else EXIT_BROKEN
