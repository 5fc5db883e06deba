"""Messages to Arrow columns at once, and columns to messages: the fast path of both protocols."""

from tidegate.codec.columnar.chunk import MessageChunk, Pairs, Rest, decode_chunk
from tidegate.codec.columnar.encode.changes import text_batch, typed_batch
from tidegate.codec.columnar.encode.cut import Cutter, EncodedRows, MessageArrays
from tidegate.codec.columnar.encode.encoder import ColumnarEncoder
from tidegate.codec.columnar.rows import Batch, RowTexts, row_texts
from tidegate.codec.columnar.values import as_texts

__all__ = [
    "Batch",
    "ColumnarEncoder",
    "Cutter",
    "EncodedRows",
    "MessageArrays",
    "MessageChunk",
    "Pairs",
    "Rest",
    "RowTexts",
    "as_texts",
    "decode_chunk",
    "row_texts",
    "text_batch",
    "typed_batch",
]
