"""Spark sessions and tasks, and Java."""
