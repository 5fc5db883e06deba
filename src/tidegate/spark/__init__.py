"""Spark sessions and tasks, and the Java runtime."""
