"""The demos: a database, a broker and a lake that are filled and compared."""
