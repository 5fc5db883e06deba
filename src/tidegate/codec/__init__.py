"""Events to bytes and back; no I/O, no clock."""
