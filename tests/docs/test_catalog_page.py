"""The lines of docs/catalog.md for readers, run as they stand there but for the address and the table."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.lakes.catalog.served import made, served
from tests.readers import PYTHON, Readers

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "catalog.md"
DUCKDB = """
import sys
sys.path.insert(0, "tests")
from readers_program import session
duck = session()
for statement in {sql!r}.split(";")[:-1]:
    found = duck.execute(statement)
print(found.fetchall())
"""


def lines(language: str, uri: str) -> str:
    """The page's block of a language, for the catalog at `uri` and its table s.T."""
    [block] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return block.replace("http://127.0.0.1:8181", uri).replace("shop.orders", "s.T")


def ran(code: str) -> str:
    """What a program of the readers' environment prints."""
    done = subprocess.run([PYTHON, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_lines_for_readers(readers: Readers, tmp_path: Path) -> None:
    """PyIceberg, DuckDB and Spark read the table by the lines of the page."""
    made(tmp_path)
    with served(tmp_path) as client:
        python = lines("python", client.uri)
        called, last = python.rstrip().rsplit("\n", 1)
        iceberg = ran(f"{called}\nprint(({last}).num_rows)")
        duckdb = ran(DUCKDB.format(sql=lines("sql", client.uri)))
        start = "spark.sql.catalog.lake."
        told = [line.split() for line in PAGE.read_text().splitlines() if line.startswith(start)]
        properties = {name.removeprefix(start): value for name, value in told}
        [spark] = readers.tables("spark", properties | {"uri": client.uri}, ["s.T"])

    assert iceberg == "2\n"
    assert duckdb == "[(2,)]\n"
    assert properties == {"type": "rest", "uri": "http://127.0.0.1:8181", "warehouse": "lake@now"}
    assert spark.num_rows == 2
