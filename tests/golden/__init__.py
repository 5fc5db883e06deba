"""Decoders against what the real encoders sent."""
