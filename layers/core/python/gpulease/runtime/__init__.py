"""The only place that reads environment variables, the clock and randomness, and that puts the parts together."""
