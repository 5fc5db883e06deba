"""The sink of databases: MySQL, MariaDB and TiDB."""
