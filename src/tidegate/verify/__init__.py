"""Verification of replicas: upstream and target read at one timestamp, and their differences."""
