"""Nodes and DDL jobs of the embedded TiDB: versions, leases, the owner, backfill."""
