"""The change log of a TiDB as a source: keys and values in, rows and DDL events out."""
