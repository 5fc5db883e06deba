"""Rows as values of a Redis: one a row, never older than what is there (sink.py)."""
