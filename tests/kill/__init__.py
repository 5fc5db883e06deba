"""A feed that dies, fails and waits at every named place."""
