"""Tables and DDLs of a place, out of its schema files.

    schema files by TableVersion ─┬─ Query ──────────────► DDLs, in order
                                  └─ TableColumns ──┐
    DDLs applied to a schema ───────────────────────┴────► the table of a directory at a version

A schema file tells the columns; the DDLs of the place tell what it leaves out (virtual columns, unique keys, names of
ENUM and SET in files of the classic architecture).  They are believed where their columns are those of the file.

Statements that TiCDC splits of one RENAME or CREATE TABLE share a version.  A RENAME whose new name another one of them
takes away comes behind that one.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from tidegate.codec.storage import SchemaFile, mysql_type, parse_schema_path, table_of_file
from tidegate.codec.wire_table import WireTable, wire_table
from tidegate.engine.event_filter import acting
from tidegate.engine.filter import previous_name
from tidegate.model.errors import DecodeError, InputError, SchemaError
from tidegate.model.event import Ddl, Field
from tidegate.model.mysql import ActionType
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.state import SchemaState, apply_ddl

LOGGER: Final = logging.getLogger(__name__)
_LEAVES: Final = frozenset({ActionType.DROP_TABLE, ActionType.RENAME_TABLE, ActionType.RENAME_TABLES})


class FileLayout(NamedTuple):
    """How the rows of a table stand in its files: its name, the columns of a line, and how rows tell of them."""

    name: TableName
    wire: WireTable
    fields: tuple[Field, ...]


@dataclass(slots=True)
class PlaceDefinitions:
    """What all schema files of a place tell. Files that come are of later versions, as a rule: then only they are
    looked at."""

    ddls: list[Ddl] = field(default_factory=list)
    """In order."""
    directories: set[str] = field(default_factory=set)
    """Those of tables."""
    _tables: dict[tuple[str, int], FileLayout] = field(default_factory=dict)
    _state: SchemaState = field(default_factory=SchemaState)
    _files: dict[str, SchemaFile] = field(default_factory=dict)
    _last: int = -1

    @classmethod
    def of(cls, files: Mapping[str, SchemaFile]) -> "PlaceDefinitions":
        """Return what schema files, by their paths, tell. SchemaError for columns that are none."""
        found = cls()
        found._follow(files)
        return found

    def after(self, new: Mapping[str, SchemaFile]) -> "PlaceDefinitions":
        """Return what is told once more files are there; these definitions are not to be used any more."""
        if min((file.version for file in new.values()), default=self._last + 1) <= self._last:
            return self.of({**self._files, **new})
        self._follow(new)
        return self

    def _follow(self, files: Mapping[str, SchemaFile]) -> None:
        by_version: dict[int, list[tuple[str, SchemaFile]]] = {}
        for path, file in sorted(files.items()):
            by_version.setdefault(file.version, []).append((path, file))
        for version in sorted(by_version):
            some = by_version[version]
            ddls = in_order([_ddl(file) for _, file in some if file.query])
            for ddl in ddls:
                self._state = _after(self._state, ddl)
            self.ddls += ddls
            for path, file in sorted(some, key=lambda one: one[1].action not in _LEAVES):
                told = parse_schema_path(path)
                if file.table and file.columns is not None and told is not None:
                    self.directories.add(told[0])
                    self._tables[told[0], version] = _layout(path, file, self._state)
            self._last = version
        self._files |= files

    def layout(self, directory: str, version: int) -> FileLayout | None:
        """Return how the rows of a version of a table stand in its files; None where no schema file tells."""
        return self._tables.get((directory, version))


def in_order(ddls: list[Ddl]) -> list[Ddl]:
    """Return DDLs of one commit_ts in an order in which they can be run."""
    waiting, found = [(ddl, previous_name(ddl)) for ddl in ddls], list[Ddl]()
    while waiting:
        taken = {old.key for _, old in waiting if old is not None}
        free = [one for one in waiting if TableName(one[0].schema, one[0].table).key not in taken]
        chosen = free[0] if free else waiting[0]
        waiting.remove(chosen)
        found.append(chosen[0])
    return found


def _ddl(file: SchemaFile) -> Ddl:
    return Ddl(schema=file.schema, table=file.table, query=file.query, commit_ts=file.version, type=file.action or None)


def _after(state: SchemaState, ddl: Ddl) -> SchemaState:
    """The schema behind a DDL; where it cannot be read, that before it: the sink judges it, and says so."""
    try:
        return apply_ddl(state, acting(ddl), 1)[0]
    except (InputError, SchemaError) as error:
        LOGGER.debug("the columns behind the DDL %r are told by schema files alone: %s", ddl.query[:200], error)
        return state


def _layout(path: str, file: SchemaFile, state: SchemaState) -> FileLayout:
    try:
        told = table_of_file(file)
    except DecodeError as error:
        raise SchemaError(f"{path}: {error.what}") from error
    known = state.table(told.name)
    table = told if known is None or _columns(known) != _columns(told) else _joined(told, known)
    wire = wire_table(table)
    fields = tuple(
        msgspec.structs.replace(one, mysql_type=mysql_type(column.type))
        for one, column in zip(wire.fields, wire.columns, strict=True)
    )
    return FileLayout(told.name, wire, fields)


def _columns(table: TableInfo) -> list[str]:
    return [lowered(column.name) for column in table.columns]


def _joined(told: TableInfo, known: TableInfo) -> TableInfo:
    """The columns of a schema file with what a DDL tells beyond it."""
    columns = tuple(
        msgspec.structs.replace(
            column,
            type=other.type if other.type.elems is not None and column.type.elems is None else column.type,
            generated=other.generated,
            stored=other.stored,
            nullable=other.nullable,
        )
        for column, other in zip(told.columns, known.columns, strict=True)
    )
    return msgspec.structs.replace(told, columns=columns, indexes=known.indexes)


def ddls_between(ddls: Iterable[Ddl], low: int, high: int) -> list[Ddl]:
    """Return the DDLs with low <= commit_ts <= high."""
    return [ddl for ddl in ddls if low <= (ddl.commit_ts or 0) <= high]
