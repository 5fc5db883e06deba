"""DDL of a database as target: the text that it takes, the ledger, and the way to run a statement once."""
