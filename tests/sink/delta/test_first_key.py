"""A table without a key gets one: what its log of changes tells becomes the rows that upstream has."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from tidegate.sink.delta.apply import RESHAPES

Row = tuple[int, int | None]
IMAGE = [("id", pa.int64()), ("c", pa.int64())]
CHANGES = pa.schema(
    [
        *IMAGE,
        ("_change_type", pa.string()),
        ("_commit_ts", pa.int64()),
        ("_commit_seq", pa.int32()),
        ("_commit_time", pa.timestamp("us", "UTC")),
    ]
)
LOG = pa.schema([*IMAGE, ("_tidegate_op", pa.string()), ("_tidegate_commit_ts", pa.int64())])


def lived(chance: random.Random) -> tuple[list[tuple[int, Row | None, Row | None]], Counter[Row]]:
    """Changes (ts, old, new) of a table with equal rows among its rows, none with the `id` of another at the end."""
    held: Counter[Row] = Counter()
    changes: list[tuple[int, Row | None, Row | None]] = []
    for ts in range(10, 50):
        old = chance.choice(sorted(held.elements(), key=str)) if held and chance.random() < 0.6 else None
        new = None if old and chance.random() < 0.5 else (chance.randrange(4), chance.choice([None, 1, 2]))
        changes.append((ts, old, new))
        held.update([new] if new else [])
        held.subtract([old] if old else [])
        held = +held
    seen = set[int]()
    for row in sorted(held.elements(), key=str):
        if row[0] in seen:
            changes.append((len(changes) + 100, row, None))
            held.subtract([row])
        seen.add(row[0])
    return changes, +held


def change_rows(changes: list[tuple[int, Row | None, Row | None]]) -> pa.Table:
    """Their log with both images."""
    rows = []
    for ts, old, new in changes:
        names = ("update_preimage", "update_postimage") if old and new else ("delete", "insert")
        rows += [(*image, name, ts, 0, None) for image, name in zip((old, new), names, strict=True) if image]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=CHANGES)


@pytest.mark.parametrize("seed", range(40))
def test_versions(seed: int) -> None:
    """The versions that are open are upstream's rows, however many equal ones there were and which of them left."""
    changes, held = lived(random.Random(seed))

    found = RESHAPES["CHANGES", "VERSIONS"](change_rows(changes), ["id"]).to_pylist()

    still = Counter((row["id"], row["c"]) for row in found if row["_valid_to"] is None)
    assert still == held
    assert len(found) == sum(new is not None for _, _, new in changes)
    assert all(row["_valid_to"] is None or row["_valid_to"] > row["_valid_from"] for row in found)


@pytest.mark.parametrize("seed", range(40))
def test_rows(seed: int) -> None:
    """So are the rows of a log, as long as nothing was updated."""
    changes, held = lived(random.Random(seed))
    split = [(ts, *images) for ts, old, new in changes for images in ((old, None), (None, new)) if any(images)]
    rows = [(*(old or new or ()), "D" if old else "I", ts) for ts, old, new in split]
    log = pa.table([list(column) for column in zip(*rows, strict=True)], schema=LOG)

    found = RESHAPES["LOG", "ROWS"](log, ["id"]).to_pylist()

    assert Counter((row["id"], row["c"]) for row in found) == held


@pytest.mark.parametrize("op", ["I", "U"])
def test_rows_of_an_earlier_key(op: str) -> None:
    """Rows that were stored while the table had a key are there before what its log says."""
    rows = [(7, 1, None, None), (8, 1, None, None), (9, 1, "I", 20), (8, 1, "D", 30), (9, 1, "D", 40), (9, 2, op, 40)]
    log = pa.table([list(column) for column in zip(*rows, strict=True)], schema=LOG)

    found = RESHAPES["LOG", "ROWS"](log, ["id"]).to_pylist()

    assert sorted((row["id"], row["c"]) for row in found) == [(7, 1), (9, 2)]


def test_a_table_without_rows() -> None:
    """An empty log tells of no rows, and of no versions."""
    assert RESHAPES["LOG", "ROWS"](LOG.empty_table(), ["id"]).num_rows == 0
    assert RESHAPES["CHANGES", "VERSIONS"](CHANGES.empty_table(), ["id"]).num_rows == 0


def test_logs_that_do_not_tell_which_row_was_changed() -> None:
    """An UPDATE without its old image is taken for one of the row with the same key."""
    rows = [(5, 1, "I", 10), (5, 2, "U", 20), (6, 1, "I", 30), (6, 1, "D", 40)]
    log = pa.table([list(column) for column in zip(*rows, strict=True)], schema=LOG)
    changes = pa.table([[5, 5], [1, 2], ["insert", "update_postimage"], [10, 20], [0, 0], [None, None]], schema=CHANGES)

    (row,) = RESHAPES["LOG", "ROWS"](log, ["id"]).to_pylist()
    versions = RESHAPES["CHANGES", "VERSIONS"](changes, ["id"]).to_pylist()

    assert (row["id"], row["c"]) == (5, 2)
    assert [(each["c"], each["_valid_to"]) for each in versions] == [(1, 20), (2, None)]
