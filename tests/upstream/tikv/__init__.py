"""The cluster that tests serve over gRPC."""
