"""A full load into a lake: the chunks of a table become files side by side, and one commit."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.failpoint import armed
from tidegate.engine.load import CHUNK_ROWS, LoadChanges, LoadingSource, Part
from tidegate.engine.load_plan import KeptPlan, LoadGuard
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, LocalTasks, RoundLimit
from tidegate.lakes.lake import Lake
from tidegate.model.errors import HistoryLost, SchemaError, SourceError
from tidegate.objectstore import deltalog
from tidegate.sink.delta import snapshots
from tidegate.sink.delta.apply import READ_TRIES, WrittenLoad, WrittenPart
from tidegate.sink.delta.options import DeltaOptions, Mode
from tidegate.sink.delta.sink import DeltaSink
from tidegate.testing.contract.sinks import CutChanges
from tidegate.testing.script import Script, ScriptedLoad, ScriptedSource, put, run_here

ROWS = 10
MODES: Sequence[Mode] = ("replica", "changelog", "history")


def story() -> Script:
    """Two tables of several chunks, one of them without a key, one of one row, one empty."""
    script = Script()
    script.ddl("shop", "CREATE DATABASE shop")
    script.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20), price DECIMAL(8, 2))")
    script.ddl("shop.bare", "CREATE TABLE shop.bare (id INT, v VARCHAR(20))")
    script.ddl("shop.one", "CREATE TABLE shop.one (id INT PRIMARY KEY)")
    script.ddl("shop.none", "CREATE TABLE shop.none (id INT PRIMARY KEY)")
    for at in range(ROWS):
        script.commit(put("shop.t", id=at, v=f"v {at}", price="1.50"), put("shop.bare", id=at, v=None))
    script.commit(put("shop.one", id=1))
    script.resolve()
    script.commit(put("shop.t", id=3, v="later"), put("shop.bare", id=100, v="later"))
    script.resolve()
    return script


class Slow(DeltaSink):
    """A lake that takes a load for a stream."""

    def run(self, tasks: Any, units: Any, changes: Changes) -> Any:
        return super().run(tasks, units, CutChanges(changes, chunks=1 << 30))


def run(
    home: Path,
    mode: Mode = "replica",
    *,
    kind: type[DeltaSink] = DeltaSink,
    script: Script | None = None,
    load: Any = None,
    tasks: Any = None,
    guard: Any = lambda _: LoadGuard(),
    stream: type[ScriptedSource] = ScriptedSource,
    by_table: bool = False,
    rows: int | None = None,
    **options: Any,
) -> tuple[Path, Any, ScriptedLoad]:
    """Load the story and follow it to its end, in a lake below `home`."""
    script, tasks = script or story(), tasks or LocalTasks(pickles=load is None)
    load = load or ScriptedLoad(script, script.marks[0])
    sink = kind(DeltaOptions(root=str(home / "lake"), feed="feed", mode=mode, **options))
    source = LoadingSource(
        load,
        KeptPlan(str(home / "plan")),
        lambda *_: True,
        stream(script),
        guard=guard,
        ordered=True,
        keyless=True,
        by_table=by_table,
    )
    if rows is not None:
        sink.flush_policy = replace(sink.flush_policy, load_limit=RoundLimit(rows, 1 << 30))
    run_here(source, sink, tasks=tasks)
    return home / "lake", tasks, load


def shown(lake: Path, s: int) -> list[tuple[str, ...]]:
    """The tables of each snapshot below S, each with the rows of S."""
    options = DeltaOptions(root=str(lake), feed="feed")
    early = [snapshot for snapshot in snapshots.kept_snapshots(options) if snapshot.checkpoint.ts < s]
    at_s = Lake(str(lake), s)
    for snapshot in early:
        view = Lake(str(lake), snapshot.checkpoint.ts)
        assert sorted(view.tables()) == sorted(str(table.name) for table in snapshot.tables.values())
        for name in view.tables():
            assert sorted(map(str, view.arrow(name).to_pylist())) == sorted(map(str, at_s.arrow(name).to_pylist()))
    return list(dict.fromkeys(tuple(sorted(str(t.name) for t in snapshot.tables.values())) for snapshot in early))


def tables(lake: Path) -> dict[str, list[Any]]:
    """The rows of every table as they are stored, in an order of their own."""
    opened = Lake(str(lake))
    found = {name: opened.arrow(name) for name in opened.tables()}
    return {name: sorted(map(str, rows.to_pylist())) for name, rows in found.items()}


def stored(lake: Path, name: str) -> deltalog.TableSnapshot:
    """A table's log."""
    opened = Lake(str(lake))
    incarnation = next(key for key, one in opened.snapshot.tables.items() if str(one.name) == name)
    found = deltalog.load(opened.options.table_uri(incarnation))
    assert found is not None
    return found


@pytest.mark.parametrize("mode", MODES)
def test_files_as_the_stream_would_have_them(tmp_path: Path, mode: Mode) -> None:
    """Rows, changes and versions are those of the path that merges."""
    fast, _, _ = run(tmp_path / "fast", mode)
    slow, _, _ = run(tmp_path / "slow", mode, kind=Slow)
    assert tables(fast) == tables(slow)
    assert len(tables(fast)["shop.t"]) == ROWS + (0 if mode == "replica" else 1 if mode == "history" else 2)


@pytest.mark.parametrize("mode", MODES)
def test_equal_rows_without_a_key(tmp_path: Path, mode: Mode) -> None:
    """Equal rows of one chunk arrive as often as they are there: the database numbers them."""

    class Numbered(ScriptedLoad):
        def batches(self, table: Any, chunk: Any, ts: int) -> Any:
            for number, batch in enumerate(super().batches(table, chunk, ts)):
                yield replace(batch, row_ids=pa.array([number], pa.int64()))

    script = Script()
    script.ddl("shop", "CREATE DATABASE shop")
    script.ddl("shop.bare", "CREATE TABLE shop.bare (id INT, v VARCHAR(20))")
    for _ in range(5):
        script.commit(put("shop.bare", id=1, v="same"))
    script.resolve()
    lake, _, _ = run(tmp_path, mode, script=script, load=Numbered(script, script.marks[0]))
    assert len(tables(lake)["shop.bare"]) == 5


class Noting(LocalTasks):
    """Tasks that note the jobs of each run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[str, int]] = []

    def run(self, work: Any, jobs: Sequence[Any]) -> list[Any]:
        self.runs.append((work.keywords["work"].__name__, len(jobs)))
        return super().run(work, jobs)


def test_a_task_each_chunk_and_a_commit_each_table(tmp_path: Path) -> None:
    """Chunks are written side by side, and a table of several has one commit, with the position of the round."""
    lake, tasks, load = run(tmp_path, tasks=Noting())
    chunks = len(load.load_plan.chunks)
    assert tasks.runs[:3] == [("run_unit", 4), ("write_part", chunks), ("run_unit", 4)]
    table = stored(lake, "shop.t")
    added = [action["add"] for action in deltalog.actions(table.uri, 1) if "add" in action]
    assert len(added) == -(-ROWS // 3)
    assert max(deltalog.load(table.uri, 1).txns("feed")) == load.load_plan.ts
    bounds = [(file.lows["id"], file.highs["id"]) for file in deltalog.load(table.uri, 1).files()]
    assert bounds == sorted(bounds) == [(0, 2), (3, 5), (6, 8), (9, 9)]


@pytest.mark.parametrize("mode", MODES)
def test_each_table_is_shown_once_it_is_whole(tmp_path: Path, mode: Mode) -> None:
    """With `load-publish=table` a snapshot below S has the tables whose last chunk is in, as of S; one without a chunk
    is there at once. From S on the lake is as if all had been shown together."""
    lake, _, load = run(tmp_path / "one", mode, by_table=True, rows=CHUNK_ROWS)
    assert shown(lake, load.load_plan.ts) == [
        ("shop.none",), ("shop.none", "shop.t"), ("shop.bare", "shop.none", "shop.t"),
    ]  # fmt: skip
    together, _, _ = run(tmp_path / "together", mode, rows=CHUNK_ROWS)
    assert shown(together, load.load_plan.ts) == []
    assert tables(lake) == tables(together)


class Died(BaseException):
    """The end of a process."""


@pytest.mark.slow
@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize("place", ["load/rows-read", "load/files-written", "apply/rows-committed", "round/applied"])
def test_dies_anywhere(tmp_path: Path, place: str, *, by_table: bool) -> None:
    """Killed at its first, second, .. arrival at a place, a load goes on: nothing is lost and nothing twice."""
    whole, _, _ = run(tmp_path / "whole", "changelog")
    lives = 0

    def die() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Died

    for lives in range(1, 40):
        left = lives
        try:
            with armed({place: die}):
                _, _, load = run(tmp_path, "changelog", by_table=by_table, rows=CHUNK_ROWS if by_table else None)
            break
        except Died:
            continue
    assert lives > 1
    assert tables(tmp_path / "lake") == tables(whole)
    assert bool(shown(tmp_path / "lake", load.load_plan.ts)) is by_table


@pytest.mark.parametrize("times", [1, READ_TRIES])
def test_a_chunk_is_tried_again(tmp_path: Path, times: int) -> None:
    """A read that fails is tried again, in its task and then with its round; no row is there twice."""
    whole, _, _ = run(tmp_path / "whole")
    reads = 0

    def fail() -> None:
        nonlocal reads
        reads += 1
        if 2 <= reads < 2 + times:
            raise SourceError("the server went away")

    with armed({"load/rows-read": fail}):
        lake, tasks, _ = run(tmp_path, tasks=Noting())
    assert tables(lake) == tables(whole)
    assert [work for work, _ in tasks.runs].count("write_part") == (1 if times < READ_TRIES else 2)


def test_iceberg_metadata(tmp_path: Path) -> None:
    """Each version that a load publishes has its metadata, those of tables that are shown before S among them."""
    lake, _, load = run(tmp_path, iceberg=True, by_table=True, rows=CHUNK_ROWS)
    options, early = DeltaOptions(root=str(lake), feed="feed"), 0
    for snapshot in snapshots.kept_snapshots(options):
        early += snapshot.checkpoint.ts < load.load_plan.ts
        for incarnation, table in snapshot.tables.items():
            home = Path(options.table_uri(incarnation), "metadata")
            assert (home / f"v{table.version + 1}.metadata.json").exists()
    assert early


@pytest.mark.parametrize("by_table", [False, True])
def test_a_refused_chunk_parks_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_table: bool) -> None:
    """A table one of whose chunks is refused parks with none of its rows, and comes later with all; others go on."""

    class Refusing(ScriptedLoad):
        refuses = True

        def batches(self, table: Any, chunk: Any, ts: int) -> Any:
            if self.refuses and table.name.table == "t" and chunk.lower == ("3",):
                raise SchemaError("t is odd").at(table="shop.t")
            yield from super().batches(table, chunk, ts)

    script = story()
    load = Refusing(script, script.marks[0])
    how: Any = {"load": load, "table_error": "park", "by_table": by_table, "rows": CHUNK_ROWS if by_table else None}
    lake, _, _ = run(tmp_path, **how)
    snapshot = Lake(str(lake)).snapshot
    assert [group.names for group in snapshot.parked] == [("shop.t",)]
    assert "t is odd" in snapshot.parked[0].message
    found = tables(lake)
    assert {name: len(rows) for name, rows in found.items()} == {"shop.bare": ROWS + 1, "shop.none": 0, "shop.one": 1}

    load.refuses = False
    monkeypatch.setattr(snapshots, "LOOK_S", 0.0)
    snapshots.ask(DeltaOptions(root=str(lake), feed="feed"), snapshot, ())
    run(tmp_path, **how)
    whole, _, _ = run(tmp_path / "whole")
    assert tables(lake) == tables(whole)


@pytest.mark.parametrize("lost", [False, True])
def test_s_is_held_for_a_parked_table(tmp_path: Path, *, lost: bool) -> None:
    """A restart holds S, and trims nothing, while a table is parked below it; where S is gone the others go on."""

    class Refusing(ScriptedLoad):
        def batches(self, table: Any, chunk: Any, ts: int) -> Any:
            if table.name.table == "t":
                raise SchemaError("t is odd").at(table="shop.t")
            yield from super().batches(table, chunk, ts)

    class Held(LoadGuard):
        entered, left = 0, 0

        def __enter__(self) -> Any:
            if lost:
                raise HistoryLost("S is gone")
            self.entered += 1
            return self

        def __exit__(self, *_error: object) -> None:
            self.left += 1

    class Untrimmed(ScriptedSource):
        def release(self, checkpoint_ts: int) -> None:
            raise AssertionError(checkpoint_ts)

    script, held = story(), Held()
    load = Refusing(script, script.marks[0])
    run(tmp_path, load=load, table_error="park", stream=Untrimmed)
    run(tmp_path, load=load, table_error="park", guard=lambda _: held, stream=Untrimmed)
    assert (held.entered, held.left) == (not lost, not lost)
    assert Lake(str(tmp_path / "lake")).snapshot.checkpoint.ts == script.ts


def test_files_for_another_position(tmp_path: Path) -> None:
    """Files are for the table as it stood when they were written: behind another commit of rows they are not used."""
    script = story()
    load = ScriptedLoad(script, script.marks[0])
    table = load._state.of("shop.t")
    part = WrittenPart(table, 10, (10, 0), ())
    written = WrittenLoad(load, 20, 10, 20, (), written={table.incarnation: [part]})
    assert written.files_of(table, (10, 0), ()) == [part]
    with pytest.raises(deltalog.CommitConflict, match=r"shop\.t"):
        written.files_of(table, (15, 0), ())


def test_small_chunks_are_read_together(tmp_path: Path) -> None:
    """Chunks follow each other in one file up to the rows of a chunk; the steps cover the range without a gap."""
    script = story()
    load = ScriptedLoad(script, script.marks[0])
    table = next(one for one in load.load_plan.tables if one.name.table == "t")
    rows = [CHUNK_ROWS // 3, CHUNK_ROWS // 3, CHUNK_ROWS // 2, CHUNK_ROWS * 2, 0, 1]
    parts = tuple(Part(11 + at, table, load.load_plan.chunks[0], count, 1) for at, count in enumerate(rows))
    changes = LoadChanges(load, 20, 10, 20, parts)
    definition = load._state.of("shop.t")
    found = list(changes.split(Rows(definition, 10, 20)))
    steps = [step for unit in found for step in unit.row_steps]
    assert [(step.after, step.upto) for step in steps] == [(10, 12), (12, 13), (13, 14), (14, 20)]
    assert [unit.rows for unit in found] == [2 * (CHUNK_ROWS // 3), CHUNK_ROWS // 2, CHUNK_ROWS * 2, 1]
    assert list(changes.split(Rows(definition, 20, 30))) == []
