"""What a sink holds does not grow with the rows of a round."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.redis_server import program

BENCH = Path(__file__).parents[2] / "benchmarks" / "sinks.py"
ROWS = 200_000
MORE = 1.1


@pytest.mark.slow
@pytest.mark.more
def test_twice_the_rows_need_no_more() -> None:
    """Files and a Redis: a process that writes twice as many rows holds about as much as one that writes half of
    them."""
    program()
    words = [sys.executable, str(BENCH), "--memory", "--only", "csv", "redis", "--rows", str(ROWS), "--json"]

    told = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=280)

    found = json.loads(told.stdout)
    assert set(found) == {"csv", "redis"}
    assert [name for name, (once, twice) in found.items() if twice > MORE * once] == [], found
