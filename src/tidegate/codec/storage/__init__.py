"""TiCDC's storage layout: names of files, index files, schema files and `metadata`."""
