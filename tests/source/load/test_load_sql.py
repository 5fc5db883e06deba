"""A load over SQL: each row once, whatever its key; at S, whatever happens meanwhile; what goes wrong has its error."""

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pymysql
import pytest

from tests.source.load.kit import Loaded, loaded, of, rows_of
from tidegate.config.changefeed import Checked, check
from tidegate.config.full_load import parse_load
from tidegate.config.load import load
from tidegate.config.registry import sink_of, source_of
from tidegate.engine.chunk_size import CHUNK_BYTES
from tidegate.engine.filter import TableFilter
from tidegate.engine.load import undecodable
from tidegate.engine.load_plan import create_statements, unloaded
from tidegate.model.errors import ConfigError, HistoryLost, Retry, SchemaError, SourceError, TidegateError, UriInvalid
from tidegate.model.table import TableName
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import RawResult, raw_result
from tidegate.mysql.rows import ResultBroken
from tidegate.source import load_sql
from tidegate.source.load_sql import GcGuard, SqlReader, duration_ms, load_error
from tidegate.source.upstream_address import Address, SqlLoadOptions, parse_address, rests_until
from tidegate.testing.script import run_here
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream

BIG = (1 << 63) - 3
SHAPES = {
    "signed": ("k INT PRIMARY KEY CLUSTERED", [(at,) for at in range(-9, 30)]),
    "unsigned": ("k BIGINT UNSIGNED PRIMARY KEY CLUSTERED", [(BIG + at,) for at in range(30)] + [(0,), (7,)]),
    "folded": (
        "a VARCHAR(9) COLLATE utf8mb4_general_ci, b INT, PRIMARY KEY (a, b) CLUSTERED",
        [(text, at) for at in range(4) for text in ("a", "Ab", "aC", "B", "ß", "it's", "\\", 'q"', "é", "", "\0\n")],
    ),
    "three": (
        "a INT, b VARCHAR(3), c DATE, PRIMARY KEY (a, b, c) CLUSTERED",
        [(a, b, f"2020-01-0{c}") for a in (1, 2) for b in "xyz" for c in (1, 2, 3)],
    ),
    "bytes": (
        "k VARBINARY(9) PRIMARY KEY CLUSTERED",
        [(bytes([at * 9, 0xFF - at, 0][: at % 3 + 1]),) for at in range(28)] + [(b"",)],
    ),
    "decimals": ("k DECIMAL(30, 5) PRIMARY KEY CLUSTERED", [(f"{at - 9}.{at:05}",) for at in range(20)]),
    "doubles": ("k DOUBLE PRIMARY KEY CLUSTERED", [(1.5**at * (-1) ** at,) for at in range(-20, 20)]),
    "floats": ("k FLOAT PRIMARY KEY CLUSTERED", [(at + 0.1,) for at in range(25)]),
    "times": (
        "k TIMESTAMP(3) PRIMARY KEY CLUSTERED",
        [(f"2020-03-29 0{at % 4}:1{at % 10}:00.{at:03}",) for at in range(30)],
    ),
    "enums": (
        "k ENUM('z', 'y', 'x', 'w'), v INT, PRIMARY KEY (k, v) CLUSTERED",
        [(e, at) for e in "zyxw" for at in range(6)],
    ),
    "apart": ("k VARCHAR(9) PRIMARY KEY NONCLUSTERED", [(f"k{at}",) for at in range(30)]),
    "keyless": ("v INT", [(at % 5,) for at in range(30)] + [(None,)] * 4),
    "parts": (
        "k INT PRIMARY KEY) PARTITION BY RANGE (k) (PARTITION p VALUES LESS THAN (0), PARTITION q VALUES LESS THAN (9)",
        [(at,) for at in range(-20, 9)],
    ),
    "hashed": ("v INT) PARTITION BY HASH (v) PARTITIONS 3 -- (", [(at % 7,) for at in range(40)]),
    "empty": ("k INT PRIMARY KEY", []),
    "one": ("k INT PRIMARY KEY, v INT AS (k + 1) VIRTUAL, w INT AS (k + 2) STORED", [(5,)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def shapes(upstream: Loaded) -> Loaded:
    """A table of each shape, with its rows in no order."""
    upstream.run("CREATE DATABASE shapes")
    for name, (columns, rows) in SHAPES.items():
        upstream.run(f"CREATE TABLE shapes.{name} ({columns})")
        mixed = Random(name).sample(rows, len(rows))
        if mixed:
            columns_named = "k" if name == "one" else ", ".join(f"`{column}`" for column in _columns(upstream, name))
            places = ", ".join(["%s"] * len(mixed[0]))
            text = f"INSERT INTO shapes.{name} ({columns_named}) VALUES ({places})"
            with upstream.connection.cursor() as cursor:
                cursor.executemany(text, mixed)
    return upstream


def _columns(upstream: Loaded, name: str) -> list[str]:
    return [str(row[0]) for row in upstream.run(f"SHOW COLUMNS FROM shapes.{name}")]


def counted(rows: list[tuple[object, ...]]) -> list[str]:
    """Rows in one order, equal ones as often as they are there."""
    return sorted(map(repr, rows))


@pytest.mark.slow
@pytest.mark.parametrize("chunk_rows", [1000, 5])
def test_every_row_comes_once(shapes: Loaded, chunk_rows: int) -> None:
    """Chunks of any size cover each table: its rows in one chunk, and in many, are the same."""
    whole = shapes.reader().plan(of("shapes"))
    reader = shapes.reader(chunk_rows=chunk_rows, connections=2)
    plan = reader.plan(of("shapes"), whole.ts)

    found, expected = loaded(reader, plan), loaded(shapes.reader(), whole)

    assert len(plan.chunks) >= sum(len(rows) // (chunk_rows + 1) for _, rows in SHAPES.values()) // 2
    for name, (_, rows) in SHAPES.items():
        assert len(expected[name]) == len(rows), name
        assert counted(found[name]) == counted(expected[name]), name
    assert expected["one"] == [(5, 7)]


def test_rows_are_those_of_the_plan(upstream: Loaded) -> None:
    """What changes after S, rows and definitions, is not in the load."""
    for statement in (
        "CREATE DATABASE past",
        "CREATE TABLE past.t (k INT PRIMARY KEY, v VARCHAR(9))",
        "CREATE TABLE past.gone (k INT PRIMARY KEY)",
        "INSERT INTO past.t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO past.gone VALUES (7)",
        "CREATE VIEW past.v AS SELECT k FROM past.t",
        "CREATE SEQUENCE past.s",
    ):
        upstream.run(statement)
    reader = upstream.reader()
    some = reader.plan(lambda name: name.key == ("past", "t"))
    assert {name.table for name in some.unselected if name.schema == "past"} == {"gone"}
    plan = reader.plan(of("past"))
    for statement in (
        "UPDATE past.t SET v = 'z'",
        "ALTER TABLE past.t DROP COLUMN v",
        "ALTER TABLE past.t ADD COLUMN w INT DEFAULT 3",
        "INSERT INTO past.t VALUES (3, 3)",
        "DROP TABLE past.gone",
        "CREATE TABLE past.new (k INT PRIMARY KEY)",
    ):
        upstream.run(statement)

    assert loaded(reader, plan) == {"t": [(1, "a"), (2, "b")], "gone": [(7,)]}
    assert reader.plan(of("past"), plan.ts) == plan
    assert [name.table for name, _ in plan.views] == ["v"]
    assert [name.table for name, _ in plan.sequences] == ["s"]
    assert [name for name, _ in plan.databases] == ["past"]


@pytest.mark.parametrize(
    ("create", "number", "begins"),
    [
        ("CREATE SEQUENCE s", 1, 1),
        ("CREATE SEQUENCE s START 7 INCREMENT 5", 1007, 1007),
        ("CREATE SEQUENCE s START 7 INCREMENT 5", 1008, 1012),
        ("CREATE SEQUENCE s MAXVALUE 9", 10, None),
        ("CREATE SEQUENCE s MAXVALUE 9 CYCLE NOCACHE", 10, 1),
        ("CREATE SEQUENCE s INCREMENT -3 START -3", -10, -12),
        ("CREATE SEQUENCE s INCREMENT -3 START -3", -11, -15),
        ("CREATE SEQUENCE s INCREMENT -1 MINVALUE -9 MAXVALUE -1 CYCLE", -9, -1),
    ],
)
def test_a_sequence_goes_on(
    upstream: Loaded, monkeypatch: pytest.MonkeyPatch, create: str, number: int, begins: int | None
) -> None:
    """A sequence is made with its next value as its first, where the target may have any and one is left."""
    upstream.run("DROP DATABASE IF EXISTS counters")
    upstream.run("CREATE DATABASE counters")
    upstream.run(create.replace(" s", " counters.s", 1))
    assert upstream.reader(sequences=True).plan(of("counters")).made_sequences == ()  # a server that tells no value
    monkeypatch.setattr(sent, "NEXT_NUMBERS", f"SELECT 'counters', 's', '', {number}, 'SEQUENCE'")
    assert upstream.reader().plan(of("counters")).made_sequences == ()
    plan = upstream.reader(sequences=True).plan(of("counters"))

    assert [left.table for left in unloaded(plan)] == ["counters.s"] * (begins is None)
    made = [ddl.query for ddl in create_statements(plan)][1:]
    assert [f"start with {begins} minvalue" in query for query in made] == [True] * (begins is not None)


def test_a_snapshot_is_held_and_its_deadline_told(upstream: Loaded) -> None:
    """The guard's session reads at S until it is left, is made again where it ends, and tells when S may go."""
    reader = upstream.reader()
    plan = reader.plan(of("nothing"))
    upstream.run("SET GLOBAL tidb_gc_life_time = '48h'")
    try:
        with GcGuard(reader.options, plan.ts, every_s=0.01) as guard:
            assert guard.deadline_ms == (plan.ts >> 18) + 48 * 3_600_000
            for number, *_ in upstream.run("SHOW PROCESSLIST"):
                if number != upstream.connection.thread_id():
                    upstream.run(f"KILL {number}")
            guard.check()
    finally:
        upstream.run("SET GLOBAL tidb_gc_life_time = '10m0s'")
    assert duration_ms("1h30m0.5s") == 5_400_500


def test_gc_life_time_is_set_and_set_back(upstream: Loaded) -> None:
    """A plan knows what it was before anything sets it; it is set back unless somebody else has set it meanwhile, and
    one that is long enough is left alone."""
    reader = upstream.reader(gc_life_time_ms=72 * 3_600_000)

    def now() -> str:
        return str(upstream.run("SELECT @@global.tidb_gc_life_time")[0][0])

    plan = reader.plan(of("nothing"))
    assert (plan.gc_life_time, now()) == (("10m0s", "259200s"), "10m0s")
    for _ in range(2):  # the second is a restart
        with GcGuard.of_plan(reader.options, plan) as guard:
            assert duration_ms(now()) == reader.options.gc_life_time_ms
            assert guard.deadline_ms == (plan.ts >> 18) + reader.options.gc_life_time_ms
    assert reader.plan(of("nothing")).gc_life_time == ()
    GcGuard.of_plan(reader.options, plan).restore()
    assert now() == "10m0s"
    upstream.run("SET GLOBAL tidb_gc_life_time = '48h'")
    GcGuard.of_plan(reader.options, plan).restore()
    assert duration_ms(now()) == duration_ms("48h")
    upstream.run("SET GLOBAL tidb_gc_life_time = '10m0s'")


def test_a_guard_that_fails_leaves_no_session(upstream: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the account may not set tidb_gc_life_time, the session at S ends with the error."""
    reader = upstream.reader(gc_life_time_ms=72 * 3_600_000)
    plan = reader.plan(of("nothing"))
    monkeypatch.setattr(sent, "SET_GLOBAL", "SET GLOBAL no_{name} = %s")
    guard = GcGuard.of_plan(reader.options, plan)
    with pytest.raises(TidegateError), guard:
        pass
    assert guard._session is not None
    assert not guard._session._connection.open


GRANTS = {
    "SELECT 'GRANT USAGE ON *.* TO a'": True,
    "SELECT 'GRANT SELECT ON `rights`.`t` TO a'": True,
    "SELECT 'GRANT SELECT(`id`) ON `rights`.* TO a'": False,
    "SELECT 'GRANT ALL PRIVILEGES ON `right_`.* TO a'": False,
    "SELECT 'GRANT INSERT, SELECT ON *.* TO a'": False,
    "SELECT 'GRANT `role`@`%` TO a'": False,
    "SELECT nothing": False,
}


@pytest.mark.parametrize("grants", GRANTS)
def test_an_account_that_does_not_see_all_tables(
    upstream: Loaded, monkeypatch: pytest.MonkeyPatch, grants: str
) -> None:
    """A database of which it may read some tables is named; rights of a role, and those of nobody, say nothing."""
    upstream.run("CREATE DATABASE IF NOT EXISTS rights")
    upstream.run("CREATE TABLE IF NOT EXISTS rights.t (id INT PRIMARY KEY)")
    monkeypatch.setattr(sent, "GRANTS", grants)
    notes = upstream.reader().plan(of("rights")).notes
    assert [note.partition(":")[0] for note in notes] == ["rights"] * GRANTS[grants]


def test_a_load_into_its_own_server(upstream: Loaded, tmp_path: Path) -> None:
    """By another address than the one that the sink has it is refused, too, before S is taken."""
    upstream.run("CREATE DATABASE IF NOT EXISTS itself")
    config = load(
        load_mode="only", load_from=f"mysql://root@127.0.0.1:{upstream.port}/?enable-tls=false", rules=["itself.*"],
        sink_uri=f"mysql://root@localhost:{upstream.port}/", state_dir=tmp_path, name="itself",
    )  # fmt: skip
    with pytest.raises(ConfigError, match="load-from is also the sink, by another address"):
        run_here(source_of(config), sink_of(config), rules=config.rules)
    assert not [*tmp_path.rglob("load.json")]


def test_databases_of_a_filter(upstream: Loaded) -> None:
    """A database is defined where the filter could take a table of it: a later CREATE TABLE has its charset."""
    upstream.run("CREATE DATABASE charsets CHARACTER SET latin1")
    upstream.run("CREATE TABLE charsets.a (id INT PRIMARY KEY)")
    for rules, names in ((["charsets.b*"], ["charsets"]), (["chars.*"], [])):
        accept = TableFilter.parse(rules).matches
        plan = upstream.reader().plan(lambda name, accept=accept: accept(*name))
        assert [name for name, _ in plan.databases] == names
        assert plan.tables == ()


def test_another_cluster_behind_the_address_is_refused(upstream: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart whose address leads to another cluster is refused by name; a cluster that tells no id is none."""
    monkeypatch.setattr(sent, "CLUSTER", "SELECT '17'")
    reader = upstream.reader()
    plan = reader.plan(of("nothing"))
    untold = "SELECT 1 FROM mysql.tidb WHERE false"
    for told, refused in (("SELECT '17'", False), (untold, False), ("SELECT '18'", True)):
        monkeypatch.setattr(sent, "CLUSTER", told)
        if refused:
            with (
                pytest.raises(ConfigError, match=f"cluster 18, and the load at ts {plan.ts} began on cluster 17"),
                GcGuard.of_plan(reader.options, plan),
            ):
                pass
        else:
            with GcGuard.of_plan(reader.options, plan):
                pass


@pytest.mark.parametrize(
    ("hours", "hour", "until"),
    [
        ("", 12, ""),
        ("22-6", 21, "22:00+00:00"),
        ("22-6", 22, ""),
        ("22-6", 5, ""),
        ("22-6", 6, "22:00+00:00"),
        ("1-6", 0, "01:00+00:00"),
        ("01-06", 5, ""),
        ("20-24", 23, ""),
        ("20-24", 0, "20:00+00:00"),
        ("0-24", 0, ""),
        ("22-6+08:00", 14, ""),
        ("22-6+08:00", 22, "22:00+08:00"),
        ("22-6 08:00", 14, ""),
        ("22-6-03:30", 1, "22:00-03:30"),
        ("22-6-03:30", 2, ""),
    ],
)
def test_hours_of_the_day(hours: str, hour: int, until: str) -> None:
    """Rows are read within the hours, over midnight, too, and in the zone that they name."""
    assert rests_until(hours, hour * 3600.0 + 1799) == until


def test_odd_hours_are_refused() -> None:
    """The address is refused before anything runs."""
    for odd in ("22", "22-25", "24-3", "a-b", "22-6Z", "22:00-06:00", "22-6+8"):
        with pytest.raises(UriInvalid, match="22-6"):
            parse_load(f"mysql://root@127.0.0.1:4000/?{urlencode({'load-hours': odd})}")
    assert parse_load("mysql://root@127.0.0.1:4000/?load-hours=22-6+08:00").load_hours == "22-6 08:00"


@pytest.mark.parametrize(
    ("ts", "kind", "words"),
    [(1 << 62, ConfigError, "another cluster"), (5 << 18, TidegateError, str(5 << 18))],
)
def test_a_wrong_ts_is_refused(upstream: Loaded, ts: int, kind: type[Exception], words: str) -> None:
    """A TSO that the upstream has not come to is another cluster's; one of before its first table has nothing."""
    with pytest.raises(kind, match=words):
        upstream.reader().plan(of("past"), ts)


def test_no_server_is_waited_for() -> None:
    """Without an answer the load is tried later, and no password is shown."""
    address = parse_address("mysql://u:secret@127.0.0.1:1/?enable-tls=false", "load-from")
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1") as caught:
        SqlReader(SqlLoadOptions(address)).plan(of("past"))
    assert "secret" not in str(caught.value)
    assert not isinstance(caught.value, SchemaError)


@pytest.fixture
def numbers(upstream: Loaded) -> Loaded:
    """A table of 100 rows."""
    upstream.run("CREATE DATABASE IF NOT EXISTS numbers")
    if not upstream.run("SHOW TABLES FROM numbers"):
        upstream.run("CREATE TABLE numbers.t (k INT PRIMARY KEY CLUSTERED, v VARCHAR(9))")
        upstream.run(f"INSERT INTO numbers.t VALUES {', '.join(f'({at}, {at % 9})' for at in range(100))}")
    return upstream


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [(0, 10, 10), (100, 10, 10), (100, 30, 4), (100, 2000, 1), (1000, 20, 10), (2000, 50, 10), (2100, 10, 10)]
)
@pytest.mark.parametrize("limit", ["rows", "bytes"])
def test_regions_are_joined_and_cut(
    numbers: Loaded, monkeypatch: pytest.MonkeyPatch, limit: str, case: tuple[int, int, int]
) -> None:
    """The first rows of ten regions are borders; small regions are joined, and large ones cut, by the number of rows
    or by their size. A case is the estimated rows of the table, the rows of a chunk, and the number of chunks."""
    estimated, chunk_rows, chunks = case
    monkeypatch.setattr(sent, "SAMPLE", "SELECT {keys} FROM {table} WHERE k % 10 = 0 ORDER BY {order}")
    listed = sent.ALL_TABLES.replace("`table_rows`", str(estimated))
    if limit == "bytes":
        row_bytes = CHUNK_BYTES // chunk_rows
        listed, chunk_rows = listed.replace("`data_length`", str(max(estimated, 1) * row_bytes)), 1_000_000
    monkeypatch.setattr(sent, "ALL_TABLES", listed)
    reader = numbers.reader(chunk_rows=chunk_rows)

    plan = reader.plan(of("numbers"))

    assert sorted(loaded(reader, plan)["t"]) == [(at, str(at % 9)) for at in range(100)]
    assert len(plan.chunks) == chunks


@pytest.mark.parametrize(
    ("estimated", "sizes"), [(0, [30, 30, 30, 10]), (60, [15] * 6 + [10]), (100, [25] * 4), (2000, [30, 30, 30, 10])]
)
def test_chunks_are_equal(
    numbers: Loaded, monkeypatch: pytest.MonkeyPatch, estimated: int, sizes: Sequence[int]
) -> None:
    """As far as the estimated rows of a table say, lest tasks wait for one of them."""
    monkeypatch.setattr(sent, "ALL_TABLES", sent.ALL_TABLES.replace("`table_rows`", str(estimated)))
    reader = numbers.reader(chunk_rows=30)

    plan = reader.plan(of("numbers"))

    rows = [sum(batch.rows for batch in reader.batches(plan.tables[0], part, plan.ts)) for part in plan.chunks]
    assert rows == sizes


def test_lists_that_differ_are_refused(numbers: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lists the tables of now in one of two ways would lose the others silently."""
    monkeypatch.setattr(sent, "ALL_TABLES", f"{sent.ALL_TABLES} WHERE table_name <> 't' OR table_schema <> 'numbers'")

    with pytest.raises(SchemaError, match=r"numbers\.t first"):
        numbers.reader().plan(of("numbers"))


def test_a_session_that_reads_at_another_ts_is_refused(numbers: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session says of its snapshot is compared before its rows are read."""
    reader = numbers.reader()
    plan = reader.plan(of("numbers"))
    monkeypatch.setattr(sent, "SHOWN_TS", "SELECT '5'")

    with pytest.raises(SourceError, match="reads at '5'"):
        list(reader.batches(plan.tables[0], plan.chunks[0], plan.ts))


def test_a_chunk_is_read_again_after_an_error(numbers: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that ends in the middle, or between chunks, costs nothing but the chunk's time."""
    reader = numbers.reader(chunk_rows=50)
    plan = reader.plan(of("numbers"))
    table, (first, second) = plan.tables[0], plan.chunks

    def cut(connection: object, query: str) -> RawResult:
        result = raw_result(connection, query)
        return result._replace(
            read_into=lambda buffer: result.read_into(buffer[:200]) if len(buffer) > 4_194_000 else 0
        )

    with monkeypatch.context() as patched:
        patched.setattr(load_sql, "raw_result", cut)
        with pytest.raises(SourceError, match=r"numbers\.t, chunk 0, .*2013"):
            list(reader.batches(table, first, plan.ts))
    again = [rows_of(batch) for batch in reader.batches(table, first, plan.ts)]
    for number, *_ in numbers.run("SHOW PROCESSLIST"):
        if number != numbers.connection.thread_id():
            numbers.run(f"KILL {number}")
    rest = [rows_of(batch) for batch in reader.batches(table, second, plan.ts)]

    assert [row[0] for rows in again + rest for row in rows] == list(range(100))
    for _ in reader.batches(table, first, plan.ts):
        break  # who stops in the middle leaves no half-read connection behind
    assert rows_of(next(reader.batches(table, second, plan.ts)))[0][0] == 50


@pytest.mark.slow
def test_rows_come_as_slowly_as_asked(numbers: Loaded) -> None:
    """A limit spares the upstream."""
    reader = numbers.reader(rows_per_s=200)
    plan = reader.plan(of("numbers"))
    begun = time.monotonic()

    assert len(loaded(reader, plan)["t"]) == 100
    assert time.monotonic() - begun > 0.45


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (9006, "GC life time is shorter than transaction duration", HistoryLost),
        (8055, "snapshot is older than GC safe point", HistoryLost),
        (1105, "cannot set read timestamp to a future time, readTS: 9", ConfigError),
        (9006, "cannot set read timestamp to a future time", ConfigError),
        (1146, "Table 'd.t' doesn't exist", SchemaError),
        (1142, "SELECT command denied", ConfigError),
        (1193, "Unknown system variable 'tidb_snapshot'", ConfigError),
        (1064, "You have an error in your SQL syntax", SchemaError),
        *((code, "busy", SourceError) for code in (9001, 9002, 9005, 2013, 8175, 8176, 1317, 3024)),
    ],
)
def test_what_an_error_means(code: int, text: str, kind: type[TidegateError]) -> None:
    """What is gone, wrong or forbidden is not tried again; all else is."""
    options = SqlLoadOptions(Address("h"))
    assert type(load_error(ConnectionResetError(104, "reset"), "d.t", options)) is SourceError
    for error in (pymysql.OperationalError(code, text), ResultBroken(code, text)):
        found = load_error(error, "d.t of the load at ts 7", options)

        assert type(found) is kind
        assert (found.retry is Retry.LATER) == (kind is SourceError)
        ways_out = ("`tidegate load start FEED --all`", "load-number") if kind is HistoryLost else ()
        for word in ("d.t of the load at ts 7", "h:4000", str(code), *ways_out):
            assert word in str(found)


def test_texts_that_are_no_utf8_are_kept_and_counted() -> None:
    """The one thing that a load has and a message cannot carry."""
    layout = load_sql.layout_of(TableName("d", "t"), "CREATE TABLE `t` (a VARCHAR(9), b BLOB)", (), 7)
    texts = [pa.array([b"\xff", None, "ä".encode()]), pa.array([b"\xff", b"", None])]

    batch = load_sql.batch_of(layout, texts, 7, "UTC")

    assert batch.after.column("a").to_pylist() == [b"\xff", None, "ä".encode()]
    assert list(undecodable(batch)) == [("a", 1)]


def test_check_looks_at_the_database(upstream: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It logs in, reads a snapshot and lists the tables of the filter; what a load would end with ends it, too, and
    nothing is written."""
    upstream.run("CREATE DATABASE looked")
    for name in ("a", "b"):
        upstream.run(f"CREATE TABLE looked.{name} (id INT PRIMARY KEY)")
    upstream.run("CREATE TABLE looked.keyless (v INT)")
    now = int(upstream.run("SHOW MASTER STATUS")[0][1])
    upstream.run("DROP TABLE looked.b")

    def checked(port: int = upstream.port, **more: Any) -> Checked:
        address = f"mysql://root@127.0.0.1:{port}/?enable-tls=false&timeout=1s&{more.pop('options', '')}"
        given: dict[str, Any] = {"sink_uri": f"sqlite://{tmp_path / 'x.db'}", "state_dir": tmp_path / "state", **more}
        return check(load(load_mode="only", load_from=address, rules=["looked.*"], **given))

    found = checked()
    assert found.loads == ("looked.a",)
    assert [one.table for one in found.left_out] == ["looked.keyless"]
    assert "load-from: is there, 1 tables: looked.a" in found.lines()
    assert checked(load_ts=now).loads == ("looked.a", "looked.b")
    with pytest.raises(TidegateError, match=str(5 << 18)):
        checked(load_ts=5 << 18)
    with pytest.raises(SourceError):
        checked(1)
    monkeypatch.setattr(load_sql.sent, "RESOURCE_GROUP", "SET SESSION no_groups = 1")  # as an old server says no
    for more, words in (
        ({"load_ts": 5}, "load-ts = 5 .*SHOW MASTER STATUS"),
        ({"options": "replica-read=odd"}, "replica-read = odd"),
        ({"options": "resource-group=odd"}, "resource-group = odd"),
    ):
        with pytest.raises(ConfigError, match=words):
            checked(**more)
    assert not [*tmp_path.rglob("load*.json")]


def test_check_asks_the_changefeed_that_writes(upstream: Loaded, tmp_path: Path) -> None:
    """What it leaves out is named as in a run; a check of definitions-from says so."""
    upstream.run("CREATE DATABASE asked")
    for name in ("a", "b"):
        upstream.run(f"CREATE TABLE asked.{name} (id INT PRIMARY KEY)")
    rules = '[filter]\nrules = ["asked.a"]\n[[filter.event-filters]]\n'
    (tmp_path / "cdc.toml").write_text(f'{rules}matcher = ["asked.*"]\nignore-event = ["delete"]\n')
    (tmp_path / "in").mkdir()

    def checked(**more: Any) -> Checked:
        return check(
            load(
                source_uri=f"file://{tmp_path / 'in'}?protocol=canal-json&enable-tidb-extension=true",
                sink_uri=f"sqlite://{tmp_path / 'x.db'}",
                state_dir=tmp_path / "state",
                rules=["asked.*"],
                **more,
            )
        )

    address = f"mysql://root@127.0.0.1:{upstream.port}/?enable-tls=false"
    found = checked(load_from=address, ticdc=str(tmp_path / "cdc.toml"))
    assert found.loads == ("asked.a",)
    assert [one.table for one in found.left_out] == ["asked.b"]
    assert [text for text in found.warnings if "ignore-event" in text]
    lines = checked(definitions_from=address).lines()
    assert "definitions-from: is there, 2 tables: asked.a, asked.b" in lines


def test_a_lost_snapshot_stops_the_load() -> None:
    """Where S is collected nothing is read at another ts: the load ends, and names S."""
    with Upstream(Cluster.open(None, nodes=("n1",))) as made:
        client = Loaded(made.ports["n1"])
        client.run("CREATE DATABASE d")
        client.run("CREATE TABLE d.t (k INT PRIMARY KEY)")
        reader = client.reader()
        plan = reader.plan(of("d"))
        client.run("INSERT INTO d.t VALUES (1)")
        while len(client.run("SHOW PROCESSLIST")) > 1:  # the sessions of the plan end
            time.sleep(0.01)
        made.cluster.collect_garbage(0)

        with pytest.raises(HistoryLost, match=str(plan.ts)) as lost:
            list(reader.batches(plan.tables[0], plan.chunks[0], plan.ts))
        with pytest.raises(HistoryLost), GcGuard(reader.options, plan.ts):
            pass
        client.connection.close()

    assert lost.value.retry is Retry.NEVER
