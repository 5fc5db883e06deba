"""Configuration of changefeeds, read from a TOML file, from addresses, or from both (`load.py`)."""
