"""Scalar functions by what they work on."""
