"""System variables."""
