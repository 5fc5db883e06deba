"""SQL text to nodes of the parser."""
