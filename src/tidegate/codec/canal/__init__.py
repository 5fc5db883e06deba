"""TiCDC Canal-JSON, and official Canal's flat messages."""

from tidegate.codec.canal.message import decode

__all__ = ["decode"]
