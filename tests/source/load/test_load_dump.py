"""A load from files of Dumpling has the rows of a load over SQL, joins the stream, and refuses what is not sure."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import obstore
import pytest

from tests import failpoint
from tests.contract.test_sql_sink import emptied
from tests.mariadb import running_server
from tests.s3 import BUCKET, environment, serving
from tests.source.load import feeds
from tests.source.load.dumpling import HEAD, TS, Dumped, dump, written
from tests.source.load.feeds import Database, Draw, Feed, Servers, Work
from tests.source.load.kit import Loaded, loaded, of
from tests.source.load.test_equal import TYPES
from tests.source.load.test_start import STORY
from tidegate.config.full_load import parse_load
from tidegate.config.load import load
from tidegate.config.registry import sink_of, source_of
from tidegate.engine.load import LoadingSource
from tidegate.engine.load_plan import KeptPlan, LoadPlan
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, SchemaError, SourceError, TidegateError, UriInvalid
from tidegate.objectstore.stores import store
from tidegate.source import load_dump
from tidegate.source.load_dump import DumpGuard, DumpReader
from tidegate.testing.contract.sinks import Died
from tidegate.testing.script import ScriptedSource, run_here

HOWS = (
    Dumped(),
    Dumped(csv=False),
    Dumped(escapes=False, packed=".gz", binary_format="hex"),
    Dumped(csv=False, escapes=False, packed=".zst"),
    Dumped(packed=".snappy", header=False, separator="|+|", binary_format="base64", file_rows=2),
    Dumped(delimiter=""),
    Dumped(zone="+08:00", null=""),
)


def planned(uri: str, ts: int | None = None) -> tuple[DumpReader, LoadPlan]:
    """The reader of an address, and its plan."""
    reader = DumpReader(parse_load(uri))
    return reader, reader.plan(of("shop"), ts)


@pytest.mark.parametrize(
    "how",
    [Dumped(), Dumped(csv=False), Dumped(escapes=False), *(Dumped(packed=ext) for ext in (".gz", ".snappy", ".zst"))],
    ids=["csv", "sql", "doubled", "gz", "snappy", "zst"],
)
def test_chunks_have_each_row_once(how: Dumped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that can be cut is cut at lines, wherever its bytes are cut, and is read in pieces."""
    rows = [(b"%d" % at, None if at % 7 == 0 else b"x\n\r'\"\\,%d" % at * (at % 5)) for at in range(40)]
    home = written(tmp_path / "dump", how, rows=rows)
    expected = [(int(number), None if text is None else text.decode()) for number, text in rows]
    for size in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(load_dump, "CHUNK_BYTES", max(size, 3))
        monkeypatch.setattr(load_dump, "PIECE_BYTES", max(size, 5) if not how.packed else 1 << 20)
        if size < 64 and how.csv:
            monkeypatch.setattr(load_dump, "PIECE_BYTES", 64)  # a header is read at once
        reader, plan = planned(how.uri(home))
        assert (plan.ts, plan.databases) == (TS, (("shop", "CREATE DATABASE `shop`"),))
        assert len(plan.chunks) == 1 or (how.escapes and not how.packed and size < 1 << 20)
        assert loaded(reader, plan) == {"t": expected}


def _replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda home: (home / name).write_text((home / name).read_text().replace(old, new))


CSV, ROWS = "shop.t.000000000.csv", "shop.t-schema.sql"
REFUSALS: dict[str, tuple[Callable[[Path], object], dict[str, Any], type[TidegateError], str]] = {
    "not done": (_replaced("metadata", "Finished dump at", "x"), {}, ConfigError, "the dump is not done"),
    "no Pos": (_replaced("metadata", "Pos:", "x:"), {}, ConfigError, "Log 'tidb-binlog' and Pos ''"),
    "two Pos": (_replaced("metadata", "GTID:", f"Pos: {TS + 1}"), {}, ConfigError, "one TSO"),
    "a time": (_replaced("metadata", str(TS), "2026-01-01 00:00:00"), {}, ConfigError, "with a number as --snapshot"),
    "MySQL": (_replaced("metadata", "tidb-binlog", "mysql-bin.000003"), {}, ConfigError, "one TSO of a TiDB"),
    "no consistency": (lambda _: 0, {"consistency": ""}, ConfigError, "consistency is missing"),
    "consistency none": (lambda _: 0, {"consistency": "none"}, ConfigError, "consistency is none"),
    "another load-ts": (lambda _: 0, {"ts": TS + 1}, ConfigError, "leave load-ts out"),
    "no metadata": (lambda home: (home / "metadata").unlink(), {}, ConfigError, "has no metadata"),
    "no directory": (lambda home: home.rename(home.with_name("away")), {"ts": TS}, ConfigError, "is not there"),
    "no definition": (lambda home: (home / ROWS).unlink(), {}, SchemaError, "shop.t: .* no definition"),
    "no CREATE": (lambda home: (home / ROWS).write_text(HEAD), {}, SchemaError, "no CREATE statement"),
    "a column more": (_replaced(ROWS, "VARCHAR(20)", "VARCHAR(20), w INT"), {}, SchemaError, "different definitions"),
    "another column": (_replaced(ROWS, "v VARCHAR", "w VARCHAR"), {}, SchemaError, "different definitions"),
    "no header": (lambda _: 0, {"csv_header": "false"}, SchemaError, "give csv-header=true"),
    "another separator": (lambda _: 0, {"csv_separator": ";"}, SchemaError, "different definitions"),
    "stored": (_replaced(ROWS, "(20)", "(20), g INT AS (crc64(v)) STORED"), {}, SchemaError, "crc64 does not exist"),
    "stored, zone": (
        _replaced(ROWS, "VARCHAR(20)", "TIMESTAMP, g DATE AS (date(v)) STORED"),
        {},
        SchemaError,
        "shop.t: .* v depends on the time zone",
    ),
    "time zone": (_replaced(ROWS, "VARCHAR(20)", "TIMESTAMP"), {"time_zone": ""}, ConfigError, "give time-zone=UTC,"),
    "escapes": (lambda _: 0, {"backslash_escape": ""}, ConfigError, "give backslash-escape=true,"),
    "null": (lambda _: 0, {"csv_null_value": "", "csv_header": ""}, ConfigError, "csv-header=true"),
    "bytes": (
        _replaced(ROWS, "VARCHAR", "VARBINARY"),
        {"csv_binary_format": ""},
        ConfigError,
        "csv-binary-format=utf8",
    ),
    "no quotes": (lambda _: 0, {"csv_delimiter": "none", "csv_null_value": "NULL"}, ConfigError, "without delimiter"),
    "parquet": (lambda home: (home / "shop.t.0001.parquet").touch(), {}, ConfigError, "none of the files"),
    "lz4": (lambda home: (home / "shop.t.0001.csv.lz4").touch(), {}, ConfigError, "none of the files"),
    "other names": (lambda home: (home / "shop.t.part.1.csv").touch(), {}, ConfigError, "none of the files"),
    "twice": (lambda home: (home / f"{CSV}.gz").touch(), {}, ConfigError, "two dumps"),
    "both": (lambda home: (home / "shop.t.000000001.sql").touch(), {}, ConfigError, "two dumps"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    """Before any row is loaded, with what to do."""
    spoil, given, kind, words = REFUSALS[name]
    home, ts = written(tmp_path / "dump", Dumped()), given.pop("ts", None) if "ts" in given else None
    spoil(home)
    uri = Dumped().uri(home, **given)
    for empty in (key.replace("_", "-") for key, value in given.items() if not value and key != "csv_null_value"):
        uri = uri.replace(f"{empty}=&", "").removesuffix(f"&{empty}=")
    with pytest.raises(kind, match=words):
        planned(uri, ts)


def test_ways_out(tmp_path: Path) -> None:
    """What is missing is given as the error says, and a table that cannot be loaded is left out: the rest is loaded."""
    home = written(tmp_path / "dump", Dumped(), columns="id INT PRIMARY KEY, v VARBINARY(20)")
    (home / "shop.g-schema.sql").write_text(
        f"{HEAD}CREATE TABLE `g` (id INT PRIMARY KEY, g INT AS (nothing(id)) STORED);\n"
    )

    def plan(uri: str, left_out: str = "g") -> tuple[DumpReader, LoadPlan]:
        reader = DumpReader(parse_load(uri))
        return reader, reader.plan(lambda name: name.table != left_out)

    uri, missing = Dumped(header=False).uri(home), "&csv-binary-format=utf8"
    with pytest.raises(SchemaError, match=r"shop.g: .*nothing.*filter.rules"):
        plan(uri, left_out="")
    with pytest.raises(ConfigError, match=f"give {missing[1:]}, "):
        plan(uri.removesuffix(missing))
    with pytest.raises(SchemaError, match="give csv-header=true in load-from"):
        plan(uri)
    assert loaded(*plan(uri.replace("csv-header=false", "csv-header=true"))) == {"t": [(1, b"a"), (2, None)]}


def test_what_is_wrong_in_rows(tmp_path: Path) -> None:
    """A row that is cut, a value that its column cannot have, a damaged or another file: each ends the load by name."""
    home = written(tmp_path / "dump", Dumped(), columns="id INT PRIMARY KEY, v ENUM('a', 'b')")
    reader, plan = planned(Dumped().uri(home))
    file = home / CSV
    whole = file.read_bytes()
    assert loaded(reader, plan) == {"t": [(1, 1), (2, None)]}
    for text, kind, words in (
        (whole.replace(b'"a"', b'"c"'), SchemaError, "behind row 0 of chunk 0"),
        (whole.replace(b'1,"a"', b'x,"a"'), SchemaError, "column 'id'"),
        (whole.replace(b'"a"\r\n', b'"a",\r'), SchemaError, "should be a row of 2 columns"),
        (whole.replace(b"\\N\r\n", b'"\\N\n'), SchemaError, "ends in it"),
        (whole + b"3,\\N\r\n", ConfigError, "and had"),
    ):
        file.write_bytes(text)
        with pytest.raises(kind, match=words):
            loaded(reader, plan)
    file.unlink()
    with pytest.raises(ConfigError, match="is not there"):
        loaded(reader, plan)
    for packed, kind in ((".gz", SourceError), (".snappy", SourceError), (".zst", TidegateError)):  # no checksum
        how = Dumped(packed=packed)
        reader, plan = planned(how.uri(written(tmp_path / packed[1:], how)))
        file = tmp_path / packed[1:] / f"{CSV}{packed}"
        file.write_bytes(file.read_bytes()[:-5] + b"12345")
        with pytest.raises(kind, match=packed):
            loaded(reader, plan)


def test_a_load_goes_on_with_its_own_dump(tmp_path: Path) -> None:
    """A directory that has become another dump is refused when the load goes on."""
    home = written(tmp_path / "dump", Dumped())
    reader, plan = planned(Dumped().uri(home))
    assert DumpGuard(reader.options, plan).__enter__().deadline_ms == 0
    _replaced("metadata", str(TS), str(TS + 5))(home)
    with pytest.raises(ConfigError, match=f"a dump of {TS + 5}"):
        DumpGuard(reader.options, plan).__enter__()


def test_a_reload_needs_a_database(tmp_path: Path) -> None:
    """One of before the feed's checkpoint never catches up."""
    reader, _ = planned(Dumped().uri(written(tmp_path / "dump", Dumped())))
    stream = ScriptedSource(STORY)
    source = LoadingSource(reader, KeptPlan(str(tmp_path)), lambda *_: True, stream, ordered=True)
    ts, plan = source.reload_plan(lambda *_: True, TS)
    assert (ts, [table.name.table for table in plan().tables]) == (TS, ["t"])
    with pytest.raises(ConfigError, match="before the feed"):
        source.reload_plan(lambda *_: True, TS + 1)


def test_an_export_tells_no_tso(tmp_path: Path) -> None:
    """With load-ts it is read, if its tables have keys."""
    home = written(tmp_path / "dump", Dumped())
    (home / "metadata").unlink()
    reader, plan = planned(Dumped().uri(home), TS - 9)
    assert plan.ts == TS - 9
    assert loaded(reader, plan) == {"t": [(1, "a"), (2, None)]}
    _replaced(ROWS, " PRIMARY KEY", "")(home)
    with pytest.raises(ConfigError, match="and rows without a key"):
        planned(Dumped().uri(home), TS)


def test_addresses(tmp_path: Path) -> None:
    """What an address may say; a dump has no later load and no definitions of its own."""
    home = written(tmp_path / "dump", Dumped())
    uri = Dumped().uri(home)
    assert parse_load("s3://b/p?access-key=a&secret-access-key=zebra&csv-null-value=").null == ""
    assert "zebra" not in repr(parse_load("s3://b/p?access-key=a&secret-access-key=zebra"))
    config = load(load_mode="only", load_from=uri, sink_uri=f"delta://{tmp_path}/lake")
    assert run_here(source_of(config), sink_of(config), rules=config.rules).checkpoint_ts == TS
    assert sorted(Lake(str(tmp_path / "lake")).arrow("shop.t").column("id").to_pylist()) == [1, 2]
    for more, words in (("&chunk-rows=5", "chunk-rows"), ("&consistency=x", "twice"), ("&csv-delimiter=ab", "twice")):
        with pytest.raises(UriInvalid, match=words):
            parse_load(uri + more)
    with pytest.raises(UriInvalid, match="one character"):
        parse_load("s3://b?csv-delimiter=ab")
    file = tmp_path / "feed.toml"
    file.write_text(f'[source]\nload-from = "{uri.replace(chr(92), chr(92) * 2)}"\nload-number = 1\n')
    with pytest.raises(ConfigError, match="with no dump"):
        load(file, source_uri=f"tidb://{home}", sink_uri=f"delta://{tmp_path}/lake")


@pytest.mark.slow
def test_rows_are_those_of_a_load_over_sql(upstream: Loaded, tmp_path: Path) -> None:
    """Every type in every dialect, generated columns, odd names, a table without a key, and a view."""
    upstream.run("CREATE DATABASE dumped")
    for number, (kind, values) in enumerate(TYPES.items()):
        upstream.run(f"CREATE TABLE dumped.t{number} (k INT PRIMARY KEY, v {kind}, g INT AS (k + 1) VIRTUAL)")
        for key, value in enumerate(values):
            upstream.run(f"INSERT INTO dumped.t{number} (k, v) VALUES ({key}, {value})")
        upstream.run(f"INSERT INTO dumped.t{number} (k) VALUES (99)")
    upstream.run('CREATE TABLE dumped.`odd.na-me%` (v INT, `a,"b` INT)')
    upstream.run("INSERT INTO dumped.`odd.na-me%` VALUES (1, 1), (1, 1), (NULL, 2)")
    upstream.run("CREATE TABLE dumped.empty (k INT PRIMARY KEY)")
    computed = ", ".join(f"g{number} {kind} AS ({text}) STORED" for number, (kind, text) in enumerate(COMPUTED))
    upstream.run(
        "CREATE TABLE dumped.stored (k INT PRIMARY KEY, i BIGINT UNSIGNED, d DECIMAL(12, 3), f DOUBLE, r FLOAT, "
        "s VARCHAR(30) COLLATE utf8mb4_general_ci, b VARBINARY(9), at DATETIME(3), t TIME, e ENUM('x', 'y'), j JSON, "
        f"w INT AS (k * 2) VIRTUAL, {computed}, z INT)"
    )
    for values in STORED:
        upstream.run(f"INSERT INTO dumped.stored (k, i, d, f, r, s, b, at, t, e, j, z) VALUES ({values})")
    upstream.run("CREATE VIEW dumped.v AS SELECT k FROM dumped.t0")
    sql = upstream.reader()
    plan = sql.plan(of("dumped"))
    expected = {name: sorted(map(repr, rows)) for name, rows in loaded(sql, plan).items()}
    for number, how in enumerate(HOWS):
        home = tmp_path / str(number)
        dump(upstream.port, plan.ts, home, how, "dumped")
        reader = DumpReader(parse_load(how.uri(home, "UTC" if how.zone == "+00:00" else "Asia/Shanghai")))
        found = reader.plan(of("dumped"))
        assert {name: sorted(map(repr, rows)) for name, rows in loaded(reader, found).items()} == expected, how
        assert (found.ts, [name for name, _ in found.views]) == (plan.ts, [name for name, _ in plan.views])
        assert "dumped.t6" in found.notes[0]


COMPUTED = (
    ("BIGINT", "k + i"),
    ("DECIMAL(14, 2)", "d * 3"),
    ("DOUBLE", "f / 3"),
    ("FLOAT", "f * 0.1"),
    ("DOUBLE", "r * 10"),
    ("VARCHAR(80)", "concat(upper(s), '-', k)"),
    ("VARBINARY(20)", "concat(b, x'00ff')"),
    ("DATE", "date(at)"),
    ("DATETIME", "at + INTERVAL 1 DAY"),
    ("TIME", "t"),
    ("INT", "s = 'STRASSE'"),
    ("ENUM('a', 'b')", "if(k > 1, 'b', 'a')"),
    ("BIT(9)", "k + 255"),
    ("JSON", "json_object('k', k, 's', s)"),
    ("VARCHAR(20)", "json_unquote(json_extract(j, '$.a'))"),
    ("INT", "g0 + w"),
    ("VARCHAR(30)", "ifnull(e, 'none')"),
    ("INT", "7"),
)
"""Types and expressions of stored generated columns; one is of another, and of one that is not stored."""
STORED = (
    "1, 5, 1.005, 0.1, 0.1, 'straße', 'a', '2024-02-29 23:59:59.999', '-11:22:33', 'x', '{\"a\": \"b\"}', 1",
    "2, 0, -7.5, 1e20, -3.3e9, 'Strasse', x'ff', '1970-01-01', '838:59:59', 'y', '[1, null]', NULL",
    "3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 3",
    "4, 9007199254740993, 9e7, -1e-9, 7, 'it''s \\\\ \"q\"', '', '9999-12-30', '00:00:00', 'x', '{\"a\": 1.5}', 4",
)


JOINED = {
    "lake, csv": ("replica", "open-protocol", Dumped(file_rows=9, packed=".gz")),
    "mariadb, sql": ("mariadb", "canal-json", Dumped(csv=False, file_rows=9)),
    "mariadb, log": ("mariadb", "log", Dumped(file_rows=9)),
    "lake, export": ("replica", "open-protocol", Dumped()),
    "mariadb, export": ("mariadb", "canal-json", Dumped(csv=False)),
    "lake, s3": ("replica", "log", Dumped(csv=False, file_rows=9, packed=".zst")),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.more] * (name != "mariadb, log")) for name in JOINED]
)
def test_a_dump_joins_the_stream(name: str, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its own S, with rows and DDLs behind it, killed amid the load and once more: equal at the end, and before the
    topic's begin refused. An export is newer than the S that is given."""
    sink, source, how = JOINED[name]
    home = tmp_path / f"dump-{sink}-{source}"
    home.mkdir()
    draw = Draw.of(feeds.SOURCES.index(source))._replace(source=source, force=False, trimmed=False)
    work, database = Work(3), Database(home / "log")
    with running_server(tmp_path / "mariadb") as mariadb, serving(BUCKET) if "s3" in name else nullcontext(0) as port:
        emptied(mariadb)
        feed = Feed(draw, sink, database, Servers(bootstrap, mariadb, 0), home)
        store.cache_clear()
        for variable, value in environment(port).items():
            monkeypatch.setenv(variable, value)
        try:
            database.play((*feeds.TABLES, *work.rows(60)))
            early = database.now()
            database.play(work.rows(10))
            begun = database.now()
            feeds.write(draw, feed.servers, database, begun, since=early, state="writer")
            database.play(work.rows(10))
            ts = database.now()
            dump(database.ports.ports["n1"], ts, home / "files", how, "w")
            uri = how.uri(home / "files")
            if "s3" in name:
                bucket = store(f"s3://{BUCKET}/dump")
                for file in (home / "files").iterdir():
                    obstore.put(bucket, file.name, file.read_bytes())
                uri = how.uri(f"s3://{BUCKET}/dump")
            if is_export := "export" in name:
                (home / "files/metadata").unlink()
            database.play((*work.rows(20), *work.storm()))
            end = database.now()
            feeds.write(draw, feed.servers, database, end, since=early, state="writer")

            def config(uri: str) -> Any:
                return load(
                    source_uri=feed.source_uri,
                    sink_uri=feed.sink_uri + "?safe-mode=true" * (sink == "mariadb" and is_export),
                    rules=["w.*", "!w.keyless"], load_from=uri, load_ts=begun if is_export else None,
                    name=home.name, state_dir=None if sink == "replica" else home / "state",
                )  # fmt: skip

            if source != "log" and not is_export:
                dump(database.ports.ports["n1"], early, home / "early", how, "w")
                with pytest.raises(ConfigError, match="the source begins later"):
                    feeds.finished(config(how.uri(home / "early")), end, database)
            for point in ("load/plan-kept", "round/applied"):
                with pytest.raises(Died), failpoint.armed({point: feed._dies(point, 1, None)}):
                    feeds.finished(config(uri), end, database, limit=1)
            assert feeds.finished(config(uri), end, database, limit=1).checkpoint_ts == end
            found = feed.tables()
            assert not feed.unlike(end, {**found, "w.keyless": database.tables(end)["w.keyless"]})
        finally:
            database.close()
            store.cache_clear()
