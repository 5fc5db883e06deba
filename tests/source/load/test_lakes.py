"""A load of an embedded TiDB into a lake that shows each table once it is whole, killed after each round, with work and
DDLs amid it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.source.load.kit import Loaded
from tidegate.config.load import load
from tidegate.config.registry import sink_of, source_of
from tidegate.engine.ports import RoundLimit
from tidegate.engine.progress import Progress
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError
from tidegate.sink.delta import snapshots
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow

TABLES = (
    "CREATE DATABASE shown",
    "CREATE TABLE shown.a (id INT PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE shown.b (name VARCHAR(9) PRIMARY KEY NONCLUSTERED, v INT)",
    "CREATE TABLE shown.c (v INT)",
    "CREATE TABLE shown.d (id INT PRIMARY KEY)",
    f"INSERT INTO shown.a VALUES {', '.join(f'({n}, {n % 5})' for n in range(30))}",
    f"INSERT INTO shown.b VALUES {', '.join(f'({n}, {n})' for n in range(20))}",
    "INSERT INTO shown.c VALUES (1), (1), (NULL)",
)


class Stopped(BaseException):
    """The end of a process."""


def test_a_table_is_shown_as_of_s(upstream: Loaded, tmp_path: Path) -> None:
    """Whoever reads the lake amid the load finds whole tables alone, each with exactly the rows of S, whatever the
    upstream has done since; the load goes on behind the snapshot that is there."""
    for statement in TABLES:
        upstream.run(statement)
    root = str(tmp_path / "lake")
    address = f"mysql://root@127.0.0.1:{upstream.port}/?enable-tls=false&chunk-rows=8&load-publish=table"
    config = load(
        load_mode="only",
        load_from=f"{address}&load-target=truncate",
        sink_uri=f"delta://{root}",
        rules=["shown.*"],
        name="shown",
    )
    seen: list[tuple[str, ...]] = []

    def dies(progress: Progress) -> None:
        if progress.load and 0 < progress.load.chunks_done < progress.load.chunks:
            newest = snapshots.latest(sink.options)
            names = tuple(sorted(str(table.name) for table in newest.tables.values()))
            if names and names not in seen:
                seen.append(names)
                upstream.run("UPDATE shown.a SET v = 'later' WHERE id % 3 = 0")
                upstream.run("ALTER TABLE shown.d ADD COLUMN w INT")
                upstream.run("ALTER TABLE shown.d DROP COLUMN w")
                raise Stopped

    for _ in range(9):
        sink: Any = sink_of(config)
        sink.flush_policy = replace(sink.flush_policy, load_limit=RoundLimit(1, 1 << 30))
        try:
            done = run_here(source_of(config), sink, rules=config.rules, report=dies)
            break
        except Stopped:
            continue
    assert seen[0] == ("shown.a",), seen
    assert [len(tables) for tables in seen] == [*range(1, len(seen) + 1)]
    assert done.state == "finished"
    assert done.load is not None
    s = done.load.ts
    options = Lake(root).options
    kept = [snapshots.published(options, number) for number in snapshots.numbers(options)]
    early = [one for one in kept if one.checkpoint_ts < s]
    assert len(early) >= 3
    assert all(len(one.tables) < 4 for one in early)
    upstream.run(f"SET tidb_snapshot = '{s}'")
    try:
        for one in (*(snapshot.checkpoint_ts for snapshot in early), s):
            view = Lake(root, one)
            for name in view.tables():
                truth = sorted(str([*row]) for row in upstream.run(f"SELECT * FROM {name}"))
                rows = view.arrow(name).to_pylist()
                assert sorted(str([v for k, v in row.items() if k[0] != "_"]) for row in rows) == truth, (name, one)
    finally:
        upstream.run("SET tidb_snapshot = ''")
    assert Lake(root, s).tables() == ["shown.a", "shown.b", "shown.c", "shown.d"]


def test_tables_are_shown_one_by_one_in_lakes_alone(upstream: Loaded, tmp_path: Path) -> None:
    """Elsewhere rows are seen as they come, and `load-publish=table` is refused."""
    address = f"mysql://root@127.0.0.1:{upstream.port}/?enable-tls=false&load-publish=table"
    sink = f"sqlite://{tmp_path / 'one.db'}"
    config = load(load_mode="only", load_from=address, sink_uri=sink, name="one", state_dir=tmp_path)
    with pytest.raises(ConfigError, match="load-publish = table is for lakes: sqlite://"):
        source_of(config)
