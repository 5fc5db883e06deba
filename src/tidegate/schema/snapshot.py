"""The schema state: all databases and tables after a DDL, an immutable value.

    SchemaState
      databases   folded name -> Database(name, charset)
      tables      TableName.key -> TableInfo
      dropped     tables that RECOVER and FLASHBACK can bring back, latest first, at most KEPT_DROPPED
      views       TableName.key -> name; views carry no rows
      lost        TableName.key -> LostTable: tables outside a filter with a DDL that could not be followed

JSON form: {"databases": [..], "tables": [..], "dropped": [..], "views": [..]}, each a list of the values, and "lost"
if there is one; a default that is bytes is {"hex": "00ff"}.  `from_json(to_json(state)) == state`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from tidegate.model.errors import SchemaError
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo, TableName

KEPT_DROPPED: Final = 256
"""Maximal number of recoverable tables; TiDB's GC removes them after minutes, so more are never needed."""

Key = tuple[str, str]


class Database(msgspec.Struct, frozen=True):
    """A database, the charset of its new tables and their collation where it is not the default of the charset."""

    name: str
    charset: str = "utf8mb4"
    collation: str = ""


class LostTable(msgspec.Struct, frozen=True):
    """A table whose definition is no longer known, and the reason."""

    name: TableName
    why: str


class _Bytes(msgspec.Struct, frozen=True):
    hex: str


def _form(kind: type[msgspec.Struct], types: Mapping[str, Any]) -> Any:
    """The JSON form of a struct: its fields, some with other types; an empty `collation` is omitted."""
    fields = msgspec.structs.fields(kind)
    described = [(field.name, types.get(field.name, field.type)) for field in fields if field.name != "collation"]
    return msgspec.defstruct(f"_{kind.__name__}", [*described, ("collation", str, "")], omit_defaults=True)


_DEFAULTS: Final = ("default", "origin_default")
_Column: Any = _form(ColumnInfo, dict.fromkeys(_DEFAULTS, str | _Bytes | None))
_Table: Any = _form(TableInfo, {"columns": tuple[_Column, ...]})


class _State(msgspec.Struct, frozen=True, omit_defaults=True):
    databases: tuple[Database, ...]
    tables: tuple[_Table, ...]
    dropped: tuple[_Table, ...]
    views: tuple[TableName, ...]
    lost: tuple[LostTable, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The databases, tables, recoverable tables and views at one moment."""

    databases: Mapping[str, Database] = field(default_factory=dict)
    tables: Mapping[Key, TableInfo] = field(default_factory=dict)
    dropped: tuple[TableInfo, ...] = ()
    views: Mapping[Key, TableName] = field(default_factory=dict)
    lost: Mapping[Key, LostTable] = field(default_factory=dict)
    _packed: dict[int, tuple[TableInfo, msgspec.Raw]] = field(default_factory=dict, repr=False, compare=False)
    """The JSON of tables by their identities, for the states that follow: a DDL changes few of them."""

    def table(self, name: TableName) -> TableInfo | None:
        """Return the table of that name in any case; None if there is none."""
        return self.tables.get(name.key)

    def database(self, name: str) -> Database:
        """Return the database of that name in any case; one of utf8mb4 if its creation was not seen."""
        return self.databases.get(lowered(name), Database(name))

    def with_table(self, table: TableInfo) -> "SchemaState":
        """Return the state with `table` added or replaced under its name."""
        state = self.without_loss(table.name)
        return replace(state, tables={**self.tables, table.name.key: table})

    def with_unknown(self, tables: Iterable[TableInfo], databases: Iterable[Database] = ()) -> "SchemaState":
        """Return the state with those of `tables` and `databases` added that it does not know: no DDL brought them."""
        new = {lowered(database.name): database for database in databases}
        state = replace(self, databases={**new, **self.databases}) if new else self
        for table in tables:
            state = state if state.table(table.name) else state.with_table(table)
        return state

    def without_table(self, name: TableName) -> "SchemaState":
        """Return the state without the table of that name."""
        tables = dict(self.tables)
        tables.pop(name.key, None)
        return replace(self, tables=tables)

    def losing(self, names: Iterable[TableName], reason: str) -> "SchemaState":
        """Return the state where the tables of these names are lost, with the first `reason`."""
        names = tuple(names)
        tables = {key: table for key, table in self.tables.items() if key not in {name.key for name in names}}
        lost = {name.key: LostTable(name, reason) for name in names}
        return replace(self, tables=tables, lost={**lost, **self.lost})

    def without_loss(self, name: TableName) -> "SchemaState":
        """Return the state where no table of that name is lost."""
        if name.key not in self.lost:
            return self
        return replace(self, lost={key: table for key, table in self.lost.items() if key != name.key})

    def with_dropped(self, table: TableInfo) -> "SchemaState":
        """Return the state where `table` is the latest that can be recovered."""
        return replace(self, dropped=(table, *self.dropped)[:KEPT_DROPPED])

    def distinct(self) -> "SchemaState":
        """Return the state itself; SchemaError if two of its tables claim the rows of one incarnation."""
        names: dict[str, TableName] = {}
        for table in (*self.tables.values(), *self.dropped):
            other = names.setdefault(table.incarnation, table.name)
            if other is not table.name:
                raise SchemaError(
                    f"tables {other} and {table.name} both refer to the rows of {table.incarnation}, which were "
                    f"stored as one table; create a new lake, where they are separate"
                )
        return self

    def to_json(self) -> bytes:
        """Return the whole state as JSON."""
        packed: dict[int, tuple[TableInfo, msgspec.Raw]] = {}
        for table in (*self.tables.values(), *self.dropped):
            before = self._packed.get(id(table))
            if before is None or before[0] is not table:  # identities of another process are those of other tables
                before = table, msgspec.Raw(msgspec.json.encode(_pack_table(table)))
            packed[id(table)] = before
        self._packed.clear()
        self._packed.update(packed)
        state = _State(
            tuple(self.databases.values()),
            tuple(packed[id(table)][1] for table in self.tables.values()),
            tuple(packed[id(table)][1] for table in self.dropped),
            tuple(self.views.values()),
            tuple(self.lost.values()),
        )
        return msgspec.json.encode(state)

    @staticmethod
    def from_json(data: bytes) -> "SchemaState":
        """Return the state that `to_json` wrote; SchemaError for an invalid text."""
        try:
            state = msgspec.json.decode(data, type=_State)
            tables = [_unpack_table(table) for table in state.tables]
            return SchemaState(
                {lowered(database.name): database for database in state.databases},
                {table.name.key: table for table in tables},
                tuple(map(_unpack_table, state.dropped)),
                {view.key: view for view in state.views},
                {lost.name.key: lost for lost in state.lost},
            ).distinct()
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise SchemaError(f"stored schema state cannot be read: {error}") from error


def _pack_table(table: TableInfo) -> Any:
    columns = [msgspec.structs.asdict(column) for column in table.columns]
    for column in columns:
        column.update({name: _Bytes(column[name].hex()) for name in _DEFAULTS if isinstance(column[name], bytes)})
    return _Table(**{**msgspec.structs.asdict(table), "columns": tuple(_Column(**column) for column in columns)})


def _unpack_table(table: Any) -> TableInfo:
    columns = [msgspec.structs.asdict(column) for column in table.columns]
    for column in columns:
        column.update({name: bytes.fromhex(column[name].hex) for name in _DEFAULTS if isinstance(column[name], _Bytes)})
    return TableInfo(**{**msgspec.structs.asdict(table), "columns": tuple(ColumnInfo(**column) for column in columns)})
