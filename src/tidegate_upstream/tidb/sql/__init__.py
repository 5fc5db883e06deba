"""SQL of the embedded TiDB: text to statements, expressions, rows, results."""
