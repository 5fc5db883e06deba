"""The source of files."""
