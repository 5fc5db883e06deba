"""One connection's statements and state."""
