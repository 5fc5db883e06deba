"""Events to bytes and back; no I/O, no clock."""

from tidegate.codec.options import DecodeOptions, from_config
from tidegate.codec.table import decode

__all__ = ["DecodeOptions", "decode", "from_config"]
