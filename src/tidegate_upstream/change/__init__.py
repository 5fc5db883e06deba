"""TiDB's DDL: statements to job requests, and each step of a request to the next definitions; pure."""
