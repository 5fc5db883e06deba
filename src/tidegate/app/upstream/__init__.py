"""The embedded TiDB as a process of its own."""
