"""Seeded workloads: a life of the embedded TiDB, a changefeed behind it, and everything that goes wrong."""
