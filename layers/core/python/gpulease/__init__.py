"""The core of gpulease: everything of ours that is shipped to Lambda.

Rules live in `domain`, the edges in `ports`; only `runtime` touches the environment, the clock and randomness.
"""

__version__ = "0.1.0"
