"""A client of an upstream, and what a load of it reads."""

import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pymysql

from tidegate.codec.columnar.rows import Batch
from tidegate.engine.load_plan import LoadPlan
from tidegate.model.event import Values
from tidegate.model.table import TableName
from tidegate.source.load_sql import SqlReader
from tidegate.source.upstream_address import Address, SqlLoadOptions


class Loaded:
    """A database at a port, with a client's connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = pymysql.connect(
            host="127.0.0.1", port=port, user="root", autocommit=True, charset="utf8mb4", sql_mode=""
        )
        self.run("SET time_zone = '+00:00'")

    def run(self, statement: str, *values: object) -> tuple[tuple[Any, ...], ...]:
        """The rows of a statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall()

    def reader(self, **options: Any) -> SqlReader:
        """A reader of it."""
        return SqlReader(SqlLoadOptions(Address("127.0.0.1", self.port, enable_tls=False), **options))


def of(schema: str) -> Callable[[TableName], bool]:
    """The tables of one database."""
    return lambda name: name.schema == schema


def loaded(reader: SqlReader, plan: LoadPlan) -> dict[str, list[Values]]:
    """The rows of all chunks, read as another process would, by the names of their tables."""
    reader = pickle.loads(pickle.dumps(reader))
    plan = msgspec.json.decode(msgspec.json.encode(plan), type=LoadPlan)
    found: dict[str, list[Values]] = {table.name.table: [] for table in plan.tables}
    for chunk in plan.chunks:
        table = plan.table_of(chunk)
        for batch in reader.batches(table, chunk, plan.ts):
            found[table.name.table] += rows_of(batch)
    reader.close()
    return found


def rows_of(batch: Batch) -> list[Values]:
    """The values of a batch of INSERTs."""
    assert set(batch.op.to_pylist()) == {"I"}
    return [tuple(row.values()) for row in batch.after.to_pylist()]
