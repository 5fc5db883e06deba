"""What Go's standard library prints: floats, JSON, quoted texts."""
