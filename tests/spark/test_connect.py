"""A Connect server is the only Spark: jobs are done, a feed runs, and a lake is read through it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.more
def test_a_connect_server_alone(tmp_path: Path) -> None:
    """In a process of its own, where no classic session was ever begun."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connected", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])

    assert 'spark.conf.set("spark.sql.execution.pyspark.python", "./tidegate/bin/python")' in told["no tidegate"]
    assert '.config("spark.jars.packages", "io.delta:' in told["no delta"]
    assert told["slots"] == 2
    assert told["answers"] == [4, 0, 2]
    assert told["3"] == "offset 3 is gone"
    assert "ValueError: four" in told["4"]
    assert told["cancelled"]
    assert told["table"] == told["sql"] == told["live"] == told["format"] == told["upstream"]
    assert told["changes"] >= 2
