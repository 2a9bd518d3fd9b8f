"""One module per Task of the state machines: `run(command, deps) -> Outcome`."""
