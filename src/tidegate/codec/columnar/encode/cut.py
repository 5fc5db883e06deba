"""Row texts to messages: Open Protocol frames and batches by sums over lengths, canal-json one row per message.

    row            0     1     2     3     4     5
    grown         90    95    40    90    60    60        len(key JSON) + len(value) + 16
    sums           0    90   185   225   315   375  435
    next           2     3     3     5     6     6        first row that a message starting here cannot hold
    cuts           0 ─────────→ 2 ──→ 3 ─────────→ 5      followed from row to row

A frame is `length (8) | text`; frames are back to back in one array, the version (8) before the first key of a
message.  So a message is a slice of the array, and cutting messages copies nothing.

The last message stays open for the rows of the next call.

Source: the sizes and cuts of codec/batch.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.codec.batch import RECORD_OVERHEAD, Message, MessageKind
from tidegate.codec.columnar.encode.arrays import BINARY, NO_ROWS, joined, spread
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.open_encode import EVENT_OVERHEAD, VERSION_BYTES

_VERSION: Final = (1).to_bytes(VERSION_BYTES, "big")
_LENGTH_BYTES: Final = 8
_PIECE: Final = 256
"""Messages that become Python bytes together."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows as binary arrays: `keys` are key JSON (None for canal-json), `values` are unframed."""

    keys: Any
    values: Any

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> "EncodedRows":
        """Return the rows from `start` to `stop`."""
        keys = None if self.keys is None else self.keys.slice(start, stop - start)
        return EncodedRows(keys, self.values.slice(start, stop - start))

    def take(self, rows: Any) -> "EncodedRows":
        """Return some rows, by number."""
        return EncodedRows(None if self.keys is None else self.keys.take(rows), self.values.take(rows))


@dataclass(frozen=True, slots=True)
class MessageArrays:
    """Messages as binary arrays; `keys` is None for canal-json, `rows` is the number of rows of each."""

    keys: Any
    values: Any
    rows: Any

    def __len__(self) -> int:
        return len(self.values)

    def pairs(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Return key and value of each message, made in groups of a few hundred to reuse memory."""
        for start in range(0, len(self), _PIECE):
            values = _bytes_list(self.values.slice(start, _PIECE))
            keys = repeat(None, len(values)) if self.keys is None else _bytes_list(self.keys.slice(start, _PIECE))
            yield from zip(keys, values, strict=True)

    def messages(self) -> list[Message]:
        """Return these messages as Python objects, as BatchEncoder makes them."""
        rows = self.rows.tolist()
        return [Message(*pair, count, MessageKind.ROW) for pair, count in zip(self.pairs(), rows, strict=True)]


def _bytes_list(array: Any) -> list[bytes]:
    texts: list[bytes] = array.to_numpy(zero_copy_only=False).tolist()
    return texts


class Cutter:
    """Rows in, messages out; one for each partition of a topic, since rows of one message go to one partition."""

    def __init__(self, options: EncodeOptions) -> None:
        self._options = options
        self._open: EncodedRows | None = None

    def append(self, texts: EncodedRows) -> MessageArrays:
        """Return the messages that these rows complete."""
        if texts.keys is None:
            return MessageArrays(None, texts.values, np.ones(len(texts), np.int64))
        if self._open is not None and len(self._open):
            texts = EncodedRows(*(pa.concat_arrays(pair) for pair in self._with(texts)))
        cuts = cuts_of(_grown(texts), self._options)
        last = cuts[-1] if cuts else 0
        self._open = texts.take(pa.array(np.arange(last, len(texts))))  # a slice would keep all the others
        return _framed(texts.slice(0, last), np.array(cuts, np.int64))

    def flush(self) -> MessageArrays:
        """Return the open message, if there is one."""
        texts, self._open = self._open, None
        if texts is None or not len(texts):
            keys = NO_ROWS if self._options.protocol == "open-protocol" else None
            return MessageArrays(keys, NO_ROWS, np.zeros(0, np.int64))
        return _framed(texts, np.array([0, len(texts)]))

    def _with(self, texts: EncodedRows) -> tuple[list[Any], list[Any]]:
        assert self._open is not None
        return [self._open.keys, texts.keys], [self._open.values, texts.values]


def sizes(texts: EncodedRows) -> Any:
    """Return the size, as max-message-bytes counts it, of a message with each row alone."""
    if texts.keys is None:
        return _lengths(texts.values) + RECORD_OVERHEAD
    return _grown(texts) + VERSION_BYTES + RECORD_OVERHEAD


def cuts_of(grown: Any, options: EncodeOptions) -> list[int]:
    """Return the rows at which messages begin, the last of them still open; [] without a row.

    `grown`: bytes by which each row makes a message larger."""
    count = len(grown)
    sums = np.zeros(count + 1, np.int64)
    np.cumsum(grown, out=sums[1:])
    room = options.batch_limit - VERSION_BYTES - RECORD_OVERHEAD
    fits = np.searchsorted(sums, sums[:-1] + room, "right") - 1
    rows = np.arange(count)
    following = np.clip(fits, rows + 1, rows + options.max_batch_size).tolist()
    cuts, index = [], 0
    while index < count:
        cuts.append(index)
        index = following[index]
    return cuts


def _grown(texts: EncodedRows) -> Any:
    return _lengths(texts.keys) + _lengths(texts.values) + EVENT_OVERHEAD


def _lengths(array: Any) -> Any:
    return np.diff(np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)).astype(np.int64)


def _framed(texts: EncodedRows, cuts: Any) -> MessageArrays:
    count = len(texts)
    if not count:
        return MessageArrays(NO_ROWS, NO_ROWS, np.zeros(0, np.int64))
    first = np.zeros(count, np.bool_)
    first[cuts[:-1]] = True
    versions = spread(pa.repeat(pa.scalar(_VERSION, BINARY), len(cuts) - 1), first)
    keys = joined([versions, _frame_lengths(texts.keys), texts.keys], count)
    values = joined([_frame_lengths(texts.values), texts.values], count)
    return MessageArrays(_joined_between(keys, cuts), _joined_between(values, cuts), np.diff(cuts))


def _frame_lengths(array: Any) -> Any:
    lengths = _lengths(array).astype(">u8").tobytes()
    ends = np.arange(0, len(lengths) + 1, _LENGTH_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(BINARY, len(array), [None, pa.py_buffer(ends), pa.py_buffer(lengths)])


def _joined_between(array: Any, cuts: Any) -> Any:
    """The texts between adjacent `cuts`, joined."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    buffers = [None, pa.py_buffer(ends[cuts]), data]
    return pa.Array.from_buffers(BINARY, len(cuts) - 1, buffers)
