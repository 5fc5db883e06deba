"""Open Protocol, writing."""
