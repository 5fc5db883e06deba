"""The rules of a changefeed; pure."""
