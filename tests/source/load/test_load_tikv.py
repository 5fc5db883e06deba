"""A load from TiKV: its plan, rows and rows of single keys are those of a load over SQL; regions are cut and joined."""

import signal
import sqlite3
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.source.load.kit import Loaded, loaded, of, rows_of
from tests.source.load.test_load_sql import SHAPES, counted
from tests.tikv.reporting import ReportingPeer
from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.config.full_load import parse_load
from tidegate.config.load import load
from tidegate.engine.load import LoadingSource, NoStream
from tidegate.engine.load_plan import KeptPlan, LoadChunk, LoadPlan, LoadReader, LoadTable, create_statements
from tidegate.kv.keys import IntHandle, record_key, table_span
from tidegate.model.errors import ConfigError
from tidegate.model.table import TableName
from tidegate.mysql.encoding import decode_int
from tidegate.schema.job import JOB_TABLE
from tidegate.schema.stored.definition import render_stored
from tidegate.schema.stored.meta import Meta, counter_key, table_key
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source import tikv_load
from tidegate.source.large import table_info
from tidegate.source.tikv_load import TikvGuard, TikvReader, between, borders
from tidegate.source.tikv_options import TikvLoadOptions
from tidegate.spark.tasks import SparkTasks
from tidegate.testing.script import run_here
from tidegate.tikv import pd
from tidegate.tikv.snapshot import PAGE_PAIRS
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate_upstream.tidb.change_log import Region
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tikv.kv_service import KvService

JOBS = table_span(JOB_TABLE.id)[0]


class Watched(KvService):
    """A store that notes the requests of rows, and counts the pairs that it reads for all of them."""

    seen: ClassVar[list[kvrpcpb.ScanRequest]] = []
    pairs: ClassVar[Counter[bool]] = Counter()
    """By whether keys alone were asked for."""
    at: ClassVar[Mapping[int, Callable[[], object]]] = {}
    """What happens before the answer to the n-th request that is noted."""

    def scan(self, request: kvrpcpb.ScanRequest, region: Region) -> kvrpcpb.ScanResponse:
        answer = super().scan(request, region)
        if request.start_key.startswith(b"t") and not JOBS <= request.start_key < JOBS + b"\xff":
            self.pairs[request.key_only] += len(answer.pairs)
            if not request.key_only:
                self.seen.append(request)
                self.at.get(len(self.seen), bool)()
        return answer


class Both(NamedTuple):
    """A cluster, over SQL and over gRPC."""

    sql: Loaded
    peer: ReportingPeer

    def reader(self, **options: Any) -> TikvReader:
        """A reader of it over gRPC."""
        return TikvReader(TikvLoadOptions(pd=self.peer.pd, **options))


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """A cluster with tables of many shapes, a view and sequences, and regions that begin amid tables."""
    cluster = Cluster.open(None, nodes=("n1",))
    peer = ReportingPeer(cluster.storage, stores=2)
    peer.kv = [Watched(peer.log, number, 2) for number in (1, 2)]
    with Upstream(cluster) as made, peer.in_thread():
        sql = Loaded(made.ports["n1"])
        sql.run("CREATE DATABASE shapes")
        for name, (columns, rows) in SHAPES.items():
            sql.run(f"CREATE TABLE shapes.{name} ({columns})")
            shown = "k" if name == "one" else ", ".join(f"`{row[0]}`" for row in sql.run(f"DESC shapes.{name}"))
            if rows:
                text = f"INSERT INTO shapes.{name} ({shown}) VALUES ({', '.join(['%s'] * len(rows[0]))})"
                with sql.connection.cursor() as cursor:
                    cursor.executemany(text, Random(name).sample(rows, len(rows)))
        for statement in (
            "CREATE VIEW shapes.seen AS SELECT k FROM shapes.signed",
            "CREATE SEQUENCE shapes.up START 7 INCREMENT 5 CACHE 10",
            "CREATE SEQUENCE shapes.down INCREMENT -3 START -3 NOCACHE",
            "CREATE DATABASE passing",
            "CREATE TABLE passing.t (k INT PRIMARY KEY)",
        ):
            sql.run(statement)
        alter(cluster, "t", temp_table_type=1)
        alter(cluster, "up", "52")  # ten numbers from 7 on, and the last one of them
        alter(cluster, "down", "-6")  # -3 and -6
        own = Both(sql, peer)
        for chunk in own.reader().plan(of("shapes")).chunks:
            assert chunk.lower is not None
            table_id = decode_int(bytes.fromhex(chunk.lower[0]), 1)[0]
            peer.log.split(record_key(table_id, IntHandle(4)))
        yield own
        sql.connection.close()


def alter(cluster: Cluster, name: str, number: str = "", **members: Any) -> None:
    """Write members of a table's definition, or the last number that a sequence has reserved."""
    transaction = cluster.storage.begin()
    meta = Meta(transaction)
    for schema in meta.schemas():
        for table in meta.tables(schema.id):
            if table.name.original == name:
                if number:
                    transaction.put(counter_key("SID", schema.id, table.id), number.encode())
                else:
                    stored = msgspec.structs.replace(table, **members)
                    transaction.put(table_key(schema.id, table.id), render_stored(stored))
    transaction.commit()


@pytest.mark.parametrize("chunk_rows", [1000, 5])
def test_a_load_is_that_over_sql(both: Both, chunk_rows: int) -> None:
    """Definitions, rows and what is left out at one TSO are those of a load over SQL, whatever the size of chunks."""
    sql = both.sql.reader(chunk_rows=chunk_rows)
    expected = sql.plan(of("shapes"))
    reader = both.reader(chunk_rows=chunk_rows, sequences=True)
    plan = reader.plan(of("shapes"), expected.ts)

    for part in ("databases", "views", "sequences"):
        assert getattr(plan, part) == getattr(expected, part), part
    assert [(each.name, each.create, each.partitions) for each in plan.tables] == [
        (each.name, each.create, each.partitions) for each in sorted(expected.tables, key=lambda table: table.name)
    ]
    found, rows = loaded(reader, plan), loaded(sql, expected)
    for name in SHAPES:
        assert counted(found[name]) == counted(rows[name]), name
    if chunk_rows == 5:
        assert len(plan.chunks) > len(SHAPES) * 4
    made = [ddl.query.split(" minvalue")[0] for ddl in create_statements(plan) if "SEQUENCE" in ddl.query]
    assert made == ["CREATE SEQUENCE `down` start with -9", "CREATE SEQUENCE `up` start with 57"]
    assert [str(name) for name in reader.plan(of("passing")).temporary] == ["passing.t"]
    assert reader.plan(of("passing")).tables == ()


def of_keys(reader: LoadReader, table: LoadTable, keys: list[tuple[str, ...]], ts: int) -> list[Any]:
    """The events of some keys, without the number and the partition of a row, which SQL does not tell."""
    chunk = LoadChunk(0, 0, keys=tuple(keys))
    events = [event for batch in reader.batches(table, chunk, ts) for event in events_of(batch)]
    return sorted(repr(msgspec.structs.replace(event, row_id=None, partition_id=None)) for event in events)


KEYS = {
    "signed": [("3",), ("-9",), ("77",)],
    "unsigned": [(str((1 << 63) + 4),), ("7",), ("8",)],
    "folded": [("a", "1"), ("AB", "2"), ("Ab", "2"), ("ß", "0"), ("", "3"), ("\0\n", "1"), ("no", "1")],
    "three": [("1", "x", "2020-01-02"), ("1", "x", "2020-01-09")],
    "bytes": [("",), ("00",), ("09f600",), ("ff",)],
    "decimals": [("-8.00001",), ("0.00009",), ("1.50000",)],
    "doubles": [("1.5",), ("-1.5",), ("2.25",), ("9.5",)],
    "floats": [("4.099999904632568",), ("99",)],
    "times": [("2020-03-29 01:11:00.001",), ("2020-03-29 01:11:00.002",)],
    "enums": [("y", "2"), ("w", "5"), ("w", "9")],
    "apart": [("k3",), ("K3",), ("k99",)],
    "parts": [("-20",), ("8",), ("50",)],
}


def test_rows_of_single_keys_are_those_over_sql(both: Both) -> None:
    """Keys of handles, of unique indexes and in partitions: the rows that are there, DELETEs of the others."""
    sql, reader = both.sql.reader(), both.reader()
    plan = sql.plan(of("shapes"))
    for table in plan.tables:
        for keys in (KEYS[table.name.table],) if table.name.table in KEYS else ():
            assert of_keys(reader, table, keys, plan.ts) == of_keys(sql, table, keys, plan.ts), table.name
            assert reader.absent(table, keys) == sql.absent(table, keys), table.name
    assert not {name for name in SHAPES if _key(plan, name)} - {*KEYS, "empty", "one"}
    names = [TableName("shapes", "apart"), TableName("shapes", "none")]
    assert reader.defined(names)[1] == sql.defined(names)[1]


def _key(plan: LoadPlan, name: str) -> tuple[str, ...]:
    (table,) = (each for each in plan.tables if each.name.table == name)
    return table_info(table.name, table.create, plan.ts).handle_key


def test_limits_spare_the_cluster(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests have low priority, and name the resource group and a follower; rows come as slowly as asked."""
    reader = both.reader(rows_per_s=60, replica_read="follower", resource_group="night")
    plan = reader.plan(lambda name: name.key == ("shapes", "signed"))
    Watched.seen.clear()
    begun = time.monotonic()

    assert len(loaded(reader, plan)["signed"]) == 39
    assert time.monotonic() - begun > 0.6
    contexts = [request.context for request in Watched.seen]
    assert {(each.priority, each.replica_read) for each in contexts} == {(kvrpcpb.Low, True)}
    assert {each.resource_control_context.resource_group_name for each in contexts} == {"night"}
    options = parse_load("tikv://pd?max-connections=2&load-hours=22-6&connections=3&chunk-rows=9")
    assert isinstance(options, TikvLoadOptions)
    assert (options.max_connections, options.connections, options.chunk_rows) == (2, 3, 9)
    monkeypatch.setattr(time, "time", lambda: 12 * 3600.0)
    assert TikvGuard(options, plan).rests_until() == "22:00+00:00"


@pytest.mark.parametrize("seed", range(20))
def test_borders_cut_and_join(seed: int) -> None:
    """Each range but the last one has at least the rows of a chunk, and less than those of a chunk and a sample."""
    random = Random(seed)
    samples = [(b"%03d" % number, random.randint(0, 9)) for number in range(random.randint(0, 90))]
    most = random.randint(1, 30)
    cuts = {*borders(samples, most)}
    ranges = [[]]
    for key, rows in samples:
        ranges += [[]] if key in cuts else []
        ranges[-1].append(rows)

    assert len(ranges) == len(cuts) + 1
    assert all(most <= sum(rows) < most + 10 for rows in ranges[:-1])
    assert sum(ranges[-1][:-1]) < most


@pytest.mark.parametrize("seed", range(20))
def test_ranges_between_two_keys(seed: int) -> None:
    """Keys between two others are inside, in their order; those of numbers cut as many ranges as asked, evenly."""
    random = Random(seed)
    low, high = sorted({random.randbytes(random.randint(0, 12)) for _ in range(9)})[:2]
    cuts = [*between(low, high, random.randint(0, 40))]
    assert [low, *cuts, high] == sorted({low, *cuts, high})

    first, pieces = random.randint(-(1 << 40), 1 << 40), random.randint(2, 40)
    last = first + random.randint(pieces, 1 << random.randint(10, 40))
    keys = [record_key(45, IntHandle(number)) for number in (first, last)]
    numbers = [first, *(decode_int(key, 11)[0] for key in between(*keys, pieces)), last]
    assert len(numbers) == pieces + 1
    sizes = [after - before for before, after in pairwise(numbers)]
    assert max(sizes) - min(sizes) <= 1


@pytest.fixture(scope="module")
def wide(both: Both) -> Both:
    """Tables of 3,000 rows: `n` in five regions, `c` by text."""
    both.sql.run("CREATE DATABASE wide")
    both.sql.run("CREATE TABLE wide.n (k INT PRIMARY KEY)")
    both.sql.run("CREATE TABLE wide.c (k VARCHAR(20), PRIMARY KEY (k) CLUSTERED)")
    for first in range(0, 3000, 1000):
        numbers = range(first, first + 1000)
        both.sql.run("INSERT INTO wide.n VALUES " + ", ".join(f"({k})" for k in numbers))
        both.sql.run("INSERT INTO wide.c VALUES " + ", ".join(f"('{k:04}')" for k in numbers))
    chunks = both.reader().plan(lambda name: name.key == ("wide", "n")).chunks
    for handle in (900, 901, 902, 2100):
        assert chunks[0].lower is not None
        table_id = decode_int(bytes.fromhex(chunks[0].lower[0]), 1)[0]
        both.peer.log.split(record_key(table_id, IntHandle(handle)))
    return both


@pytest.mark.parametrize("told", [True, False])
def test_a_plan_reads_no_rows_but_the_first(wide: Both, monkeypatch: pytest.MonkeyPatch, *, told: bool) -> None:
    """A plan reads a page and the last key of a table. Where PD tells the sizes of regions, over several pages, chunks
    have about the rows that are asked for, else they are regions; each row comes once."""
    monkeypatch.setattr(pd, "PAGE_REGIONS", 2)
    if not told:
        monkeypatch.setattr(wide.peer, "report", lambda _: None)
    wide.peer.reported.clear()
    Watched.pairs.clear()
    reader = wide.reader(chunk_rows=300)
    plan = reader.plan(of("wide"))

    assert Watched.pairs == {False: 2 * PAGE_PAIRS, True: 2}
    assert len(wide.peer.reported) in ([4] if told else [1, 2])  # both tables may ask before one has no answer
    rows: dict[str, list[list[int]]] = {"n": [], "c": []}
    for chunk in plan.chunks:
        table = plan.table_of(chunk)
        values = [value for batch in reader.batches(table, chunk, plan.ts) for value in rows_of(batch)]
        rows[table.name.table].append([int(k) for (k,) in values])
    for ranges in rows.values():
        assert [k for each in ranges for k in each] == [*range(3000)]
    numbers = [*map(len, rows["n"])]
    if told:
        assert all(250 <= count <= 450 for count in numbers[:-1])
        assert len(rows["c"]) <= 15
        assert max(map(len, rows["c"])) <= 600
        estimates = {table.name.table: table.estimated_rows for table in plan.tables}
        assert all(3000 <= rows < 4500 for rows in estimates.values())  # `c` shares its region
    else:
        assert numbers == [900, 1200, 900]  # the two regions of a row join the next one


def test_a_cluster_is_loaded_from_where_it_is_captured(tmp_path: Path) -> None:
    """Without load-from the address of the source serves, with what a load has of its parameters and keys."""
    uri = f"tikv://pd1:2379,pd2?host-mapping=pd1:h&log={tmp_path}/log"
    config = load(source_uri=uri, sink_uri=f"sqlite://{tmp_path}/a.db", state_dir=tmp_path, load_mode="initial")
    assert config.load is not None
    assert config.load.options == TikvLoadOptions(pd="pd1:2379,pd2:2379", host_mapping="pd1:h")
    other = load(source_uri=uri, sink_uri=f"sqlite://{tmp_path}/a.db", state_dir=tmp_path)
    assert other.load is None
    with pytest.raises(ConfigError, match="give load-from"):
        load(source_uri=f"tidb://{tmp_path}", sink_uri=f"sqlite://{tmp_path}/a.db", load_mode="initial")


def test_a_hold_ends_with_its_load(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """PD holds S while a load runs, renewed; what is released is not taken again, by a renewal amid it either."""
    monkeypatch.setattr(tikv_load, "_RENEW_S", 0.02)
    plan = both.reader().plan(of("shapes"))
    pd, name = both.peer.service, plan.safe_point
    assert pd.barriers[name][1] < time.time() + 601  # that of the plan, until its load begins
    with TikvGuard(TikvLoadOptions(pd=both.peer.pd), plan) as guard:
        ends = pd.barriers[name][1]
        deadline = time.monotonic() + 30
        while pd.barriers[name][1] == ends:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        guard.restore()
        time.sleep(0.1)
        assert name not in pd.barriers


def test_loads_at_one_ts_hold_it_each(both: Both) -> None:
    """The first that ends leaves what the other one still reads; a plan of an earlier release has its name of then."""
    plans = [both.reader().plan(of("shapes"), ts) for ts in [both.reader().newest_ts()] * 2]
    options, pd = TikvLoadOptions(pd=both.peer.pd), both.peer.service
    with TikvGuard(options, plans[0]) as first, TikvGuard(options, plans[1]):
        first.restore()
        assert [plan.safe_point in pd.barriers for plan in plans] == [False, True]
    former = msgspec.structs.replace(plans[1], safe_point="")
    with TikvGuard(options, former) as guard:
        assert f"tidegate-load-{former.ts}" in pd.barriers
        guard.restore()
    TikvGuard(options, plans[1]).restore()


@pytest.mark.slow
@pytest.mark.more
def test_a_load_that_is_killed_goes_on(both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL amid a chunk, and a start right after: nothing is lost, nothing comes twice, S stays, and no chunk that
    was done is read again."""
    both.sql.run("CREATE DATABASE big")
    both.sql.run("CREATE TABLE big.t (k INT PRIMARY KEY, v INT)")
    for first in range(0, 4000, 1000):
        both.sql.run("INSERT INTO big.t VALUES " + ", ".join(f"({k}000, {k % 7})" for k in range(first, first + 1000)))
    report = both.peer.report

    def inflated(path: str) -> Any:
        """Regions of a thousand times the rows, so that a round has few of the chunks."""
        told = report(path)
        return told and {"regions": [each | {"approximate_keys": 4_000_000} for each in told["regions"]]}

    monkeypatch.setattr(both.peer, "report", inflated)
    address, target = f"tikv://{both.peer.pd}", tmp_path / "t.db"
    command = [sys.executable, "-m", "tidegate", "run", "--source-uri", f"{address}?force-version=true"]
    command += ["--filter", "big.*", "--sink-uri", f"sqlite://{target}", "--state-dir", str(tmp_path)]

    def rows() -> dict[int, int]:
        with closing(sqlite3.connect(target)) as database:
            return dict(database.execute('SELECT k, v FROM "big.t"'))

    Watched.seen.clear()
    monkeypatch.setattr(Watched, "at", {})
    with subprocess.Popen([*command, "--load-from", f"{address}?chunk-rows=200000"]) as killed:
        Watched.at[11] = killed.kill
        assert killed.wait(120) == -signal.SIGKILL
    (kept,) = tmp_path.rglob("load.json")
    plan, before, done = KeptPlan(str(kept.parents[1])).read(), len(Watched.seen), rows()
    assert plan is not None
    both.sql.run("UPDATE big.t SET v = 100 WHERE k >= 3990000")
    subprocess.run([*command, "--load", "initial", "--until", "now"], check=True, timeout=120)

    assert {request.version for request in Watched.seen} == {plan.ts}
    assert rows() == {k * 1000: 100 if k >= 3990 else k % 7 for k in range(4000)}
    bounds = [bytes.fromhex(chunk.lower[0]) for chunk in plan.chunks if chunk.lower]
    keys = [record_key(decode_int(bounds[0], 1)[0], IntHandle(k)) for k in sorted(rows())]
    numbers = Counter(bisect_right(bounds, key) - 1 for key in keys[: len(done)])
    assert 0 < len(numbers) < len(bounds)
    assert numbers == Counter(number for key in keys if (number := bisect_right(bounds, key) - 1) in numbers)
    again = [bisect_right(bounds, request.start_key) - 1 for request in Watched.seen[before:]]
    assert [*dict.fromkeys(again)] == [*range(len(numbers), len(bounds))]
    assert len({request.start_key for request in Watched.seen[before:]}) == len(again)


@pytest.mark.slow
@pytest.mark.more
def test_chunks_are_read_on_spark(both: Both, spark: Any, tmp_path: Path) -> None:
    """Tasks of Spark read the chunks of a load: the lake has the rows that one process reads."""
    reader = both.reader(chunk_rows=5)
    plan = reader.plan(lambda name: name.key == ("shapes", "signed"))
    kept = KeptPlan(str(tmp_path))
    kept.write(plan)
    source = LoadingSource(reader, kept, lambda *_: True, NoStream(), ordered=True, keyless=True)
    run_here(source, DeltaSink(DeltaOptions(root=str(tmp_path), feed="load")), tasks=SparkTasks(spark))

    assert len(plan.chunks) > 5
    files = [path for path in tmp_path.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert sorted(k for path in files for k in pq.read_table(path)["k"].to_pylist()) == list(range(-9, 30))
