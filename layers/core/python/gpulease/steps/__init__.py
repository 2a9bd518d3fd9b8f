"""One module per Task of the state machines: `run(command, deps) -> Outcome`.

Every step may be cut off before or after any effect, run twice, run late or beside its twin. So each reads the ledger
first, finds out how far it has come, and goes on from there.
"""
