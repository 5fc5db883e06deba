"""Numbers about changes as a sink: counters, gauges and histograms for Prometheus and OpenTelemetry."""
