"""DDL text to table definitions over time."""
