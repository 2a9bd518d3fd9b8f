"""Simulated GPU clouds: the providers' real routes, states and faults, and a book of every paid object."""
