"""Databases, tables and DDL jobs in the form in which TiDB stores them."""
