"""The changelog: what has landed, readable by timestamp, whatever source filled it and whatever sink reads it."""
