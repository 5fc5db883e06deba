"""Messages to Arrow columns at once: the fast path of both protocols."""

from tidegate.codec.columnar.chunk import Chunk, Rest, decode_chunk
from tidegate.codec.columnar.rows import Batch

__all__ = ["Batch", "Chunk", "Rest", "decode_chunk"]
