"""Databases as sinks: MySQL, MariaDB and TiDB."""
