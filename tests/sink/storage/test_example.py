"""The example that reads a directory of files."""

import subprocess
import sys
from pathlib import Path

from tests.sink.storage.test_sink import live, orders, sink_of
from tidegate.testing.script import ScriptedSource, run_here

EXAMPLE = Path(__file__).parents[3] / "examples" / "storage_reader.py"


def called(home: Path) -> list[str]:
    """What the example prints."""
    words = [sys.executable, str(EXAMPLE), str(home / "out")]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


def test_a_reader(tmp_path: Path) -> None:
    """It tells DDLs and rows in commit order, and when it is called again what has come since."""
    story = orders(ddl="ALTER TABLE shop.orders ADD COLUMN n INT")
    run_here(ScriptedSource(story), sink_of(tmp_path), until=story.marks[0])
    first = called(tmp_path)
    live(tmp_path, story)

    create, table, alter = (ddl.commit_ts for ddl in story.ddls(story.ts))
    one, _, two, three = (row.commit_ts for row in story.rows(story.ts))
    assert first == [
        f"{create} shop. CREATE DATABASE shop",
        f"{table} shop.orders CREATE TABLE shop.orders (id INT PRIMARY KEY, v VARCHAR(9))",
        f"{one} shop.orders ('I', {{'id': '1', 'v': 'a'}})",
        f"{one} shop.orders ('I', {{'id': '2', 'v': '\\\\N'}})",
    ]
    assert called(tmp_path) == [
        f"{two} shop.orders ('D', {{'id': '1', 'v': 'a'}})",
        f"{two} shop.orders ('I', {{'id': '1', 'v': '\"q'}})",
        f"{alter} shop.orders ALTER TABLE shop.orders ADD COLUMN n INT",
        f"{three} shop.orders ('D', {{'id': '2', 'v': '\\\\N', 'n': '\\\\N'}})",
    ]
    assert called(tmp_path) == []
