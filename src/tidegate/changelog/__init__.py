"""The changelog: landed changes, readable by timestamp, from any source and for any sink."""
