"""The only place that reads the environment, the clock and randomness; it puts the parts together."""
