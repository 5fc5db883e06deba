"""The codec floor."""
