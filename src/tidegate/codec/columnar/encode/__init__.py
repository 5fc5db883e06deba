"""Columns of row changes to the messages of both protocols."""
