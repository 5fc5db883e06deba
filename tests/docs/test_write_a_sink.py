"""The sink on the page keeps the contract, as the page says, and is as short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate
from tests.source.tidb.kit import recorded_log
from tidegate.engine.ports import LocalTasks

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)


def blocks() -> dict[str, str]:
    """The files that the page shows."""
    return dict(BLOCK.findall((ROOT / "docs" / "write-a-sink.md").read_text()))


@pytest.mark.slow
def test_the_sink_of_the_page_passes_the_suite(tmp_path):
    """Every case of the contract suite passes, run as a user would run it."""
    for name, text in blocks().items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    ran = subprocess.run(
        [*command, "-c", os.devnull, "test_json_lines.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert ran.returncode == 0, ran.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) > 35


def test_a_changefeed_takes_it(tmp_path, monkeypatch):
    """The changefeed of the page carries a recorded log into its files, and a second run has nothing to do."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "json_lines.py").write_text(blocks()["json_lines.py"])
    recorded_log(tmp_path / "log", "partition")
    from json_lines import JsonLinesSink

    feed = tidegate.Changefeed(
        f"tidb://{tmp_path}/log",
        lambda checkpoints: JsonLinesSink(tmp_path / "lines", checkpoints),
        state_dir=tmp_path / "state",
    )
    done = [feed.run(tasks=LocalTasks(), idle_s=0) for _ in range(2)]

    lines = {path.stem: path.read_text().splitlines() for path in (tmp_path / "lines").glob("*.jsonl")}
    assert sum(map(len, lines.values())) == done[0].rows + done[0].ddls
    assert len(lines["ddl"]) == done[0].ddls > 0
    assert (done[1].resumed, done[1].rows) == (True, 0)


def test_the_page_is_short():
    """A sink of events takes at most 100 lines to explain, one that keeps rows at most 150 more."""
    page = (ROOT / "docs" / "write-a-sink.md").read_text()
    events, rows = page.split("## A sink that keeps rows")

    assert len(events.splitlines()) <= 100
    assert len(rows.splitlines()) <= 150
