"""Hand-made row changes and a lake in a temporary directory, for tests of the Delta sink without Spark or Kafka."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tidegate.changelog.files import LANDED_SCHEMA, text_chunks
from tidegate.engine.change import ROWS_SCHEMA, Chunk, encode_layout, encode_row
from tidegate.engine.plan import Step, Unit
from tidegate.model.event import Delete, Field, Insert, RowChange, Update
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnInfo, ColumnType, IndexInfo, TableInfo, TableName
from tidegate.objectstore import deltalog
from tidegate.sink.delta.apply import run_unit
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.files import read
from tidegate.sink.delta.options import DeltaOptions

INT = ColumnType(MysqlType.LONG)
TEXT = ColumnType(MysqlType.VARCHAR, flen=20)


def column(at: int, name: str, kind: ColumnType = INT, **more: object) -> ColumnInfo:
    return ColumnInfo(id=at, name=name, type=kind, **more)


def table(
    *columns: ColumnInfo, name: str = "t", version: int = 10, key: tuple[str, ...] = ("id",), **more: object
) -> TableInfo:
    indexes = (IndexInfo(1, "PRIMARY", key, unique=True, primary=True),) if key else ()
    return TableInfo(TableName("s", name), more.pop("incarnation", f"{name}-1"), version, columns, indexes, **more)


@dataclass
class Rows:
    """A landed range in memory: the changes that a unit gets."""

    changes: list[RowChange] = field(default_factory=list)

    def insert(self, ts: int, name: str = "t", **row: object) -> None:
        """Add an INSERT at `ts`."""
        self.changes.append(Insert(schema="s", table=name, commit_ts=ts, fields=fields(row), after=tuple(row.values())))

    def update(self, ts: int, before: dict[str, object], name: str = "t", **row: object) -> None:
        """Add an UPDATE to `row`; `before` names what was different."""
        old = tuple((row | before)[one] for one in row)
        self.changes.append(
            Update(schema="s", table=name, commit_ts=ts, fields=fields(row), before=old, after=tuple(row.values())),
        )

    def delete(self, ts: int, name: str = "t", **row: object) -> None:
        """Add a DELETE at `ts`."""
        self.changes.append(
            Delete(schema="s", table=name, commit_ts=ts, fields=fields(row), before=tuple(row.values()))
        )

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        """The changes of a table in a range, as the changelog gives them."""
        return text_chunks(self.landed(name, after, upto))

    def landed(self, name: TableName, after: int = 0, upto: int = 1 << 62) -> pa.Table:
        """The same as they stand there."""
        rows = []
        for at, change in enumerate(sorted(self.changes, key=lambda change: change.commit_ts or 0)):
            if change.table != name.table or not after < (change.commit_ts or 0) <= upto:
                continue
            op, before, after_image = encode_row(change)
            place = {"topic": "x", "partition": 0, "offset": at, "seq": 0, "partition_id": None}
            where = {"commit_ts": change.commit_ts, "op": op, "schema": change.schema, "table": change.table}
            rows.append(place | where | {"layout": encode_layout(change), "before": before, "after": after_image})
        return pa.Table.from_pylist(rows, schema=ROWS_SCHEMA).cast(LANDED_SCHEMA)


KINDS = {str: MysqlType.VARCHAR, float: MysqlType.DOUBLE}


def fields(row: dict[str, object]) -> tuple[Field, ...]:
    return tuple(Field(name, int(KINDS.get(type(value), MysqlType.LONG))) for name, value in row.items())


def options(root: Path, **more: object) -> DeltaOptions:
    return DeltaOptions(root=str(root), feed="f", **more)


def run(chosen: DeltaOptions, rows: Rows, *steps: Step) -> list:
    return run_unit(Unit(steps), rows, chosen)


def stored(chosen: DeltaOptions, incarnation: str, version: int | None = None) -> list[dict]:
    """The rows of a stored table, ordered by their first column."""
    snapshot = deltalog.load(chosen.table_uri(incarnation), version)
    columns = stored_columns(snapshot)
    parts = [read(snapshot.uri, file, columns) for file in snapshot.files()]
    found = pa.concat_tables(parts).to_pylist() if parts else []
    return sorted(found, key=lambda row: str(next(iter(row.values()))))
