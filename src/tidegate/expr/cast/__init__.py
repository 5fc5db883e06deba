"""Conversions on assignment."""
