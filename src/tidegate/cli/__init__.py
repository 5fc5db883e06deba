"""The command line: one file a command, and what several of them share."""
