"""Topics of one protocol as topics of the other, row by row and without state."""
