"""DDL as TiDB does it: a statement to job requests, a request and a step to the next definitions; pure."""
