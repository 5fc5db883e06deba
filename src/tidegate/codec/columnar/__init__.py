"""The columnar codec: Kafka messages to Arrow columns, and columns to messages, many rows at a time.

Theory of operation.  Decoding takes a chunk: keys and values of some messages of one protocol, and the options of
the changefeed that wrote them.  It gives Batches, each with the rows of one table and one layout as Arrow arrays,
and in `rest` the events or the error of every message that is not in a batch.  `(message, seq)` is a row's position
in the chunk.  Encoding takes batches and gives messages.

Decoding has three decode paths, tried in this order.  A message takes one of them, with all of its rows.

    template   compiled loops compare a row with the literal text of its table, and note where values stand (sweep.py)
    structs    msgspec decodes into structs generated for a layout: few rows, other texts, no numba (canal.py, open.py)
    plain      codec/canal.py and codec/open.py: DDLs, watermarks, damage, partial rows and all that did not fit before

What is kept are layouts and templates, in memory of bounded size, for the chunks that follow.  The first row of a
table is decoded by the plain decoder and shows its layout; structs are generated from that, and a row that these
accept serves as the sample of a template.  What is kept is never trusted: a template proves every byte around the
values and the structs hold names, types and flags as literals, so a row after a DDL does not fit and goes on to the
next path. Losing what was kept changes the speed alone.

The events are those of the plain decoder because a fast path may refuse more than it does, but never less.  Values
are converted a column at a time, under the same rules; what does not convert raises Misfit, and the messages of
these rows are decoded again by the next path.  The plain decoder is the reference: it alone raises errors, so an
error has the same text whichever path was tried.

Encoding (encode/encoder.py) writes what is equal in all rows of a table once, and lets a compiled loop put the
values in between.  What columns cannot express, rows above max-message-bytes and batches of few rows go through the
plain encoder, row by row.  The bytes and the limits of messages are those of codec/batch.py in every case.
"""

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
