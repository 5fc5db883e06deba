"""The steps of one element through F1's states."""
