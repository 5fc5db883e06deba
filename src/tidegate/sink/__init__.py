"""Sinks: databases, topics, lakes, caches, search indexes, webhooks, files, metrics, functions."""
