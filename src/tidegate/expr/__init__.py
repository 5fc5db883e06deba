"""MySQL expressions: values, casts, operators and functions, compiled from text to functions of a row."""
