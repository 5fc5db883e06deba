"""A cluster on a clock that tests move, requests by hand, rows by hand, and F1's predicates over what is stored."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from tidegate.expr.cast import assign
from tidegate.kv.keys import IndexKey, decode_table_key, index_prefix, table_prefix, table_span
from tidegate.kv.rows import decode_row, handle_of
from tidegate.model.errors import UpstreamError
from tidegate.mysql.values import Context
from tidegate.schema.job import Job
from tidegate.schema.modify_kind import ModifyKind
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.stored.arguments import (
    AddColumnArgs,
    AddIndexArgs,
    CreateSchemaArgs,
    CreateTableArgs,
    DropColumnArgs,
    DropIndexArgs,
    DropObjectArgs,
    ModifyColumnArgs,
    NewTableArgs,
    RenameTableArgs,
)
from tidegate.schema.stored.definition import (
    Name,
    StoredColumn,
    StoredIndex,
    StoredPart,
    StoredSchema,
    StoredTable,
    StoredType,
)
from tidegate.schema.stored.meta import Meta
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.request import Involved, Request
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.tidb.cluster import Cluster, ClusterOptions
from tidegate_upstream.tidb.ddl_jobs import JobEntry, read_entries
from tidegate_upstream.tidb.engine import KvEngine, MemoryEngine
from tidegate_upstream.tidb.metadata import DELETE_RANGE
from tidegate_upstream.tidb.node import Node, NodeOptions
from tidegate_upstream.tidb.table_rows import RowImage, TableShape, complete, image_of, index_mutation, row_mutations
from tidegate_upstream.tidb.transaction import Transaction

INT = StoredType(3, 0, 11, 0, "binary", "binary")
BIGINT = StoredType(8, 0, 20, 0, "binary", "binary")
TEXT = StoredType(15, 0, 20, 0, "utf8mb4", "utf8mb4_bin")
KEY = StoredType(3, 4099, 11, 0, "binary", "binary")
LEASE_MS, SESSION_MS = 1_000, 1_500
CONTEXT = Context(datetime(2020, 1, 1, tzinfo=UTC))


class Clock:
    """Milliseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.ms = 1_577_934_245_678

    def __call__(self) -> int:
        """Now."""
        return self.ms


class Crash(BaseException):
    """The owner's process ended here."""


class DuplicateRow(Exception):
    """A statement met a unique key of another row."""


class World:
    """A cluster with database gd and table t (id int primary key, a int, b int)."""

    def __init__(
        self,
        *,
        locks: bool = True,
        nodes: tuple[str, ...] = ("n1", "n2"),
        batch_rows: int = 3,
        engine: KvEngine | None = None,
    ) -> None:
        options = NodeOptions(locks, LEASE_MS, SESSION_MS, reload_on_begin=False)
        self.clock = Clock()
        self.engine = engine or MemoryEngine()
        self.cluster = Cluster(self.engine, self.clock, ClusterOptions(options, batch_rows), nodes)
        self.schema_id = self.run(
            Request(1, 0, 0, "gd", "", CreateSchemaArgs(StoredSchema(0, Name.of("gd"), state=0)), "create database gd")
        ).schema_id
        self.table_id = self.create_table("t")

    # --- definitions ---

    def create_table(self, name: str) -> int:
        """One more table of that shape; its id."""
        cols = [
            StoredColumn(n, Name.of(c), n - 1, type=INT if n > 1 else KEY) for n, c in enumerate(("id", "a", "b"), 1)
        ]
        table = StoredTable(0, Name.of(name), cols=cols, pk_is_handle=True, max_col_id=3)
        return self.run(
            Request(3, self.schema_id, 0, "gd", name, CreateTableArgs(table), f"create table {name} (..)")
        ).table_id

    def request(self, action: int, arguments, query: str, table: str = "t", involved=()) -> Request:
        """A request about a table of gd."""
        table_id = next((i for i, found in self.tables().items() if found.name.lower == table), 0)
        return Request(action, self.schema_id, table_id, "gd", table, arguments, query, involved)

    def add_index(self, name: str = "ia", column: str = "a", *, unique: bool = False, table: str = "t") -> Request:
        """ALTER TABLE .. ADD [UNIQUE] INDEX."""
        index = StoredIndex(0, Name.of(name), idx_cols=[StoredPart(Name.of(column))], state=0, is_unique=unique)
        return self.request(7, AddIndexArgs(index), f"alter table {table} add index {name}({column})", table)

    def drop_index(self, name: str = "ia") -> Request:
        """ALTER TABLE .. DROP INDEX."""
        return self.request(8, DropIndexArgs(Name.of(name)), f"alter table t drop index {name}")

    def add_column(self, name: str = "c", table: str = "t") -> Request:
        """ALTER TABLE .. ADD COLUMN .. INT DEFAULT 7."""
        column = StoredColumn(0, Name.of(name), 3, origin_default="7", default="7", type=INT, state=0)
        return self.request(5, AddColumnArgs(column), f"alter table {table} add column {name} int default 7", table)

    def drop_column(self, name: str = "b") -> Request:
        """ALTER TABLE .. DROP COLUMN."""
        return self.request(6, DropColumnArgs(Name.of(name)), f"alter table t drop column {name}")

    def drop_table(self, table: str = "t") -> Request:
        """DROP TABLE."""
        return self.request(4, DropObjectArgs(), f"drop table {table}", table)

    def truncate(self) -> Request:
        """TRUNCATE TABLE."""
        return self.request(11, NewTableArgs(), "truncate table t")

    def rename(self, to: str) -> Request:
        """RENAME TABLE t TO .."""
        place = self.schema_id
        arguments = RenameTableArgs(0, place, place, Name.of("gd"), new_table_name=Name.of(to))
        involved = (Involved("gd", "t"), Involved("gd", to))
        return self.request(14, arguments, f"rename table t to {to}", involved=involved)

    def modify(self, kind: ModifyKind, new_type: StoredType) -> Request:
        """MODIFY COLUMN a."""
        column = StoredColumn(0, Name.of("a"), 1, type=new_type)
        return self.request(
            12, ModifyColumnArgs(column, Name.of("a"), kind=int(kind)), "alter table t modify column a .."
        )

    # --- jobs ---

    def run(self, request: Request):
        """The job when it is over."""
        return self.cluster.ddl_client.run(request)

    def submit(self, request: Request) -> int:
        """The id of a job that is queued."""
        return self.cluster.ddl_client.submit(request)

    def entries(self) -> list[JobEntry]:
        """The jobs that are not over."""
        return list(read_entries(self.cluster.storage.snapshot()))

    def ticks(self, until: Callable[[], bool], most: int = 500) -> None:
        """Tick until something holds."""
        for _ in range(most):
            if until():
                return
            assert self.cluster.tick() is not None, self.entries()
        raise AssertionError(f"not after {most} ticks")

    def step(self, job_id: int, at: int) -> None:
        """Tick until a job is at that step of its operation."""
        self.ticks(lambda: any(entry.job.id == job_id and entry.progress.step >= at for entry in self.entries()))

    def finish(self) -> None:
        """Tick until no job is left."""
        self.ticks(lambda: not self.entries())

    def asked(self, text: str, database: str = "gd") -> Iterator[Request]:
        """The requests of a DDL text, each planned when the ones before it are done."""
        for statement in parse_ddl(text, database):
            self.node().reload()
            session = DdlSession(database, text, dropped=self.cluster.ddl_client.dropped)
            yield from plan(statement, self.node().schema, session).requests

    def sql(self, text: str, database: str = "gd") -> list[Job]:
        """The jobs of a DDL statement, when they are over."""
        found = [self.run(request) for request in self.asked(text, database)]
        for node in self.cluster.nodes.values():
            node.reload()
        return found

    def pass_ms(self, ms: int) -> None:
        """Time passes."""
        self.clock.ms += ms

    def node(self, name: str = "n1") -> Node:
        """A node by name."""
        return self.cluster.nodes[name]

    def meta(self) -> Meta:
        """The keys of now."""
        return Meta(self.cluster.storage.snapshot())

    def tables(self) -> dict[int, StoredTable]:
        """The tables of gd by id."""
        return {table.id: table for table in self.meta().tables(self.schema_id)}

    def table(self) -> StoredTable:
        """Table t."""
        return self.tables()[self.table_id]

    # --- rows ---

    def write(self, node: Node, rows: Iterable[tuple[int, ...]]) -> None:
        """One transaction that inserts rows."""
        transaction = node.begin()
        for row in rows:
            insert(transaction, self.shape(transaction), *row)
        transaction.commit()

    def shape(self, transaction) -> TableShape:
        """The table by the schema that the transaction pinned."""
        return shape_of(transaction.schema.tables[self.table_id].stored)

    def named(self, name: str) -> StoredTable:
        """A table of gd by name."""
        return next(table for table in self.tables().values() if table.name.lower == name)

    def fill(self, name: str, *rows: tuple[object, ...]) -> None:
        """Insert rows into a table of gd, by what n1 knows."""
        transaction = self.node().begin()
        for number, row in enumerate(rows, 1):
            insert(transaction, TableShape(self.named(name)), row[0], *row[1:], handle=number)
        transaction.commit()

    def rows(self, shape: TableShape | None = None) -> dict[int, dict[str, object]]:
        """Rows by id as the newest definition shows them."""
        shape = shape or TableShape(self.table())
        found = {}
        for image in images(self.cluster.storage.snapshot(), shape):
            found[image.columns[1]] = {one.target.name: image.columns[one.id] for one in shape.public}
        return found


_SHAPES: dict[int, tuple[StoredTable, TableShape]] = {}


def shape_of(stored: StoredTable) -> TableShape:
    """The shape of a definition, made once for each object."""
    if id(stored) not in _SHAPES:
        if len(_SHAPES) > 64:
            _SHAPES.clear()
        _SHAPES[id(stored)] = (stored, TableShape(stored))
    return _SHAPES[id(stored)][1]


def images(reader, shape: TableShape) -> Iterator[RowImage]:
    for physical_id in shape.physical_ids:
        for key, value in reader.scan(*table_span(physical_id)):
            yield image_of(shape, decode_row(shape.layout_of(physical_id), key, value), CONTEXT)


def insert(
    transaction: Transaction, shape: TableShape, number: object, *values: object, handle: int | None = None
) -> None:
    """A row; its first column is the key, or `handle` its hidden number."""
    public = [column for column in shape.public if not column.generated]
    given = {one.id: assign(value, one.target, CONTEXT) for one, value in zip(public, (number, *values), strict=False)}
    for column in public:
        given.setdefault(column.id, column.constant)
    columns = complete(shape, given, None, CONTEXT)
    place = shape.placements[0].locate(columns)
    assert place is not None, given
    image = RowImage(handle_of(shape.layout, columns, handle), place, columns)
    _apply(transaction, row_mutations(shape, None, image))


def stored_image(transaction: Transaction, shape: TableShape, number: int) -> RowImage | None:
    return next((one for one in images(transaction, shape) if one.columns[1] == number), None)


def update(transaction: Transaction, shape: TableShape, number: int, **values: int) -> None:
    old = stored_image(transaction, shape, number)
    if old is None:
        return
    named = [(shape.by_name[name], value) for name, value in values.items() if name in shape.by_name]
    given = {**old.columns, **{one.id: assign(value, one.target, CONTEXT) for one, value in named}}
    _apply(transaction, row_mutations(shape, old, old._replace(columns=complete(shape, given, old, CONTEXT))))


def delete(transaction: Transaction, shape: TableShape, number: int) -> None:
    old = stored_image(transaction, shape, number)
    if old is not None:
        _apply(transaction, row_mutations(shape, old, None))


def _apply(transaction: Transaction, mutations) -> None:
    for one in mutations:
        if one.distinct and transaction.get(one.key) is not None:
            raise DuplicateRow(one.key.hex())
    for one in mutations:
        if one.value is None:
            transaction.delete(one.key)
        else:
            transaction.put(one.key, one.value)


# --- F1's predicates ---


def anomalies(world: World) -> list[str]:
    """What is wrong with the stored rows and entries in the eyes of every node that can commit: F1's two words.

    What lies in a range that is about to be deleted counts as removed."""
    reader = world.cluster.storage.snapshot()
    found: list[str] = []
    known: set[int] = set()
    doomed: set[int] | None = None
    for node in world.cluster.nodes.values():
        version = node.schema.tables.get(world.table_id)
        if version is None:
            continue
        shape = shape_of(version.stored)
        known |= {index.layout.id for index in shape.indexes}
        rows = list(images(reader, shape))
        for index in shape.indexes:
            expected = {index_mutation(shape, index, image)[:2] for image in rows}
            prefix = index_prefix(world.table_id, index.layout.id)
            stored = set(reader.scan(prefix, prefix + b"\xff"))
            who = f"{index.name} of {node.name} at {node.version}"
            if stored - expected:
                doomed = _doomed(world, reader) if doomed is None else doomed
                if index.layout.id not in doomed:
                    found.append(f"orphan: {who} has {len(stored - expected)} entries of no row")
            if index.access.read and expected - stored:
                found.append(f"integrity: {who} misses {len(expected - stored)} entries")
    return found + _unknown(world, reader, known)


def _doomed(world: World, reader) -> set[int]:
    """The indexes of the table whose entries a delete range covers."""
    starts = {row["start_key"] for _, row in DELETE_RANGE.rows(reader)}
    starts |= {one.bounds[0].hex().encode() for entry in world.entries() for one in entry.progress.ranges}
    keys = [decode_table_key(bytes.fromhex(start.decode()) + b"\0") for start in starts if b"5f69" in start]
    return {key.index_id for key in keys if isinstance(key, IndexKey) and key.table_id == world.table_id}


def _unknown(world: World, reader, known: set[int]) -> list[str]:
    """Entries of indexes that nobody knows and no range covers."""
    start = table_prefix(world.table_id)
    keys = [decode_table_key(raw) for raw, _ in reader.scan(start, start + b"_j")]
    ids = {key.index_id for key in keys if isinstance(key, IndexKey)} - known
    lost = ids - _doomed(world, reader) if ids else ()
    return [f"orphan: entries of index {number}, which nobody knows" for number in lost]


def quietly(action: Callable[[], object]) -> UpstreamError | None:
    """The error of an action that may fail as upstreams do."""
    try:
        action()
    except UpstreamError as error:
        return error
    return None
