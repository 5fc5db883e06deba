"""The columnar codec: Kafka messages to Arrow columns, and columns to messages, many rows at a time.

Theory of operation.  Decoding takes a chunk: keys and values of some messages of one protocol, and the options of
the changefeed that wrote them.  It gives Batches, each with the rows of one table and one layout as Arrow arrays,
and in `rest` the events or the error of every message that is not in a batch.  `(message, seq)` is a row's position
in the chunk.  Encoding takes batches and gives messages.

Decoding has two decode paths, tried in this order.  A message takes one of them, with all of its rows.

    template   compiled loops compare a row with the literal text of its table and record its values' offsets (sweep.py)
    plain      codec/canal.py and codec/open.py: chunks of few rows, DDLs, watermarks, damage, partial rows, other texts

The only state is a cache of templates of bounded size, for later chunks.  A row that no known template matches is
decoded by the plain decoder, whose event has the row's layout, and serves as the sample of a template; two rows of a
table are enough.  Cached templates are never trusted: a template verifies every byte around the values, so a row after
a DDL does not match and is the next sample.  Losing the cache affects only speed.

The events equal those of the plain decoder because a template may reject more than it does, but never less.  Values
are converted a column at a time, under the same rules; messages with a value that does not convert are decoded again
by the plain decoder.  Only it raises errors, so an error has the same text whichever path was tried.

Encoding (encode/encoder.py) prepares the text shared by all rows of a table once, and a compiled loop inserts the
values.  Values that columns cannot hold, rows above max-message-bytes and batches of few rows go through the plain
encoder, row by row.  Bytes and message limits are those of codec/batch.py in every case.
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
