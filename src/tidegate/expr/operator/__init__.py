"""Operators, literals and predicates."""
