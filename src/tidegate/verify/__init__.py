"""A replica in a database beside its upstream: two sides read at one moment, and where they differ."""
