"""A target with nothing in it but the progress of a feed, and DDLs that a feed has for it.

world = World(port)          databases d, d1 .. dropped, `tidegate` new, epoch 1
world.ddl("create ..")       runs it as a feed does, at the next ts; `world.state` follows
world.runner(epoch=2)        another writer
"""

from typing import Any

import pymysql

from tests.mariadb import ROOT
from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.plan import plan_ddl
from tidegate.model.event import Ddl
from tidegate.model.tso import compose
from tidegate.schema.state import SchemaState
from tidegate.sink.sql.connection import DdlConnection, target_of
from tidegate.sink.sql.ddl_ledger import DdlWriter, fence_by_progress
from tidegate.sink.sql.ddl_runner import DdlRunner
from tidegate.sink.sql.ddl_shape import Facts, ids_of, known_facts, read_facts

FEED = "shop"
START_MS = 1_790_000_000_000


def follow(runner: DdlRunner, placed: SourceDdl, state: SchemaState, number: int = 1) -> SchemaState:
    """The schema behind a DDL, which the runner does."""
    planned = plan_ddl(state, placed, number)
    runner.run(planned)
    return planned.after


class World:
    """One target."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = self.connect()
        for (name,) in self.ask("SHOW DATABASES"):
            if name.lower() not in ("mysql", "sys", "information_schema", "performance_schema"):
                self.ask(f"DROP DATABASE `{name}`")
        self.ask("CREATE DATABASE tidegate")
        self.ask(
            "CREATE TABLE tidegate.progress (feed VARBINARY(200) NOT NULL, shard INT NOT NULL, epoch BIGINT NOT NULL, "
            "state LONGBLOB, PRIMARY KEY (feed, shard))"
        )
        self.ask(f"INSERT INTO tidegate.progress VALUES ('{FEED}', -1, 1, NULL)")
        self.target = target_of(str(self.ask("SELECT VERSION()")[0][0]), {})
        self.warnings: list[str] = []
        self.state, self.at_ms = SchemaState(), START_MS

    def connect(self) -> "pymysql.Connection[Any]":
        """A connection as the sink opens them."""
        return pymysql.connect(**ROOT, port=self.port, charset="utf8mb4", autocommit=True)

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a statement of nobody's."""
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def runner(self, epoch: int = 1, connect: Any = None) -> DdlRunner:
        """A writer."""
        writer = DdlWriter(FEED, epoch, fence_by_progress(FEED, epoch))
        return DdlRunner(connect or self.connect, self.target, writer, self.warnings.append)

    def placed(self, query: str, schema: str = "d", table: str = "") -> SourceDdl:
        """A DDL at the next second."""
        self.at_ms += 1000
        ddl = Ddl(schema=schema, table=table, query=query, commit_ts=compose(self.at_ms))
        return SourceDdl(EventPosition(), ddl)

    def ddl(self, query: str, schema: str = "d", table: str = "") -> None:
        """A DDL, done."""
        self.state = follow(self.runner(), self.placed(query, schema, table), self.state)

    def looks(self, *, with_ids: bool = False) -> Facts:
        """The facts of the tables of database d and those that the schema knows."""
        found = self.ask("SELECT LOWER(table_schema), LOWER(table_name) FROM information_schema.tables")
        keys = [(schema, name) for schema, name in found if schema == "d"]
        session = DdlConnection(self.connect, self.target)
        seen = read_facts(session, keys, self.target)
        session.close()
        return seen if with_ids else seen - ids_of(seen)

    def meant(self) -> Facts:
        """The facts that the schema says."""
        return known_facts(self.state.tables.values(), self.target)

    def ledger(self) -> list[tuple[str, str]]:
        """(state, query) of all DDLs."""
        return [
            (str(state), str(query))
            for state, query in self.ask("SELECT state, query FROM tidegate.ddl_history ORDER BY ddl_ts, changed_at")
        ]

    def close(self) -> None:
        """Let go."""
        self.connection.close()
