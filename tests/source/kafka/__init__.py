"""The Kafka source."""
