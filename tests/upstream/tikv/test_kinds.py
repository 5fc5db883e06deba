"""Each kind of table over PD and TiKV: what is received of it, and what arrives."""

import json
from pathlib import Path

import pytest

from tests.upstream.tikv.test_capture import Served, run_feed, served, table_of
from tidegate.engine.filter import TableFilter
from tidegate.kv.keys import table_span
from tidegate.kv.rows import CHECKSUM
from tidegate.mysql.encoding import decode_bytes
from tidegate.schema.job import JOB_TABLE
from tidegate.schema.stored.definition import Name, StoredSchema, StoredTable, parse_stored, render_stored
from tidegate.schema.stored.meta import Meta, schema_key, table_key
from tidegate.source.tidb_log import without
from tidegate.source.tidb_segment import ROWS, SegmentLog, read_spans, segments
from tidegate.source.tikv_capture import KnownTables
from tidegate.source.tikv_load import TikvReader
from tidegate.source.tikv_options import TikvLoadOptions
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate_upstream.tikv import feed_service

_ = served
KINDS = {
    "a view": ("CREATE VIEW test.vw AS SELECT id FROM test.a",),
    "a sequence": ("CREATE SEQUENCE test.sq",),
    "placement": (
        "CREATE PLACEMENT POLICY far FOLLOWERS = 2",
        "CREATE TABLE test.pl (id INT PRIMARY KEY) PLACEMENT POLICY = far",
        "INSERT INTO test.pl VALUES (1)",
    ),
    "rows that expire": (
        "CREATE TABLE test.tt (id INT PRIMARY KEY, c DATETIME) TTL = c + INTERVAL 1 DAY",
        "INSERT INTO test.tt VALUES (1, '2024-01-01'), (2, '2024-01-02')",
        "DELETE FROM test.tt WHERE id = 1",
    ),
    "partitions": (
        "CREATE TABLE test.pt (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (10))",
        "ALTER TABLE test.pt ADD PARTITION (PARTITION q VALUES LESS THAN MAXVALUE)",
        "INSERT INTO test.pt VALUES (1), (11)",
    ),
    "a temporary table": ("CREATE GLOBAL TEMPORARY TABLE test.te (id INT PRIMARY KEY) ON COMMIT DELETE ROWS",),
    "a cached table": (
        "CREATE TABLE test.ca (id INT PRIMARY KEY)",
        "ALTER TABLE test.ca CACHE",
        "INSERT INTO test.ca VALUES (2)",
    ),
    "no key": ("CREATE TABLE test.kl (v INT)", "INSERT INTO test.kl VALUES (1)"),
    "formats of rows": (
        "CREATE TABLE test.fo (id INT PRIMARY KEY, v VARCHAR(9))",
        "SET SESSION tidb_row_format_version = 1",
        "INSERT INTO test.fo VALUES (1, 'x')",
        "SET SESSION tidb_row_format_version = 2",
        "INSERT INTO test.fo VALUES (2, 'y')",
        "SET SESSION tidb_enable_row_level_checksum = ON",
        "INSERT INTO test.fo VALUES (3, 'z')",
    ),
    "restored text": (
        "CREATE TABLE test.co (s VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY CLUSTERED, v INT)",
        "INSERT INTO test.co VALUES ('Äb ', 1)",
    ),
    "vectors": (
        "CREATE TABLE test.ve (id INT PRIMARY KEY, v VECTOR(3))",
        "INSERT INTO test.ve VALUES (1, '[1,2,3.5]')",
    ),
    "a table outside of the filter": ("INSERT INTO test.hidden VALUES (9)",),
}
ARRIVES = {
    "test.a": [(1, 1), (2, 2)],
    "test.pl": [(1,)],
    "test.tt": [(2, "2024-01-02 00:00:00")],
    "test.pt": [(1,), (11,)],
    "test.te": [],
    "test.ca": [(2,)],
    "test.fo": [(1, "x"), (2, "y"), (3, "z")],
    "test.co": [("Äb ", 1)],
    "test.ve": [(1, "[1,2,3.5]")],
}
"""The sink has no tables without a key, no views and no sequences."""


def test_each_kind_arrives(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of rows are registered of the tables in the filter alone, by the ids of their partitions, and none of
    views and sequences; what arrives is what SQL shows."""
    registered: set[int | None] = set()
    take = feed_service._Stream.take

    def noted(stream: feed_service._Stream, request: cdcpb.ChangeDataRequest) -> None:
        start = decode_bytes(request.start_key)[0]
        registered.add(table_of(start + bytes(8)) if start.startswith(b"t") else None)
        take(stream, request)

    monkeypatch.setattr(feed_service._Stream, "take", noted)
    source = f"tikv://{served.peer.pd}"
    options = {"source": f"{source}?log={served.log}", "load_from": source}
    run_feed(tmp_path, "tikv", served.execute(), **options)
    ts = served.execute(*(sql for kind in KINDS.values() for sql in kind))
    assert run_feed(tmp_path, "tikv", ts, **options) == ARRIVES

    reader = TikvReader(TikvLoadOptions(pd=served.peer.pd))
    every = reader.schema(ts).tables.values()
    tables = {table.stored.name.lower: table.stored for table in every if table.schema == "test"}
    reader.close()
    rows = {name for name, table in tables.items() if not table.is_view and not table.is_sequence}
    ids = {number for name in rows - {"hidden"} for number in tables[name].physical_ids}
    assert registered == ids | {None, JOB_TABLE.id}
    written = segments(served.log)
    kept = list(read_spans(served.log, written[0][0], written[-1][1], (ROWS,)))
    assert {table_of(row.key) for row in kept} <= ids | {JOB_TABLE.id}
    values = [row.value or b"" for row in kept if table_of(row.key) == tables["fo"].id]
    assert [value[0] == 0x80 for value in values] == [False, True, True]
    assert [bool(value[1] & CHECKSUM) for value in values[1:]] == [False, True]


def test_each_kind_is_loaded(served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A load that begins with all kinds there has what their stream brings, and goes on with it: a table that TiDB has
    cached is one like others, and a temporary one, whose rows are in no TiKV, is left out by name."""
    served.execute(*(sql for kind in KINDS.values() for sql in kind))
    transaction = served.cluster.storage.begin()
    meta = Meta(transaction)
    names = {(schema.id, table.id): table.name.lower for schema in meta.schemas() for table in meta.tables(schema.id)}
    (cached,) = (table_key(*ids) for ids, name in names.items() if name == "ca")
    transaction.put(cached, json.dumps(json.loads(transaction.get(cached)) | {"cache_table_status": 2}).encode())
    transaction.commit()
    source = f"tikv://{served.peer.pd}"
    options = {"source": f"{source}?log={served.log}", "load_from": source}
    expected = {name: rows for name, rows in ARRIVES.items() if name != "test.te"}
    assert run_feed(tmp_path, "loaded", served.execute(), **options) == expected
    ts = served.execute("INSERT INTO test.ca VALUES (3)", "ALTER TABLE test.te ADD v INT", "DROP TABLE test.te")
    assert run_feed(tmp_path, "loaded", ts, **options) == expected | {"test.ca": [(2,), (3,)]}
    assert "test.te: a temporary table" in caplog.text
    assert "test.te: the feed begins above" not in caplog.text


def test_a_global_index_is_not_read() -> None:
    """Its entries are below the id of the table, whose partitions have the rows."""
    partition = {"type": 2, "expr": "`id`", "enable": True, "num": 2}
    partition["definitions"] = [{"id": number, "name": {"O": f"p{number}", "L": f"p{number}"}} for number in (46, 47)]
    index = {"id": 1, "idx_name": {"O": "k", "L": "k"}, "is_unique": True, "is_global": True, "state": 5}
    told = {"id": 45, "name": {"O": "t", "L": "t"}, "state": 5, "index_info": [index], "partition": partition}
    table = parse_stored(json.dumps(told).encode(), StoredTable)
    tables = KnownTables(TableFilter.parse(("shop.*",)).matches)
    tables.apply(schema_key(2), render_stored(StoredSchema(2, Name.of("shop"), state=5)))
    tables.apply(table_key(2, 45), render_stored(table))
    assert set(tables.names()) == {46, 47}
    entry = b"t" + (45 | 1 << 63).to_bytes(8, "big") + b"_i"
    assert not any(start <= entry < end for start, end in map(table_span, (45, 46, 47)))


def test_rows_of_another_cluster_are_marked(served: Served) -> None:
    """A log has the rows that a changefeed wrote, which bdr-mode leaves out, and tells them from others."""
    capture = served.capture(low := served.execute())
    capture.start()
    try:
        write = "INSERT INTO test.a VALUES ({0}, {0})"
        marked = ("SET SESSION tidb_cdc_write_source = 1", write.format(8), "SET SESSION tidb_cdc_write_source = 0")
        ts = served.execute(*marked, write.format(9))
        served.captured(capture, ts)
    finally:
        capture.stop()
    rows = [row for row in read_spans(served.log, low, ts, (ROWS,)) if table_of(row.key) != JOB_TABLE.id]
    assert [row.txn_source for row in rows] == [1, 0]
    kept = without(SegmentLog(served.log), frozenset(), replicated=True).rows(low, ts, (ROWS,))
    assert [row for row in kept if table_of(row.key) != JOB_TABLE.id] == rows[1:]
