"""Doors for Spark users: messages decoded, changes and lakes as DataFrames, batch and streaming."""
