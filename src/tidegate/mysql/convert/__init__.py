"""What a changed column makes of stored values."""
