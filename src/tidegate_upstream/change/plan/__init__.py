"""DDL statements to jobs."""
