"""ChangeDataEvent messages and pages of scans read as columns, without an object per row.

    ChangeDataEvent   events 1 *   resolved_ts 2
    Event             region_id 1   index 2   request_id 7   one of: entries 3   error 5   resolved_ts 6   long_txn 8
    Entries           entries 1 *
    Row               start_ts 1   commit_ts 2   type 3   op_type 4   key 5   value 6   old_value 7   txn_source 9
                      generation 10

`read` walks messages with a compiled loop and returns `Message`s: items in the order of the wire, and the rows of all
messages in one array.  A row is 14 integers: the column of a number is its field number, and the bytes of a field
begin at the offset in its column and end at the offset six columns further.  Column 0 is the index of the row's item.

The loop reads only what is regular: known fields with their wire type, each once in its message, lengths within the
frame, numbers below 2^63.  Unknown fields of regular wire types are skipped.  Any other message is parsed by the
generated class, which refuses it or writes it anew in regular form.  What is no row is parsed by the generated classes.

The result of a message is thus the generated class's, and DecodeError is raised where that refuses.

    ScanResponse      region_error 1   pairs 2 *   error 3
    KvPair            error 1   key 2   value 3

`read_pairs` reads a page whose pairs are in the order of their keys, without an error; all others are left to the
generated class.
Source: kvproto cdcpb and kvrpcpb (numbers), protobuf's encoding of messages.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from google.protobuf.message import DecodeError as Malformed

from tidegate.kv.slices import Slices
from tidegate.model.compiled import compiled, shared, windows
from tidegate.model.errors import DecodeError
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb

(ITEM, START_TS, COMMIT_TS, TYPE, OP, KEY, VALUE, OLD_VALUE, _EXPIRES, TXN_SOURCE, GENERATION) = range(11)
"""Columns of rows, numbered as the fields of Row are."""
BEHIND: Final = 6
"""Distance from the column of an offset to that of its end."""
ROW: Final = OLD_VALUE + BEHIND + 1

(KIND, REGION, REQUEST, FIRST, STOP) = range(5)
"""Columns of items: FIRST and STOP count rows of ROWS, and bytes of other items."""
ROWS, OTHER, RESOLVED = range(3)
"""Kinds of items: the rows of an Event, an Event without rows, a ResolvedTs."""

_DONE, _FULL, _IRREGULAR = range(3)
_CODEC: Final = "ChangeDataEvent"


class Batch(msgspec.Struct, frozen=True):
    """Messages as columns. `data` has eight more bytes, so that loops read eight at once; `parsed` has the objects of
    items without rows, by the index of the item."""

    data: bytes
    items: Any
    rows: Any
    parsed: dict[int, Any]


def read(messages: Sequence[bytes]) -> Batch:
    """Return messages as columns. Raises DecodeError where the generated class refuses one, and for numbers of 2^63 or
    above, which are no timestamps."""
    regular = list(messages)
    while True:
        data = b"".join([*regular, bytes(8)])
        items, rows, irregular = _walked(data, regular)
        if irregular < 0:
            break
        again = _regular(regular[irregular])
        if again == regular[irregular]:
            raise DecodeError("a number of 2^63 or above", _CODEC, 0)
        regular[irregular] = again
    others = np.flatnonzero(items[:, KIND] != ROWS).tolist()
    return Batch(data, items, rows, {index: _parsed(data, *items[index].tolist()) for index in others})


def read_pairs(answer: bytes, most: int) -> tuple[Slices, Slices] | None:
    """Return the keys and the values of a ScanResponse; None for one that has errors, more than `most` pairs, keys
    that do not ascend, or another form."""
    data, places = np.frombuffer(answer, np.uint8), np.empty((4, most), np.int64)
    count = _pairs(data, windows(data), places)
    if count < 0:
        return None
    key, key_size, value, value_size = places[:, :count]
    return Slices(data, key, key_size), Slices(data, value, value_size)


def _walked(joined: bytes, messages: Sequence[bytes]) -> tuple[Any, Any, int]:
    """Return items and rows of messages, and the index of the first irregular message, else -1."""
    data = np.frombuffer(joined, np.uint8)
    frames = np.zeros(len(messages) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)), out=frames[1:])
    capacity = len(data) // 64 + 8 * len(messages) + 64
    while True:
        items, rows = np.empty((capacity // 4, 5), np.int64), np.empty((capacity, ROW), np.int64)
        state, index, item_count, row_count = _walk(data, frames, items, rows)
        if state != _FULL:
            return items[:item_count], rows[:row_count], index if state == _IRREGULAR else -1
        capacity *= 4


def _regular(message: bytes) -> bytes:
    try:
        event = cdcpb.ChangeDataEvent.FromString(message)
    except Malformed as error:
        raise DecodeError(f"a malformed message: {error}", _CODEC, 0) from error
    event.DiscardUnknownFields()
    again: bytes = event.SerializeToString()
    return again


def _parsed(data: bytes, kind: int, _region: int, _request: int, first: int, stop: int) -> Any:
    try:
        return (cdcpb.ResolvedTs if kind == RESOLVED else cdcpb.Event).FromString(data[first:stop])
    except Malformed as error:
        raise DecodeError(f"a malformed message: {error}", _CODEC, first) from error


@compiled
def _varint(data: Any, offset: int, end: int) -> tuple[int, int]:
    """Return the number at `offset` and the offset behind it, -1 if it has more than 63 bits or passes `end`."""
    value = shift = 0
    while offset < end and shift < 63:
        byte = int(data[offset])
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
    return 0, -1


@compiled
def _field(data: Any, offset: int, end: int) -> tuple[int, int, int]:
    """Return the tag of a field, its number or the offset of its bytes, and the offset behind it, -1 if irregular."""
    tag, behind = _varint(data, offset, end)
    if behind < 0 or behind - offset > 4 or tag < 8:
        return 0, 0, -1
    wire_type = tag & 7
    if wire_type == 0:
        value, behind = _varint(data, behind, end)
        return tag, value, behind
    if wire_type == 2:
        size, first = _varint(data, behind, end)
        return tag, first, -1 if first < 0 or size > end - first else first + size
    if wire_type == 1 or wire_type == 5:
        stop = behind + (8 if wire_type == 1 else 4)
        return tag, behind, -1 if stop > end else stop
    return tag, 0, -1


@compiled
def _row(data: Any, offset: int, end: int, row: Any) -> bool:
    """Read a Row; return whether it is regular."""
    for column in range(1, ROW):
        row[column] = 0
    seen = 0
    while offset < end:
        tag, value, behind = _field(data, offset, end)
        if behind < 0:
            return False
        number, wire_type = tag >> 3, tag & 7
        if number <= GENERATION:
            has_bytes = KEY <= number <= OLD_VALUE
            if wire_type != (2 if has_bytes else 0) or seen >> number & 1:
                return False
            if (number == TYPE or number == OP) and value > 0x7FFFFFFF:
                return False
            seen |= 1 << number
            row[number] = value
            if has_bytes:
                row[number + BEHIND] = behind
        offset = behind
    return True


@compiled
def _event(data: Any, offset: int, end: int, item: Any) -> int:
    """Read the fields of an Event into its item; return the state."""
    item[KIND], item[REGION], item[REQUEST], item[FIRST], item[STOP] = OTHER, 0, 0, offset, end
    seen = 0
    while offset < end:
        tag, value, behind = _field(data, offset, end)
        if behind < 0:
            return _IRREGULAR
        number, wire_type = tag >> 3, tag & 7
        if number <= 8:
            is_payload = number >= 3 and number != 7
            kind = 2 if is_payload and number != 6 else 0
            group = 3 if is_payload else number
            if wire_type != kind or seen >> group & 1:
                return _IRREGULAR
            seen |= 1 << group
            if number == 1:
                item[REGION] = value
            elif number == 7:
                item[REQUEST] = value
            elif number == 3:
                item[KIND], item[FIRST], item[STOP] = ROWS, value, behind
        offset = behind
    return _DONE


@compiled
def _entries(data: Any, item: int, items: Any, rows: Any, row_count: int) -> tuple[int, int]:
    """Read the rows of an item; return the state and the count of all rows."""
    offset, end = items[item, FIRST], items[item, STOP]
    items[item, FIRST] = row_count
    while offset < end:
        tag, first, behind = _field(data, offset, end)
        if behind < 0 or (tag >> 3 == 1 and tag != 10):
            return _IRREGULAR, row_count
        if tag == 10:
            if row_count == len(rows):
                return _FULL, row_count
            if not _row(data, first, behind, rows[row_count]):
                return _IRREGULAR, row_count
            rows[row_count, ITEM] = item
            row_count += 1
        offset = behind
    items[item, STOP] = row_count
    return _DONE, row_count


@compiled
def _walk(data: Any, frames: Any, items: Any, rows: Any) -> tuple[int, int, int, int]:
    """Read messages; return the state, the message where the walk ended, and the counts of items and rows."""
    item_count = row_count = 0
    for index in range(len(frames) - 1):
        offset, end, resolved = frames[index], frames[index + 1], False
        while offset < end:
            tag, first, behind = _field(data, offset, end)
            number = tag >> 3
            # A ResolvedTs is applied behind the rows of its message, so it is regular as the last field alone.
            if behind < 0 or (number <= 2 and (tag & 7 != 2 or resolved)):
                return _IRREGULAR, index, item_count, row_count
            if number <= 2:
                if item_count == len(items):
                    return _FULL, index, item_count, row_count
                item = items[item_count]
                if number == 2:
                    resolved = True
                    item[KIND], item[REGION], item[REQUEST], item[FIRST], item[STOP] = RESOLVED, 0, 0, first, behind
                else:
                    state = _event(data, first, behind, item)
                    if state == _DONE and item[KIND] == ROWS:
                        state, row_count = _entries(data, item_count, items, rows, row_count)
                    if state != _DONE:
                        return state, index, item_count, row_count
                item_count += 1
            offset = behind
    return _DONE, len(frames) - 1, item_count, row_count


@compiled
def _pairs(data: Any, words: Any, places: Any) -> int:
    """Read offsets and sizes of the keys and values of a ScanResponse; return their count, -1 if irregular."""
    count = offset = 0
    while offset < len(data):
        tag, first, behind = _field(data, offset, len(data))
        number = tag >> 3
        if behind < 0 or number == 1 or number == 3 or (number == 2 and (tag != 18 or count == places.shape[1])):
            return -1
        if number == 2:
            places[:, count] = 0
            while first < behind:
                inner, value, stop = _field(data, first, behind)
                field = inner >> 3
                if stop < 0 or field == 1 or (field <= 3 and inner & 7 != 2):
                    return -1
                if field <= 3:
                    places[2 * field - 4, count], places[2 * field - 3, count] = value, stop - value
                first = stop
            if count:
                before, key, most = places[0, count - 1], places[0, count], min(places[1, count - 1], places[1, count])
                same = shared(data, words, before, key, most)
                if data[before + same] >= data[key + same] if same < most else places[1, count] == most:
                    return -1
            count += 1
        offset = behind
    return count
