"""The sink of files: csv or canal-json in TiCDC's storage layout."""
