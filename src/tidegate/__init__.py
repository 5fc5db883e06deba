"""Tidegate: TiCDC for Python and Spark."""
