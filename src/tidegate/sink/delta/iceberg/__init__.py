"""Iceberg metadata of a lake's tables, derived from their Delta logs over the same data files."""
