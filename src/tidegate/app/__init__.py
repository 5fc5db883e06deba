"""Configuration, wiring, the loop and the command line."""
