"""The commands of docs/object-stores.md, as printed, on a server of S3."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.test_chain import Upstream
from tests.s3 import BUCKET, environment, serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"^\$ tidegate (.+)$", (ROOT / "docs" / "object-stores.md").read_text(), re.MULTILINE)
SINK = "def write(batch):\n    with open('written', 'a') as file:\n        print(batch.table, file=file)\n"


@pytest.mark.more
def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends well; a lake and a state directory lie in the store, and both are told of."""
    upstream = Upstream(1, tmp_path / "log")
    upstream.run("INSERT INTO a (id, v, u) VALUES (1, 1, 1)")
    upstream.writer.write(empty=True)
    (tmp_path / "sinks.py").write_text(SINK)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{tmp_path}")
    told = []
    with serving(BUCKET) as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        for line in COMMANDS:
            words = [sys.executable, "-m", "tidegate", *shlex.split(line)]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            told.append(done.stdout)
    _, lake, tables, _, state = told
    assert "-> delta+s3://lakes/shop" in lake
    assert "test.a" in tables
    assert "-> callback://sinks/write" in state
    assert (tmp_path / "written").read_text()
