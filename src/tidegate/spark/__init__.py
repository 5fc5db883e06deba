"""Rims to Spark, Java and storage; no rules."""
