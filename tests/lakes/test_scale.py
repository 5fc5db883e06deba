"""How large a lake may be: what a start, a round, a reader and a catalog ask its store does not grow with it.

A soak has the sizes that docs/limits.md names, `make test` small ones; what is counted is the same.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pyarrow as pa
import pytest

from tests.counts import some
from tests.sink.delta.lake import TEXT, Rows, column, options, run, table
from tests.sink.delta.small import Small
from tidegate.engine.plan import Alter, Checkpoint, Create
from tidegate.engine.plan import Rows as Apply
from tidegate.engine.retention import Limits
from tidegate.lakes.catalog import CatalogStates
from tidegate.objectstore import deltalog
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.iceberg_format import SNAPSHOTS_MAX
from tidegate.sink.delta.iceberg_projection import metadata_path
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.snapshots import PublishedTable, Snapshot, latest, numbers, publish, published_at
from tidegate.sink.delta.upkeep import Shelf

TABLES = some(100, 2_000)
DDLS = some(60, 1_000)
FILES, FILE_ROWS = some((5, 20_000), (100, 1_000_000))
HOURS = some(500, 24 * 365)
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
FOREVER = Limits(snapshot_ms=366 * 24 * HOUR_MS)
PAGE = 1_000
"""Names in an answer of S3."""


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often this process asks a store, delta-rs aside, and how many names it was given."""
    asked: Counter[str] = Counter()

    def listing(place: Any, *given: Any, **more: Any) -> Iterator[Any]:
        names = [list(batch) for batch in whole(place, *given, **more)]
        asked["names"] += sum(map(len, names))
        yield from names

    def counting(verb: str) -> Any:
        real = getattr(obstore, verb)

        def ask(*given: Any, **more: Any) -> Any:
            asked[verb] += 1
            return real(*given, **more)

        return ask

    whole = counting("list")
    with monkeypatch.context() as patched:
        patched.setattr(obstore, "list", listing)
        for verb in ("get", "put"):
            patched.setattr(obstore, verb, counting(verb))
        yield asked


def made(root: Path, tables: int) -> Small:
    """A lake with so many tables of one row, all projected."""
    small = Small(root, Limits(), iceberg=True)
    for number in range(tables):
        small.ddl(10 + number, f"CREATE TABLE t{number} (id INT PRIMARY KEY, v VARCHAR(20))", f"t{number}")
        small.rows.insert(50_000, f"t{number}", id=1, v="a")
    small.round(60_000)
    return small


def one_round(small: Small, ts: int) -> None:
    """A round that touches one table."""
    small.rows.changes = []
    small.rows.insert(ts, "t7", id=ts, v="b")
    small.round(ts)


@pytest.mark.slow
def test_many_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start, a round that touches one table, and a catalog's answers ask as often with many tables as with few."""
    asked: dict[int, list[Counter[str]]] = {}
    for tables in (10, TABLES):
        root = tmp_path / str(tables)
        small = made(root, tables)
        one_round(small, 70_000)
        with counted(monkeypatch) as start:
            sink = DeltaSink(small.options)
            sink.recover()
        with counted(monkeypatch) as round_:
            one_round(small, 80_000)
        states = CatalogStates(str(root))
        with counted(monkeypatch) as named:
            newest = states.newest()
        with counted(monkeypatch) as again:
            states.newest()
        assert len(newest.tables) == tables
        asked[tables] = [start, round_, named, again]
    assert asked[10] == asked[TABLES]
    assert asked[TABLES][3]["list"] == 1
    assert asked[TABLES][3]["get"] == 0


@pytest.mark.slow
def test_many_ddls(tmp_path: Path) -> None:
    """After very many DDLs of one table its rows are right, and its Iceberg metadata holds bounded many schemas."""
    lake, changes = options(tmp_path, iceberg=True), Rows()
    defined = table(column(1, "id"), column(2, "v", TEXT))
    changes.insert(11, id=1, v="a")
    run(lake, changes, Create(defined, 10, 1), Apply(defined, 10, 11))
    for number in range(DDLS):
        ts, keep = 20 + 2 * number, defined.columns[:2]
        after = table(*keep, column(3 + number, f"c{number % 7}"), version=ts)
        changes.changes = []
        changes.insert(ts + 1, id=ts, v="b", **{f"c{number % 7}": number})
        run(lake, changes, Alter(defined, after, ts, 1, ""), Apply(after, ts, ts + 1))
        defined = after
    uri = lake.table_uri(defined.incarnation)
    snapshot = deltalog.load(uri)
    rows = pa.concat_tables(
        [_read(snapshot, file) for file in snapshot.files()],
    )
    assert rows.num_rows == DDLS + 1
    assert rows.column(2).null_count == DDLS
    body = Path(uri, metadata_path(snapshot.version)).read_bytes()
    assert len(msgspec.json.decode(body)["schemas"]) <= SNAPSHOTS_MAX
    assert len(body) < 1 << 20


def _read(snapshot: deltalog.TableSnapshot, file: deltalog.DataFile) -> pa.Table:
    from tidegate.sink.delta.files import read

    return read(snapshot.uri, file, stored_columns(snapshot))


@pytest.mark.slow
def test_a_large_table(tmp_path: Path) -> None:
    """A row by its key, a merge and a projection take the memory of some files, not of the table."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.lakes.large_table", str(tmp_path), str(FILES), str(FILE_ROWS)],
        check=True,
        capture_output=True,
        text=True,
        timeout=3_000,
    )
    before_mib, peak_mib, rows = map(int, done.stdout.split()[-3:])
    assert rows == FILES * FILE_ROWS
    assert peak_mib - before_mib < 1024


@pytest.mark.slow
def test_a_year_of_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A year that keeps its hours: the newest snapshot costs one listing, one at a moment as many reads as its number
    has digits in base two, and upkeep reads each snapshot once."""
    lake = options(tmp_path)
    now_ms = time.time_ns() // 1_000_000
    state = SchemaState()
    tables = {f"{number}-1": PublishedTable("s", f"t{number}", 1) for number in range(20)}
    digest = ""
    for number in range(HOURS):
        digest = publish(lake, Snapshot(number, Checkpoint(number + 1), state, tables, digest=digest))
    with counted(monkeypatch) as asked:
        assert latest(lake).number == HOURS - 1
    assert (asked["list"], asked["get"]) == (1, 2)
    with counted(monkeypatch) as asked:
        assert published_at(lake, HOURS // 3).checkpoint.ts == HOURS // 3
    assert asked["list"] == 1
    assert asked["get"] <= HOURS.bit_length() + 3
    shelf = Shelf(lake)
    with counted(monkeypatch) as asked:
        shelf.refresh()
        shelf.forget(now_ms, FOREVER)
        shelf.refresh()
    assert asked["get"] <= HOURS + 2 + HOURS  # each is read, and moved where it is forgotten
    with counted(monkeypatch) as asked:
        shelf.refresh()
    assert asked["get"] <= 1
    with counted(monkeypatch) as asked:
        assert numbers(lake, HOURS - 1) == [HOURS - 1]
    assert asked["names"] == 1
