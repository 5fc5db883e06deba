"""DDL of a database as target."""
