"""The parts of `make bench-peers`: dstack and gpulease, each against the same simulated provider."""
