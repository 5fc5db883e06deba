"""What a feed needs at most, measured from outside."""
