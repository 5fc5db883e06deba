"""The change log as a source."""
