"""The recorded streams as a script: definitions as they change, statements, and the keys that each one committed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from tests.kv.kv_recordings import lines, raw
from tests.upstream.worlds import MemoryBound
from tidegate.expr.parse import Dml, parse_statements
from tidegate.kv import decode_meta_key
from tidegate.model.tso import to_datetime
from tidegate.mysql.conversion import zone_of
from tidegate.mysql.values import Context
from tidegate.schema.stored.definition import StoredSchema, StoredTable, parse_stored
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.tidb.dml import OpenTables, Outcome, Shapes, run_delete, run_insert, run_update
from tidegate_upstream.tidb.engine import MemoryEngine
from tidegate_upstream.tidb.store_mvcc import Store
from tidegate_upstream.tidb.table_access import StoredAutoIds
from tidegate_upstream.tidb.transaction import Oracle, Storage

DEFAULT_MODE = frozenset({"STRICT_TRANS_TABLES", "NO_ZERO_IN_DATE", "NO_ZERO_DATE", "ERROR_FOR_DIVISION_BY_ZERO"})
SET = re.compile(r"set\s+(?:@@)?(?:session\.|global\.)?(\w+)\s*=\s*'?([^']*)'?$", re.IGNORECASE)
USE = re.compile(r"use\s+`?(\w+)`?$", re.IGNORECASE)
RUN = {"insert": run_insert, "replace": run_insert, "update": run_update, "delete": run_delete}
SYSTEM_IDS = 100
"""Tables below this id, and those above 2**40, are TiDB's own."""


def storage() -> Storage:
    """An empty store in memory with a clock that stands still."""
    return Storage(Store(MemoryEngine()), Oracle(lambda: 1_700_000_000_000, MemoryBound()))


@dataclass
class Session:
    """What SET and USE have set."""

    database: str = ""
    sql_mode: frozenset[str] = DEFAULT_MODE
    zone: tzinfo = UTC
    variables: dict[str, Any] = field(default_factory=dict)

    def obey(self, sql: str) -> None:
        """Follows a statement that sets something."""
        if found := USE.match(sql):
            self.database = found[1]
        elif found := SET.match(sql):
            name, value = found[1].lower(), found[2]
            if name == "sql_mode":
                self.sql_mode = frozenset(filter(None, value.split(",")))
            elif name == "time_zone":
                self.zone = UTC if value == "+00:00" else zone_of(value)
            else:
                self.variables[name] = value

    def context(self, ts: int) -> Context:
        """The context of a statement that began at `ts`."""
        return Context(
            to_datetime(ts),
            self.zone,
            self.sql_mode,
            self.database,
            {**self.variables, "tidb_row_format_version": 2}
            if "tidb_row_format_version" not in self.variables
            else self.variables,
        )


@dataclass
class World:
    """A store that follows a stream."""

    storage: Storage = field(default_factory=storage)
    schemas: dict[int, StoredSchema] = field(default_factory=dict)
    tables: dict[int, TableVersion] = field(default_factory=dict)
    session: Session = field(default_factory=Session)
    shapes: Shapes = field(default_factory=Shapes)

    def __post_init__(self) -> None:
        self.auto_ids = StoredAutoIds(self.storage)

    @property
    def snapshot(self) -> StoredSnapshot:
        """The definitions as they stand."""
        return StoredSnapshot(0, self.schemas, self.tables)

    def apply(self, changes: list[dict[str, Any]]) -> None:
        """What a recorded statement committed."""
        transaction = self.storage.begin()
        for line in changes:
            key = raw(line, "key_b64")
            if line["kind"] == "meta":
                self.define(key, raw(line, "value_b64"), line["commit_ts"])
            if line["op"] == "put":
                transaction.put(key, raw(line, "value_b64"))
            else:
                transaction.delete(key)
        transaction.commit()

    def define(self, key: bytes, value: bytes, commit_ts: int) -> None:
        """A definition that changed."""
        found = decode_meta_key(key)
        name, part = found.name.decode(), (found.field or b"").decode("latin-1")
        if name == "DBs":
            schema_id = int(part.removeprefix("DB:"))
            if value:
                self.schemas[schema_id] = parse_stored(value, StoredSchema)
            else:
                del self.schemas[schema_id]
                self.tables = {i: t for i, t in self.tables.items() if t.schema_id != schema_id}
        elif part.startswith("Table:"):
            table_id, schema_id = int(part.removeprefix("Table:")), int(name.removeprefix("DB:"))
            old = self.tables.get(table_id)
            if value:
                stored = parse_stored(value, StoredTable)
                self.tables[table_id] = TableVersion(
                    schema_id, self.schemas[schema_id].name.original, stored, commit_ts
                )
            elif old is not None and old.schema_id == schema_id:
                del self.tables[table_id]

    def held(self) -> dict[bytes, bytes]:
        """All keys with their values."""
        return dict(self.storage.snapshot().scan(b""))

    def run(self, sql: str, ts: int) -> tuple[Outcome, Context]:
        """Runs one statement and commits it."""
        context = self.session.context(ts)
        [parsed] = parse_statements(sql, self.session.sql_mode)
        assert isinstance(parsed, Dml), sql
        transaction = self.storage.begin()
        tables = OpenTables(transaction, self.snapshot, context, self.auto_ids, self.shapes)
        outcome = RUN[sql.split(maxsplit=1)[0].lower()](parsed.node, tables, context)
        transaction.commit()
        return outcome, context


@dataclass
class Statement:
    """A recorded statement and what it committed."""

    idx: int
    sql: str
    ts: int
    error: str | None
    changes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_dml(self) -> bool:
        """Whether it changes rows of users' tables."""
        return self.sql.split()[0].lower() in RUN and "mysql." not in self.sql


def statements(stream: str) -> Iterator[Statement]:
    """The statements of a stream in order."""
    current: Statement | None = None
    for line in lines(stream):
        if line["kind"] == "sql":
            if current:
                yield current
            current = Statement(line["idx"], line["sql"], line["ts_before"], line.get("error"))
        elif current and line["kind"] in {"record", "index", "meta"}:
            current.changes.append(line)
    if current:
        yield current


def recorded(statement: Statement) -> dict[bytes, bytes | None]:
    """The keys of rows, index entries and counters that a statement left behind."""
    found: dict[bytes, bytes | None] = {}
    for line in statement.changes:
        key = raw(line, "key_b64")
        if line["kind"] == "meta" and b"TID:" not in key:
            continue
        if line["kind"] == "meta" and (decode_meta_key(key).name == b"DB:1"):
            continue
        found[key] = raw(line, "value_b64") if line["op"] == "put" else None
    return found
