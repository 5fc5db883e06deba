"""Rows as documents of a search index, one a row (sink.py)."""
