"""Row changes as Arrow columns, in the common form that every source produces and every sink accepts.

    Batch     rows of one table in one layout: commit_ts start_ts op partition_id │ before after      typed, or texts
    Chunk     batches of whole transactions, and the order of their rows over all of them

    chunk     numbers       0    1    2    3    4          commit order, from 0
              transaction   0    0    1    1    1          by number
              part orders   0         2         4          ChunkPart.numbers: per row of the batch
              part items         1         3
              runs          [0] [1] [2] [3] [4]            batches in commit order: here one row each

Codecs, the mounter and the changelog create batches, sinks consume them.  Batch is defined beside the codecs
(codec/columnar/rows.py), which do not depend on changefeeds.

Landed events are stored in the changelog with these columns:

    ROWS      topic partition offset seq │ commit_ts op schema table partition_id │ layout │ before after
    CONTROL   topic partition offset seq │ kind commit_ts schema table │ query ddl_type │ error_… raw_…

`before` and `after` are lists of texts (bytes), one entry per field of `layout`, null for NULL:

    int      decimal digits             str      UTF-8 (bytes that are not UTF-8 are kept unchanged)
    float    shortest digits (repr)     bytes    themselves

so that one `list_element` and one cast give a whole column of a table, without a Python call per value.  `layout` is
the JSON of the fields and the primary key names; a table has few, so Parquet stores it as a dictionary.  `(topic,
partition, offset, seq)` is the position of an event: its message, and its index within the message.  Rows from a
change log have no message, only `seq`, which keeps the order of events of one commit_ts.  A row with commit_ts == a
DDL's commit_ts belongs before that DDL.  Rows that a DDL itself brings (`SourceDdl.rows_follow`) have the next
commit_ts, where they are first: their `seq` is negative.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.rows import Batch
from tidegate.model.event import Ddl, Field, RowChange, Value, Values, images
from tidegate.model.path_counts import PathCounts
from tidegate.model.table import TableName

IMAGE: Final = pa.list_(pa.field("item", pa.binary()))
POSITION_FIELDS: Final = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("seq", pa.int32()),
]

ROWS_SCHEMA: Final = pa.schema(
    [
        *POSITION_FIELDS,
        pa.field("commit_ts", pa.int64()),
        pa.field("op", pa.string()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("partition_id", pa.int64()),
        pa.field("layout", pa.string()),
        pa.field("before", IMAGE),
        pa.field("after", IMAGE),
    ],
)
"""`op` is I, U or D; `partition_id` the physical partition if the format has it."""

CONTROL_SCHEMA: Final = pa.schema(
    [
        *POSITION_FIELDS,
        pa.field("kind", pa.string()),
        pa.field("commit_ts", pa.int64()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("query", pa.string()),
        pa.field("written", pa.string()),
        pa.field("session", pa.string()),
        pa.field("ddl_type", pa.int32()),
        pa.field("rows_follow", pa.bool_()),
        pa.field("error_code", pa.string()),
        pa.field("error", pa.string()),
        pa.field("error_offset", pa.int64()),
        pa.field("raw_key", pa.binary()),
        pa.field("raw_value", pa.binary()),
    ],
)
"""`kind` is one of changelog/files.py, such as ddl or dead; a dead letter keeps its message whole."""

OPS: Final = {"Insert": "I", "Update": "U", "Delete": "D"}


class EventPosition(msgspec.Struct, frozen=True, order=True):
    """The position of an event: its message, and its number within the message. A change log has no messages: no topic,
    and `seq` is the event's number among those that were read with it."""

    topic: str = ""
    partition: int = 0
    offset: int = 0
    seq: int = 0

    def __str__(self) -> str:
        if not self.topic:
            return f"event {self.seq} of the change log"
        return f"topic {self.topic} partition {self.partition} offset {self.offset}"


class SourceDdl(msgspec.Struct, frozen=True):
    """A DDL with the position where it was first read. `left_out` is set for a DDL that the source filters out, by its
    transaction or, in bdr-mode, by its cluster.

    `previous` is the table's earlier name, where source or schema know it; it decides the DDL's topic. `needed`: no
    event filter leaves it out. `rows_follow`: rows that belong to it have the next commit_ts."""

    position: EventPosition
    ddl: Ddl
    left_out: bool = False
    previous: TableName | None = None
    needed: bool = False
    rows_follow: bool = False


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that could not be decoded, with the error. `commit_ts` is set for a row that a sink refused after it
    landed."""

    position: EventPosition
    error_code: str
    error: str
    error_offset: int
    raw_key: bytes | None
    raw_value: bytes | None
    commit_ts: int | None = None


class Layout(msgspec.Struct, frozen=True):
    """The fields of an image, and the names of its primary key."""

    fields: tuple[Field, ...]
    pk_names: tuple[str, ...] | None = None


class ChunkPart(NamedTuple):
    """The rows of one batch in a chunk; `numbers` (int64, ascending) are their row numbers in the chunk."""

    batch: Batch
    numbers: Any


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole transactions in commit order, with rows of several tables. Only a last chunk may be empty: it counts the
    rows that filters removed.

    `transaction` (int64, ascending from 0) has the transaction of each row, by row number.  Rows of one commit_ts are
    one transaction where the source does not know start_ts.  `path_counts` counts rows by decode path, `corrupt` those
    whose checksum contradicts their values."""

    parts: tuple[ChunkPart, ...]
    transaction: Any
    path_counts: PathCounts = field(default_factory=PathCounts)
    corrupt: int = 0

    def __len__(self) -> int:
        """How many rows."""
        return len(self.transaction)

    def runs(self) -> Iterator[Batch]:
        """Return the rows in commit order, as batches: a part stays whole if no row of another part falls between its
        rows.

        A table's rows of two layouts are two parts, whose rows may alternate: whole rows, and DELETEs of the key
        alone."""
        if len(self.parts) == 1:
            yield self.parts[0].batch
            return
        part_of = np.repeat(np.arange(len(self.parts)), [len(numbers) for _, numbers in self.parts])
        part_of = part_of[np.argsort(np.concatenate([numbers for _, numbers in self.parts]))]
        ends = [*(np.flatnonzero(part_of[1:] != part_of[:-1]) + 1).tolist(), len(part_of)]
        passed = [0] * len(self.parts)
        start = 0
        for end in ends:
            index, start, rows = int(part_of[start]), end, end - start
            yield self.parts[index].batch.part(passed[index], passed[index] + rows)
            passed[index] += rows


def encode_layout(row: RowChange) -> str:
    """Return the JSON text of a row's layout; equal layouts give equal texts."""
    return msgspec.json.encode(Layout(row.fields, row.pk_names)).decode()


def decode_layout(text: str) -> Layout:
    """Return the layout that `encode_layout` wrote."""
    return msgspec.json.decode(text, type=Layout)


def encode_value(value: Value) -> bytes | None:
    """Return the text of one value; None for NULL."""
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode("utf-8", "surrogateescape")
        case float():
            return repr(value).encode()
        case _:
            return b"%d" % value


def encode_row(row: RowChange) -> tuple[str, list[bytes | None] | None, list[bytes | None] | None]:
    """(op, before, after) of a row as ROWS_SCHEMA holds them."""
    before, after = images(row)
    return OPS[type(row).__name__], _image(before), _image(after)


def _image(values: Values | None) -> list[bytes | None] | None:
    return None if values is None else [encode_value(value) for value in values]


def ordered_ddls(seen: Iterable[SourceDdl]) -> list[SourceDdl]:
    """Return each DDL once, by (commit_ts, arrival order).

    Identity is (commit_ts, schema, table, query): partitions repeat a DDL, restarts send it again.  DDLs that share
    a commit_ts keep the order in which the lowest position of each arrived within one partition.
    """
    first: dict[tuple[int | None, str, str, str], SourceDdl] = {}
    for source_ddl in sorted(seen, key=lambda source_ddl: source_ddl.position):
        ddl = source_ddl.ddl
        first.setdefault((ddl.commit_ts, ddl.schema, ddl.table, ddl.query), source_ddl)
    return sorted(first.values(), key=lambda source_ddl: (source_ddl.ddl.commit_ts or 0, source_ddl.position))


def rest_of(ddls: Iterable[SourceDdl], ts: int) -> int:
    """Return `ts`, or the next one if rows that belong to one of `ddls` at `ts` follow it there."""
    return ts + any(source_ddl.rows_follow and source_ddl.ddl.commit_ts == ts for source_ddl in ddls)
