"""The MVCC store and its engines."""
