"""Tables by name, as one statement of one transaction sees them.

    OpenTables(transaction, snapshot, context, auto_ids)
      .table("d", "t")      TableAccess, to be changed            1146 when there is none, 1288 for views
      .relation("d", "t")   the same to be read; what is no stored table is asked of `system`

    PastTables(snapshot of the store, ..)   relations alone: tidb_snapshot

A table that is not public does not exist.  Shapes are kept by definition, so that a statement does not make them anew.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol

import msgspec

from tidegate.expr.relation import Relation, Relations
from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.mysql.context import Context
from tidegate.schema.stored.definition import StoredTable
from tidegate.schema.stored.meta import Reader
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.tidb.sql.rows.access import Fits, ForeignKeys, TableAccess, fits_partition
from tidegate_upstream.tidb.sql.rows.auto_id import StoredAutoIds
from tidegate_upstream.tidb.sql.rows.foreign import keys_between
from tidegate_upstream.tidb.sql.rows.read import TableReader
from tidegate_upstream.tidb.sql.rows.shape import TableShape
from tidegate_upstream.tidb.transaction import Transaction

_KEPT: Final = 256


class TableOpener(Relations, Protocol):
    """Tables that can be changed, and relations of all kinds."""

    def table(self, schema: str, name: str) -> TableAccess:
        """Return the table of that name; SqlRefused 1146 when there is none."""
        ...


class Shapes:
    """Shapes of the definitions in use, the oldest dropped first; share one per node."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, TableShape] = OrderedDict()
        self._lock = Lock()

    def of(self, stored: StoredTable) -> TableShape:
        """Return the shape of a definition; safe to call from several threads."""
        with self._lock:
            found = self._held.get(id(stored))
            if found is None or found.stored is not stored:
                found = self._held[id(stored)] = TableShape(stored)
                if len(self._held) > _KEPT:
                    self._held.popitem(last=False)
            return found


def find_table(snapshot: StoredSnapshot, schema: str, name: str) -> TableVersion | None:
    """Return the public table of that name, in any case of letters."""
    schema, name = lowered(schema), lowered(name)
    for version in snapshot.tables.values():
        stored = version.stored
        if stored.name.lower == name and lowered(version.schema) == schema and stored.state == ElementState.PUBLIC:
            return version
    return None


def _missing(schema: str, name: str) -> SqlRefused:
    return SqlRefused(1146, f"Table '{schema}.{name}' doesn't exist", "42S02")


class _Exchange(msgspec.Struct, frozen=True):
    """The partition that a table is exchanged with, and its table."""

    exchange_partition_id: int = 0
    exchange_partition_def_id: int = 0


@dataclass
class OpenTables:
    """The tables of a schema snapshot in a transaction."""

    transaction: Transaction
    snapshot: StoredSnapshot
    context: Context
    auto_ids: StoredAutoIds
    shapes: Shapes = field(default_factory=Shapes)
    system: Relations | None = None
    _open: dict[tuple[str, str], TableAccess] = field(default_factory=dict)

    def table(self, schema: str, name: str) -> TableAccess:
        """Return the table of that name, to be changed."""
        schema = schema or self.context.database
        key = (lowered(schema), lowered(name))
        if key not in self._open:
            version = find_table(self.snapshot, schema, name)
            if version is None:
                raise _missing(schema, name)
            if version.stored.is_view or version.stored.is_sequence:
                raise SqlRefused(1288, f"The target table {name} of the statement is not updatable")
            shape, fits = self.shapes.of(version.stored), self._exchanged(version.stored)
            self._open[key] = TableAccess(
                self.transaction, version, self.context, self.auto_ids, shape, fits=fits, foreign=self._foreign(version)
            )
        return self._open[key]

    def _foreign(self, version: TableVersion) -> ForeignKeys | None:
        """The foreign keys from and to the table, if it has any and they are on."""
        if str(self.context.variables.get("foreign_key_checks", 1)).upper() in {"0", "OFF"}:
            return None
        return keys_between(self.snapshot, version, self.table)

    def _exchanged(self, stored: StoredTable) -> Fits | None:
        """What rows must fit while the table is exchanged with a partition."""
        info = msgspec.json.decode(stored.exchange_partition_info, type=_Exchange | None)
        other = self.snapshot.tables.get(info.exchange_partition_id) if info else None
        if info is None or other is None:
            return None
        return fits_partition(self.shapes.of(stored), self.shapes.of(other.stored), info.exchange_partition_def_id)

    def relation(self, schema: str, name: str) -> Relation:
        """Return the relation of that name."""
        version = find_table(self.snapshot, schema or self.context.database, name)
        if self.system is not None and (version is None or version.stored.is_view):
            return self.system.relation(schema or self.context.database, name)
        return self.table(schema, name)


@dataclass
class PastTables:
    """The tables of a schema snapshot at a moment of the store, to be read only."""

    source: Reader
    snapshot: StoredSnapshot
    context: Context
    shapes: Shapes = field(default_factory=Shapes)
    system: Relations | None = None

    def relation(self, schema: str, name: str) -> Relation:
        """Return the relation of that name; SqlRefused 1146 when there is none."""
        schema = schema or self.context.database
        version = find_table(self.snapshot, schema, name)
        if self.system is not None and (version is None or version.stored.is_view):
            return self.system.relation(schema, name)
        if version is None:
            raise _missing(schema, name)
        return TableReader(self.source, self.shapes.of(version.stored), self.context)
