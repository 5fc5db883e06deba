"""Connections to servers that speak MySQL's protocol."""
