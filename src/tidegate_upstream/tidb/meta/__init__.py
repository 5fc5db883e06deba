"""Schema metadata under TiDB's own keys."""
