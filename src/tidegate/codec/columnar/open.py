"""Open Protocol, many messages at once: framed keys and values to lists of generated structs.

    message ─→ heads, bodies ─→ first head names the table ─→ its shape decodes all heads, all bodies
                                                    │ not all of one table: each by its own
                                                    └ unknown, or refused: the plain decoder, then `learn`

The first row of a table goes to the plain decoder and tells the layout.  From then on decoding is checking: msgspec
refuses a row with another column, type code or flag, which sends that message to the plain decoder, too, and teaches
the new layout.  DELETEs may have a layout of their own (handle key columns only).  `p` may lack columns once a row
of the layout was seen that does.

The order of an image's members is not checked: columns go by name.
"""

from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import Final

import msgspec

from tidegate.codec.columnar.open_shape import OpenKey, OpenShape, shape_of, width_of
from tidegate.codec.columnar.rows import PlacedRows
from tidegate.codec.kept import KEPT_BYTES, LayoutMemory
from tidegate.model.event import Delete, Event, RowChange, Update
from tidegate.model.roads import Reason

_VERSION: Final = (1).to_bytes(8, "big")
_LENGTH: Final = Struct(">Q").unpack_from
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Head(msgspec.Struct, gc=False):
    """What the key of an event says of its table."""

    scm: str
    tbl: str


HEAD: Final = msgspec.json.Decoder(_Head).decode
"""Schema and table of an event, from its head."""

_TS: Final = attrgetter("ts")
_PARTITION: Final = attrgetter("ptn")


_known: Final = LayoutMemory[tuple[str, str, bool], OpenShape](2 * KEPT_BYTES)
"""The last layout of each table: a memory that makes things quick and changes no result."""


def known_shape(schema: str, table: str, *, legacy: bool) -> OpenShape | None:
    """Return the last layout of a table."""
    return _known.get((schema, table, legacy))


class OpenLanes:
    """Gathers the rows of a chunk, one lane a layout."""

    def __init__(self, *, legacy: bool) -> None:
        self._legacy = legacy
        self._lanes: dict[tuple[str, str], tuple[OpenShape, PlacedRows]] = {}
        self._full: list[tuple[OpenShape, PlacedRows]] = []

    def take(self, numbers: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes], at: int) -> int:
        """Take messages in from index `at` on; return the index of the first that fits no known layout."""
        for index in range(at, len(keys)):
            if not self._add(numbers[index], keys[index], values[index]):
                return index
        return len(keys)

    def _add(self, index: int, key: bytes, value: bytes) -> bool:
        """Take a message in; False, and nothing taken, when it does not fit the layouts that are known."""
        try:
            texts, bodies = _split(key, value)
            if not texts:
                return False
            first = HEAD(texts[0])
            lane = self._lane(first.scm, first.tbl)
            if lane is None:
                return False
            shape, rows = lane
            heads = list(map(shape.head, texts))
            structs = list(map(shape.decode, bodies))
        except _UNREADABLE:
            return self._add_mixed(index, key, value)
        count = len(structs)
        rows.structs += structs
        rows.message += [index] * count
        rows.seq += range(count)
        rows.commit_ts += map(_TS, heads)
        if shape.key.partitioned:
            rows.partition_id += map(_PARTITION, heads)
        return True

    def _add_mixed(self, index: int, key: bytes, value: bytes) -> bool:
        """A message with rows of several tables."""
        try:
            texts, bodies = _split(key, value)
            tables = list(map(HEAD, texts))
            lanes = [self._lane(table.scm, table.tbl) for table in tables]
            found = [lane for lane in lanes if lane is not None]
            if len(found) < len(lanes):
                return False
            heads = [shape.head(text) for (shape, _), text in zip(found, texts, strict=True)]
            structs = [shape.decode(body) for (shape, _), body in zip(found, bodies, strict=True)]
        except _UNREADABLE:
            return False
        for seq, ((shape, rows), head, struct) in enumerate(zip(found, heads, structs, strict=True)):
            rows.structs.append(struct)
            rows.message.append(index)
            rows.seq.append(seq)
            rows.commit_ts.append(head.ts)
            if shape.key.partitioned:
                rows.partition_id.append(head.ptn)
        return True

    def _lane(self, schema: str, table: str) -> tuple[OpenShape, PlacedRows] | None:
        lane = self._lanes.get((schema, table))
        if lane is None:
            shape = _known.get((schema, table, self._legacy))
            if shape is not None:
                lane = self._lanes[schema, table] = shape, PlacedRows(shape.row)
                self._full.append(lane)
        return lane

    def learn(self, _value: bytes, events: Sequence[Event]) -> Reason:
        reason = Reason.OTHER_TEXT
        told: dict[tuple[str, str], OpenShape | None] = {}
        for event in events:
            if isinstance(event, RowChange) and not event.handle_only and event.claim_check is None:
                name = event.schema, event.table
                known = _known.get((*name, self._legacy))
                key = _next_key(event, known, told.setdefault(name, known), legacy=self._legacy)
                if known is None or key != known.key:
                    reason = _remember(key)
                    self._lanes.pop(name, None)
        return reason

    def rows(self) -> list[PlacedRows]:
        return [part for shape, rows in self._full for part in _by_layout(shape, rows) if part.structs]


def _split(key: bytes, value: bytes) -> tuple[list[bytes], list[bytes]]:
    """Heads and bodies of a message; none of both when its lengths are not right."""
    heads, bodies = [], []
    key_at, key_end, at, end = 8, len(key), 0, len(value)
    if key[:8] != _VERSION:
        return [], []
    while key_at + 8 <= key_end and at + 8 <= end:
        (size,) = _LENGTH(key, key_at)
        start = key_at + 8
        key_at = start + size
        heads.append(key[start:key_at])
        (size,) = _LENGTH(value, at)
        start = at + 8
        at = start + size
        bodies.append(value[start:at])
    return (heads, bodies) if key_at == key_end and at == end else ([], [])


def _next_key(event: RowChange, known: OpenShape | None, told: OpenShape | None, *, legacy: bool) -> OpenKey:
    """What a table's structs are to be made of after `event`; `told` is what they were before its message."""
    partitioned = event.partition_id is not None
    if known is None:
        fields = event.fields
        return OpenKey(event.schema, event.table, fields, fields, partial=False, partitioned=partitioned, legacy=legacy)
    key = known.key._replace(partitioned=partitioned)
    if isinstance(event, Delete):
        return key._replace(gone=event.fields)
    if key.row != event.fields:
        gone = event.fields if key.gone == key.row else key.gone
        return key._replace(row=event.fields, gone=gone, partial=False)
    return key._replace(partial=key.partial or (isinstance(event, Update) and told is not None and key == told.key))


def _remember(key: OpenKey) -> Reason:
    shape = shape_of(key)
    name = key.schema, key.table, key.legacy
    if shape is None:
        _known.pop(name, None)
        return Reason.NO_LAYOUT
    _known.keep(name, shape, width_of(key))
    return Reason.NEW_LAYOUT


def _by_layout(shape: OpenShape, rows: PlacedRows) -> list[PlacedRows]:
    """`rows` once, or apart where DELETEs have a layout of their own."""
    if shape.key.row == shape.key.gone:
        return [rows]
    parts = PlacedRows(shape.row), PlacedRows(shape.gone)
    for at, struct in enumerate(rows.structs):
        part = parts[struct.d is not None]
        part.message.append(rows.message[at])
        part.seq.append(rows.seq[at])
        part.commit_ts.append(rows.commit_ts[at])
        part.partition_id += rows.partition_id[at : at + 1]
        part.structs.append(struct)
    return list(parts)
