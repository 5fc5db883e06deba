"""The embedded TiDB: timestamps, transactions and their change log in one process."""
