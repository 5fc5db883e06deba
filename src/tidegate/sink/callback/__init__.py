"""A Python function as a sink."""
