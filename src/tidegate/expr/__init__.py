"""MySQL expressions: values, casts, operators and functions, from text to a function of the row."""
