"""The columnar codec: Kafka messages to Arrow columns, and columns to messages, many rows at a time.

Theory of operation.  Decoding takes a chunk: keys and values of some messages of one protocol, and the options of
the changefeed that wrote them.  It gives Batches, each with the rows of one table and one layout as Arrow arrays,
and in `rest` the events or the error of every message that is not in a batch.  `(message, seq)` is a row's position
in the chunk.  Encoding takes batches and gives messages.

Decoding has two decode paths, tried in this order.  A message takes one of them, with all of its rows.

    template   compiled loops compare a row with the literal text of its table, and note where values stand (sweep.py)
    plain      codec/canal.py and codec/open.py: chunks of few rows, DDLs, watermarks, damage, partial rows, other texts

What is kept are templates, in memory of bounded size, for the chunks that follow.  A row that no known template reads
is decoded by the plain decoder, whose event has the layout of the row, and serves as the sample of a template; two rows
of a table are enough.  What is kept is never trusted: a template proves every byte around the values, so a row after a
DDL does not fit and is the next sample.  Losing what was kept changes the speed alone.

The events are those of the plain decoder because a template may refuse more than it does, but never less.  Values are
converted a column at a time, under the same rules; messages with a value that does not convert are decoded again by
the plain decoder.  It alone raises errors, so an error has the same text whichever path was tried.

Encoding (encode/encoder.py) writes what is equal in all rows of a table once, and lets a compiled loop put the
values in between.  What columns cannot express, rows above max-message-bytes and batches of few rows go through the
plain encoder, row by row.  The bytes and the limits of messages are those of codec/batch.py in every case.
"""

from tidegate.codec.columnar.chunk import MessageChunk, Pairs, PlainMessage, decode_chunk
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
    "PlainMessage",
    "RowTexts",
    "as_texts",
    "decode_chunk",
    "row_texts",
    "text_batch",
    "typed_batch",
]
