"""DDL text to statements."""
