"""Definitions made from statements."""
