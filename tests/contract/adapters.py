"""How what each sink holds is read back, in the words of the contract suite."""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.columnar.rows import Batch
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError
from tidegate.model.event import Delete, Event, Field, Insert, Resolved, RowChange, Value
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnInfo
from tidegate.mysql.conversion import enum_name, set_names
from tidegate.sink.callback import Callback
from tidegate.sink.delta.rows import folded
from tidegate.testing.script import Row

LEAVES = ("update_preimage", "delete")


class Journal:
    """A file that grows event by event: a callback that tells all it is called with, and can be read back.

    `poison` is the note of a row that it does not take."""

    def __init__(self, path: Path, poison: str) -> None:
        self.path, self.poison = path, poison

    def callback(self) -> Callback:
        """Return the functions, which travel by pickle with this object."""
        return Callback(self.write, self.append, self.resolved)

    def write(self, batch: Batch) -> None:
        """Append the rows of a batch, or none."""
        found = events_of(batch)
        if any(self.poison in (getattr(row, "after", None) or ()) for row in found):
            raise ValueError(f"a note of {self.poison!r}")
        self.append(*found)

    def resolved(self, ts: int) -> None:
        """Append a resolved ts."""
        self.append(Resolved(ts))

    def append(self, *events: Event) -> None:
        """Append events."""
        with self.path.open("ab") as file:
            for event in events:
                pickle.dump(event, file)

    def read(self) -> list[Event]:
        """Return all events, in the order in which they came."""
        return list(_loaded(self.path)) if self.path.exists() else []


def _loaded(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


def lake_tables(root: Path) -> dict[str, list[Row]]:
    """Return the rows that the upstream has, of every table of a lake of any mode; none before the first snapshot."""
    lake = _lake(root)
    return {} if lake is None else {name: [_plain(row) for row in _current(lake, name)] for name in lake.tables()}


def lake_changes(root: Path, name: str) -> dict[str, list[RowChange]]:
    """Return the changes that a lake of mode changelog or history keeps of a table that no DDL has changed."""
    lake = _lake(root)
    if lake is None or name not in lake.tables():
        return {}
    rows = lake.arrow(name).to_pylist()
    if "_commit_seq" in rows[0]:
        return {name: [_image(name, row["_commit_ts"], row, leaves=row["_change_type"] in LEAVES) for row in rows]}
    if "_valid_to" in rows[0]:
        came = [_image(name, row["_valid_from"], row) for row in rows]
        return {name: came + [_image(name, row["_valid_to"], row, leaves=True) for row in rows if row["_valid_to"]]}
    return {}


def _lake(root: Path) -> Lake | None:
    lake = Lake(str(root))
    try:
        return lake if lake.snapshot else None
    except ConfigError:
        return None


def _image(name: str, ts: int, row: Mapping[str, Any], *, leaves: bool = False) -> RowChange:
    values = _plain(row)
    schema, _, table = name.partition(".")
    fields = tuple(Field(column, 0) for column in values)
    if leaves:
        return Delete(schema=schema, table=table, fields=fields, commit_ts=ts, before=tuple(values.values()))
    return Insert(schema=schema, table=table, fields=fields, commit_ts=ts, after=tuple(values.values()))


def _current(lake: Lake, name: str) -> Iterable[Mapping[str, Any]]:
    """The rows of a table that are there now, by what its mode tells."""
    rows = lake.arrow(name)
    if "_commit_seq" in rows.column_names:
        return folded(rows, lake.definition(name).handle_key).to_pylist()
    return [row for row in rows.to_pylist() if row.get("_valid_to") is None]


def _plain(row: Mapping[str, Any]) -> Row:
    """A row without the lake's own columns, times as text."""
    found = {name: value for name, value in row.items() if not name.startswith("_")}
    return {name: _text(value) if isinstance(value, date | Decimal) else value for name, value in found.items()}


def _text(value: date | Decimal) -> str:
    return str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)


def by_name(column: ColumnInfo, value: Value) -> Any:
    """Return a value as targets have it that know ENUM and SET by their names."""
    kind = column.type
    if kind.elems is None or not isinstance(value, int):
        return value
    return (enum_name if kind.code is MysqlType.ENUM else set_names)(kind.elems, value)


def in_words(column: ColumnInfo, value: Value) -> Any:
    """Return a value as targets have it that know large integers by their digits, too."""
    large = column.type.code is MysqlType.BIT or (column.type.code is MysqlType.LONGLONG and column.type.unsigned)
    return str(value) if large and value is not None else by_name(column, value)
