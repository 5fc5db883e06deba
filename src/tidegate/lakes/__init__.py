"""Reading a lake: tables at one timestamp, including unmerged changes, and by SQL."""
