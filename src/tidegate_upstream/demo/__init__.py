"""The demo: a database, a broker and a lake that are filled and compared before one's eyes."""
