"""Delta tables as a replica of the upstream."""
