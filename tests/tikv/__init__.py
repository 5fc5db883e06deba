"""The tikv floor."""
