"""SHOW, DESC and ADMIN."""
