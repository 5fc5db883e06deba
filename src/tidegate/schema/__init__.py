"""Table definitions over time, derived from DDL texts."""
