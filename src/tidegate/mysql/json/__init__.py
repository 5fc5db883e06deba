"""JSON values as TiDB stores and prints them."""
