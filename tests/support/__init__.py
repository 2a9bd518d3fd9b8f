"""Helpers shared by the tests: fakes with scripted faults, builders, and readers of the repository."""
