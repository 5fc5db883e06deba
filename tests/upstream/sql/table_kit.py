"""Definitions made by hand, and tables in a store in memory."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.upstream.sql.dml_recorded import storage
from tidegate.expr.parse import Dml, parse_statements
from tidegate.model.mysql import MysqlType as T
from tidegate.mysql.values import Context
from tidegate.schema.stored.definition import (
    Name,
    StoredColumn,
    StoredIndex,
    StoredPart,
    StoredSchema,
    StoredTable,
    StoredType,
)
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.tidb.check_table import Fault, check_table
from tidegate_upstream.tidb.dml import OpenTables, Outcome, Shapes, run_delete, run_insert, run_update
from tidegate_upstream.tidb.metadata import MetaWriter
from tidegate_upstream.tidb.table_access import StoredAutoIds, TableAccess
from tidegate_upstream.tidb.table_rows import TableShape
from tidegate_upstream.tidb.transaction import Storage, Transaction

NOW = datetime(2024, 1, 31, 12, 30, 15, 123456, tzinfo=UTC)
STRICT = frozenset({"STRICT_TRANS_TABLES", "NO_ZERO_DATE", "NO_ZERO_IN_DATE"})
NOT_NULL, PRIMARY, UNSIGNED, AUTO = 1, 2, 32, 512
RUN = {"insert": run_insert, "replace": run_insert, "update": run_update, "delete": run_delete}


def context(sql_mode: Iterable[str] = STRICT, **more: Any) -> Context:
    """The context of a statement."""
    return Context(NOW, more.pop("zone", UTC), frozenset(sql_mode), "d", **more)


def integer(flag: int = 0, tp: int = T.LONG) -> StoredType:
    """INT, or another integer type."""
    return StoredType(tp, flag, 11, 0, "binary", "binary")


def varchar(length: int = 20, flag: int = 0, collate: str = "utf8mb4_bin") -> StoredType:
    """VARCHAR."""
    return StoredType(T.VARCHAR, flag, length, 0, "utf8mb4", collate)


def column(number: int, name: str, kind: StoredType, **more: Any) -> StoredColumn:
    """A column."""
    return StoredColumn(id=number, name=Name.of(name), offset=number - 1, type=kind, **more)


def index(number: int, name: str, columns: Mapping[str, int], **more: Any) -> StoredIndex:
    """An index on columns, given with their offsets."""
    parts = [StoredPart(Name.of(part), offset) for part, offset in columns.items()]
    return StoredIndex(id=number, idx_name=Name.of(name), tbl_name=Name.of("t"), idx_cols=parts, **more)


def table(
    columns: list[StoredColumn], indexes: Iterable[StoredIndex] = (), *, clustered: bool = True, **more: Any
) -> StoredTable:
    """Table t, by default clustered by the integer column that is its primary key."""
    placed = [msgspec.structs.replace(one, offset=at) for at, one in enumerate(columns)]
    return StoredTable(
        id=more.pop("id", 100),
        name=Name.of("t"),
        cols=placed,
        index_info=list(indexes),
        pk_is_handle=clustered,
        max_col_id=len(columns),
        **more,
    )


ID = column(1, "id", integer(NOT_NULL | PRIMARY))


class World:
    """A table in a store; statements and checks on it."""

    def __init__(self, stored: StoredTable) -> None:
        self.storage: Storage = storage()
        self.auto_ids = StoredAutoIds(self.storage)
        self.shapes = Shapes()
        self.define(stored)

    def define(self, stored: StoredTable, *others: StoredTable) -> None:
        """Replaces the definitions; `others` are further tables of the database."""
        self.stored = stored
        versions = {one.id: TableVersion(1, "d", one, 1) for one in (stored, *others)}
        self.snapshot = StoredSnapshot(1, {1: StoredSchema(1, Name.of("d"))}, versions)
        transaction = self.storage.begin()
        for one in (stored, *others):
            MetaWriter(transaction).put_table(1, one)
        transaction.commit()

    def open(
        self, transaction: Transaction, stored: StoredTable | None = None, mode: Iterable[str] = STRICT
    ) -> TableAccess:
        """The table in a transaction, under its own or another definition."""
        stored = stored or self.stored
        version = TableVersion(1, "d", stored, 1)
        return TableAccess(transaction, version, context(mode), self.auto_ids, self.shapes.of(stored))

    def tables(self, transaction: Transaction, mode: Iterable[str] = STRICT) -> OpenTables:
        """All tables in a transaction."""
        return OpenTables(transaction, self.snapshot, context(mode), self.auto_ids, self.shapes)

    def run(self, sql: str, mode: Iterable[str] = STRICT, **more: Any) -> tuple[Outcome, Context]:
        """Runs a statement and commits it."""
        found = context(mode, **more)
        [parsed] = parse_statements(sql, found.sql_mode)
        assert isinstance(parsed, Dml), sql
        transaction = self.storage.begin()
        tables = OpenTables(transaction, self.snapshot, found, self.auto_ids, self.shapes)
        outcome = RUN[sql.split(maxsplit=1)[0].lower()](parsed.node, tables, found)
        transaction.commit()
        return outcome, found

    def rows(self, stored: StoredTable | None = None) -> list[tuple[Any, ...]]:
        """All rows as statements see them."""
        access = self.open(self.storage.begin(), stored)
        return list(access.rows({}, access.context))

    def faults(self, stored: StoredTable | None = None) -> list[Fault]:
        """What does not agree."""
        shape: TableShape = self.shapes.of(stored or self.stored)
        return check_table(self.storage.snapshot(), shape, context())
