"""Reading a lake: tables at one timestamp, ahead of what was merged, and by SQL."""
