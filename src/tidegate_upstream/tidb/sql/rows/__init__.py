"""Rows of tables: how they are read, changed and checked."""
