"""Definitions in memory: statements become jobs, and jobs go their steps, as TiDB with a single node takes them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.stored.definition import ElementState, StoredSchema, StoredTable, render_stored
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.change.draft import StepOutcome
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.request import NewIds, Request, number, operation_of
from tidegate_upstream.change.session import DdlSession, StatementPlan
from tidegate_upstream.change.step import step, step_back
from tidegate_upstream.f1 import rollback


@dataclass(frozen=True, slots=True)
class SnapshotDefinitions:
    """The definitions of a snapshot, whose tables may have any state."""

    snapshot: StoredSnapshot

    def schema(self, schema_id: int) -> StoredSchema | None:
        """Return the database of that id."""
        return self.snapshot.schemas.get(schema_id)

    def schemas(self) -> Iterable[StoredSchema]:
        """Return all databases."""
        return self.snapshot.schemas.values()

    def table(self, schema_id: int, table_id: int) -> StoredTable | None:
        """Return the table of that id if it is in that database."""
        found = self.snapshot.tables.get(table_id)
        return found.stored if found is not None and found.schema_id == schema_id else None

    def tables(self, schema_id: int) -> Iterator[StoredTable]:
        """Return the tables of that database, by id."""
        return (found.stored for _, found in sorted(self.snapshot.tables.items()) if found.schema_id == schema_id)


class World:
    """All definitions, whatever their state."""

    def __init__(self, database: str = "d") -> None:
        self.schemas: dict[int, StoredSchema] = {}
        self.tables: dict[int, tuple[int, StoredTable]] = {}
        self.dropped: dict[tuple[str, str], TableVersion] = {}
        self.database, self.last_id, self.ts = database, 100, 1000

    @property
    def snapshot(self) -> StoredSnapshot:
        """All definitions as they are now."""
        return StoredSnapshot(
            self.ts,
            dict(self.schemas),
            {
                table_id: TableVersion(schema_id, self.schemas[schema_id].name.original, table, self.ts)
                for table_id, (schema_id, table) in self.tables.items()
            },
        )

    @property
    def definitions(self) -> SnapshotDefinitions:
        """The same as a step reads them."""
        return SnapshotDefinitions(self.snapshot)

    def session(self, sql: str) -> DdlSession:
        """A session that sends `sql`."""
        return DdlSession(self.database, sql, dropped=lambda schema, table: self.dropped.get((schema, table)))

    def new_ids(self, count: int) -> Sequence[int]:
        """The next ids of the counter."""
        self.last_id += count
        return range(self.last_id - count + 1, self.last_id + 1)

    def plan(self, sql: str, session: DdlSession | None = None) -> StatementPlan:
        """What the one statement asks for."""
        (statement,) = parse_ddl(sql, self.database)
        return plan(statement, self.snapshot, session or self.session(sql))

    def requests(self, sql: str, new_ids: NewIds | None = None) -> Iterator[Request]:
        """The requests of a statement with their ids; each is to be done before the next is taken."""
        for request in self.plan(sql).requests:
            yield number(request, new_ids or self.new_ids)

    def step(self, request: Request, at: int, start_ts: int | None = None) -> StepOutcome:
        """One step, carried out."""
        self.ts += 1
        outcome = step(request, at, self.definitions, self.ts if start_ts is None else start_ts)
        return self._apply(request, outcome)

    def step_back(self, request: Request, at: int, back: int) -> StepOutcome:
        """One step of the way back, carried out."""
        self.ts += 1
        return self._apply(request, step_back(request, at, back, self.definitions, self.ts))

    def _apply(self, request: Request, outcome: StepOutcome) -> StepOutcome:
        public = self.tables.get(request.table_id)
        if public is not None and public[1].state == ElementState.PUBLIC:
            kept = TableVersion(public[0], request.schema_name, public[1], self.ts)
            self.dropped[request.schema_name, public[1].name.lower] = kept
        for _, table_id in outcome.removes:
            del self.tables[table_id]
        for schema in outcome.schemas_put:
            self.schemas[schema.id] = schema
        for schema_id in outcome.schemas_removed:
            del self.schemas[schema_id]
        for schema_id, table in outcome.puts:
            self.tables[table.id] = schema_id, table
        return outcome

    def run(self, *statements: str) -> "World":
        """All jobs of the statements, to their ends."""
        for sql in statements:
            for request in self.requests(sql):
                for at in range(1, len(operation_of(request).steps)):
                    self.step(request, at)
        return self

    def cancel(self, request: Request, at: int) -> None:
        """The job goes to step `at`, is cancelled there, and goes its way back."""
        for place in range(1, at + 1):
            self.step(request, place)
        for back in range(1, len(rollback(operation_of(request), at) or ()) + 1):
            self.step_back(request, at, back)

    def table(self, name: str) -> StoredTable:
        """The table of that name."""
        return next(table for _, table in self.tables.values() if table.name.original == name)

    def texts(self) -> dict[tuple[int, int], bytes]:
        """All tables as their keys hold them, without what every step counts: revision, stamp, ids that were given; an
        empty list is as good as none."""
        return {
            (schema_id, table.id): render_stored(
                msgspec.structs.replace(
                    table,
                    index_info=table.index_info or None,
                    constraint_info=table.constraint_info or None,
                    fk_info=table.fk_info or None,
                    revision=0,
                    update_timestamp=0,
                    max_col_id=0,
                    max_idx_id=0,
                    max_fk_id=0,
                    max_cst_id=0,
                )
            )
            for schema_id, table in self.tables.values()
        }


def example() -> World:
    """A database with one table of each kind that changes are tried on."""
    world = World()
    return world.run(
        "create database d",
        "create table t (id int primary key, a int, b varchar(20) default 'x', g int as (a + 1), key ia(a), key ib(b))",
        "create table free (a int, b int, unique key ua(a))",
        "create table parent (id int primary key)",
        "create table child (id int primary key, p int, constraint fk foreign key (p) references parent(id), "
        "constraint c check (p > 0))",
        "create table r (id int primary key, v int) partition by range (id) "
        "(partition p0 values less than (10), partition p1 values less than (20))",
        "create table h (id int primary key, v int) partition by hash (id) partitions 3",
        "create table x (id int primary key, v int)",
        "create view w as select id, a from t",
        "create sequence s",
    )
