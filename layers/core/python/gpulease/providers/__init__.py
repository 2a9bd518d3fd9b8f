"""One module per provider: the only code that knows its routes, words and faults."""
