"""Canal-JSON, writing."""
