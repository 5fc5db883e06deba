"""Encoding of row changes as columns to messages of both protocols."""
