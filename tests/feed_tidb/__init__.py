"""The changefeed from a change log into topics."""
