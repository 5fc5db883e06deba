"""Rows as documents: what a cache and a search index have in common."""
