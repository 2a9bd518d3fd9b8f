"""gpulease on one computer: the same functions and state machines, with no AWS account."""
