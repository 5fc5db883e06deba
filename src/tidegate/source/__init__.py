"""Sources of changes: Kafka topics, files in TiCDC's storage layout, change logs of a TiDB."""
