"""Sources of changes: Kafka, storage, change logs."""
