"""Values while an expression runs."""
