"""Pure rules: no I/O, no clock, no randomness. Everything a rule needs is an argument, the present time included."""
