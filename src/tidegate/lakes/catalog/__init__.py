"""A lake as a read-only Iceberg REST catalog."""
