"""Files in TiCDC's storage layout as a source."""
