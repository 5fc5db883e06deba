"""Kafka topics as a source: topic -> landing -> changelog -> slices by timestamp."""
