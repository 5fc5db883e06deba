"""The model floor."""
