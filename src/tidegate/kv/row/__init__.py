"""Rows as TiKV keeps them, in both formats."""
