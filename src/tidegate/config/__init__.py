"""What a changefeed is to do: one value, read from a TOML file, from addresses, or from both (`load.py`)."""
