"""The kv floor."""
