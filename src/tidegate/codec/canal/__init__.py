"""TiCDC's Canal-JSON."""
