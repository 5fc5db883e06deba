"""information_schema and the DDL jobs as rows."""
