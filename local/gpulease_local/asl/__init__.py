"""An interpreter for a subset of the Amazon States Language; it knows nothing of leases."""
