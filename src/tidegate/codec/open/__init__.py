"""TiCDC Open Protocol."""

from tidegate.codec.open.message import decode

__all__ = ["decode"]
