"""One bit that is flipped in a stored value, of each type, in a MariaDB and in the files of a lake."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.mariadb import Server
from tests.source.load.feeds import finished
from tests.verify.conftest import embedded
from tests.verify.shop import ROWS, filled, now_ts, stand, verified
from tidegate.cli.main import main
from tidegate.config.load import load

pytestmark = pytest.mark.slow
FIRST = 100
FLIPS = {
    "f": "0.099999994",
    "g": "1.0000000000000002e20",
    "j": """'{"aa": [1, 3], "b": 1.0}'""",
    "b": "x'01ff'",
    "c": "x'03'",
    "bits": "2",
    "wide": "18446744073709551614",
    "y": "2001",
    "z": "4",
    "d": "1.51",
    "e": "'a'",
    "s": "'y'",
    "ts": "'2020-01-01 00:00:00.122'",
    "dt": "'2020-01-01 00:00:01'",
    "tm": "'-12:00:00.51'",
    "day": "'2020-01-02'",
    "utf": "'è'",
    "latin": "'è'",
    "other": "'Þ'",
    "short": "'cb'",
    "large": "x'FFFE01'",
    "body": "'u,x😀'",
    "i": "-4",
}
"""Each column of `shop.kinds` with a value that differs from the one of row 1 in the lowest bits."""
EXPECTED = [(FIRST + number, name) for number, name in enumerate(FLIPS)]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """An embedded TiDB with a row for each column, all with the values of row 1, and its change log."""
    log = tmp_path_factory.mktemp("log")
    with embedded(log) as upstream:
        fill(upstream)
        yield upstream, log


def fill(server: Server) -> None:
    """Leave a server with the shop, and a row for each column."""
    filled(server)
    server.run(*(re.sub(r"\(1,", f"({FIRST + number},", ROWS[0], count=1) for number in range(len(FLIPS))))


def found(lines: list[str]) -> list[tuple[int, str]]:
    """Rows and columns of which a value differs, and nothing else does."""
    matches = [re.match(r"value \[(\d+)\] (\w+): ", line) for line in lines]
    return sorted((int(match[1]), match[2]) for match in matches if match)


def test_mariadb(logged: tuple[Server, Path], mariadb: Server) -> None:
    """Each row that an UPDATE has changed is found, with its column."""
    upstream, _ = logged
    fill(mariadb)
    stand(mariadb, now_ts(upstream))
    address = f"tidb://root@127.0.0.1:{upstream.port}/"
    assert verified(mariadb, address).wrong == {}
    mariadb.run(*(f"UPDATE shop.kinds SET {name} = {FLIPS[name]} WHERE id = {id_}" for id_, name in EXPECTED))
    wrong = verified(mariadb, address, "--limit", "100").wrong
    assert wrong.keys() == {"shop.kinds"}
    assert found(wrong["shop.kinds"]) == [*EXPECTED, (EXPECTED[-1][0], "kept")]
    assert len(wrong["shop.kinds"]) == len(FLIPS) + 1, "a stored generated column goes with its own"


def test_lake(logged: tuple[Server, Path], tmp_path: Path) -> None:
    """Each value of a data file in which the lowest bit of its first byte is another is found."""
    upstream, log = logged
    lake = f"delta://{tmp_path / 'lake'}"
    finished(load(source_uri=f"tidb://{log}", sink_uri=lake, name="flipped"), now_ts(upstream))
    words = ["verify", str(tmp_path / "lake"), "--upstream", f"tidb://root@127.0.0.1:{upstream.port}/", "--limit", "99"]
    words += ["--filter", "shop.kinds"]
    equal = CliRunner().invoke(main, words)
    assert equal.exit_code == 0, equal.output
    flipped = [name for path in (tmp_path / "lake" / "tables").rglob("*.parquet") for name in flip(path)]
    assert sorted(flipped) == sorted(FLIPS)
    lines = CliRunner().invoke(main, words).stdout.splitlines()
    shown = [re.match(r"    row \((\d+)\) column (\w+): ", line) for line in lines if line.startswith("    ")]
    assert sorted((int(match[1]), match[2]) for match in shown if match) == EXPECTED
    assert (len(shown), lines[-1]) == (len(FLIPS), "1 of 1 tables differ")


def test_a_log(logged: tuple[Server, Path], tmp_path: Path) -> None:
    """A table without a key, of which a lake keeps a log, is compared by the rows that exist."""
    upstream, log = logged
    upstream.run(
        "CREATE TABLE shop.keyless (page VARCHAR(20), n INT)",
        *["INSERT INTO shop.keyless VALUES ('home', 1), ('cart', 2), ('pay', NULL)"] * 2,
        "UPDATE shop.keyless SET n = 3 WHERE page = 'home' LIMIT 1",
        "DELETE FROM shop.keyless WHERE page = 'cart' LIMIT 1",
    )
    finished(load(source_uri=f"tidb://{log}", sink_uri=f"delta://{tmp_path}", name="logged"), now_ts(upstream))
    words = ["verify", str(tmp_path), "--upstream", f"tidb://root@127.0.0.1:{upstream.port}/", "--filter", "*.keyless"]
    equal = CliRunner().invoke(main, words)
    assert equal.exit_code == 0, equal.output
    paths = [path for path in (tmp_path / "tables").rglob("*.parquet") if "page" in pq.read_schema(path).names]
    for path in paths:
        rows = pq.read_table(path)
        if "_tidegate_op" in rows.column_names:
            pq.write_table(rows.filter(pa.array([op != "D" for op in rows.column("_tidegate_op").to_pylist()])), path)
    lines = CliRunner().invoke(main, words).stdout.splitlines()
    assert [line.strip() for line in lines if "row (" in line] == ["extra row ('cart', 2)"]


def flip(path: Path) -> list[str]:
    """Flip a bit of each column in the row that is the column's; return the columns."""
    table, flipped = pq.read_table(path), []
    if "wide" not in table.column_names:
        return []
    ids = [int(id_) for id_ in table.column("id").to_pylist()]
    for id_, name in EXPECTED:
        if id_ in ids:
            index = table.column_names.index(name)
            values = one_bit(table.column(name).combine_chunks(), ids.index(id_))
            table = table.set_column(index, table.schema.field(index), values)
            flipped.append(name)
    pq.write_table(table, path)
    return flipped


def one_bit(values: pa.Array, row: int) -> pa.Array:
    """The values with the lowest bit of a row's first byte flipped."""
    valid, *others = values.buffers()
    data = np.frombuffer(others.pop(), np.uint8).copy()
    first = np.frombuffer(others[0], np.int32)[row] if others else row * values.type.bit_width // 8
    data[first] ^= 1
    return pa.Array.from_buffers(values.type, len(values), [valid, *others, pa.py_buffer(data)])
