"""The engine of a changefeed: its loop, ports and pure rules."""
