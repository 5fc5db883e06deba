"""Definitions as TiDB stores them."""
