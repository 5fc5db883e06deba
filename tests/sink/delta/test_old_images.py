"""The log of a table without a key keeps the old images of UPDATEs, through DDLs and until the table gets a key."""

import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.sink.delta.lake import INT, TEXT, Rows, column, options, run, stored, table
from tests.sink.delta.test_first_key import lived
from tidegate.engine.plan import Alter, Create, Exchange, Trim
from tidegate.engine.plan import Rows as Apply
from tidegate.model.errors import SinkError
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType, PartitionDef, PartitionInfo, TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.failpoint import arm, parse_failpoints
from tidegate.sink.delta import columns as stored_as
from tidegate.sink.delta.columns import ARROW_TYPES, LakeColumn, arrow_type
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.rows import packed, unpacked

KEYLESS = table(column(1, "id"), column(2, "v", TEXT), key=())
KEYED = table(column(1, "id"), column(2, "v", TEXT), version=60)
RANGES = PartitionInfo(
    "RANGE", expr="`id`", definitions=(PartitionDef("p0", ("10",)), PartitionDef("p1", ("MAXVALUE",)))
)

Line = tuple[int, str | None, str, int, dict[str, str] | None]


def log(lake: DeltaOptions, incarnation: str = "t-1") -> list[Line]:
    """(id, v, operation, ts, old image) of every line, in order of time."""
    rows = stored(lake, incarnation)
    texts = [row["_tidegate_before"] for row in rows]
    lines = [
        (row["id"], row.get("v"), row["_tidegate_op"], row["_tidegate_commit_ts"], text and msgspec.json.decode(text))
        for row, text in zip(rows, texts, strict=True)
    ]
    return sorted(lines, key=lambda line: (line[3], line[2], line[0]))


def moved(tmp_path: Path, info: TableInfo = KEYLESS) -> tuple[DeltaOptions, Rows]:
    """A table with one row that comes as (5, a) and becomes (15, b)."""
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=5, v="a")
    rows.update(30, {"id": 5, "v": "a"}, id=15, v="b")
    run(lake, rows, Create(info, 10, 1), Apply(info, 10, 40))
    return lake, rows


def test_an_update_is_one_line_with_its_old_image(tmp_path: Path) -> None:
    """Readers who count lines or operations see what they saw before there were old images."""
    lake, _ = moved(tmp_path)

    assert log(lake) == [(5, "a", "I", 20, None), (15, "b", "U", 30, {"id": "5", "v": "a"})]


@pytest.mark.parametrize("seed", range(20))
def test_the_first_key_leaves_upstreams_rows(tmp_path: Path, seed: int) -> None:
    """Whatever came, was updated and left, keys moved and equal rows among them."""
    changes, held = lived(random.Random(seed))
    both = table(column(1, "id"), column(2, "c"), key=())
    keyed = table(column(1, "id"), column(2, "c"), version=900)
    lake, rows = options(tmp_path), Rows()
    for ts, old, new in changes:
        before, after = ({"id": image[0], "c": image[1]} if image else None for image in (old, new))
        if before and after:
            rows.update(ts, before, **after)
        elif after:
            rows.insert(ts, **after)
        elif before:
            rows.delete(ts, **before)
    cuts = [(5, 25), (25, 40), (40, 900)]
    run(lake, rows, Create(both, 5, 1), *(Apply(both, *cut) for cut in cuts), Alter(both, keyed, 900, 1))

    assert Counter((row["id"], row["c"]) for row in stored(lake, "t-1")) == held
    assert stored(lake, "t-1") == [] or set(stored(lake, "t-1")[0]) == {"id", "c"}


@pytest.mark.parametrize("place", ["apply/ddl-written", "apply/ddl-committed"])
def test_a_conversion_that_was_cut_off_is_done_once(tmp_path: Path, place: str) -> None:
    """A worker that dies before or behind the commit of the first key leaves nothing half done."""
    lake, rows = moved(tmp_path)
    before = arm(parse_failpoints(f"{place}=error:SinkError"))
    try:
        with pytest.raises(SinkError, match="failpoint"):
            run(lake, rows, Alter(KEYLESS, KEYED, 60, 1))
    finally:
        arm(before)
    rows.update(70, {"v": "b"}, id=15, v="c")
    run(lake, rows, Alter(KEYLESS, KEYED, 60, 1), Apply(KEYED, 60, 80))

    assert stored(lake, "t-1") == [{"id": 15, "v": "c"}]


def test_a_log_from_before_there_were_old_images(tmp_path: Path) -> None:
    """It goes on without them, gets them once a DDL changes its columns, and is folded by the first key as before."""
    late = pytest.MonkeyPatch()
    own = stored_as.own_columns
    late.setattr(stored_as, "own_columns", lambda info, mode: own(info, mode)[:2])
    lake, rows = moved(tmp_path)
    late.undo()
    rows.update(45, {"v": "b"}, id=15, v="c")
    run(lake, rows, Apply(KEYLESS, 40, 50))
    assert {tuple(row) for row in stored(lake, "t-1")} == {("id", "v", "_tidegate_op", "_tidegate_commit_ts")}

    wider = table(column(1, "id"), column(2, "v", TEXT), column(3, "w"), key=(), version=50)
    strict = msgspec.structs.replace(lake, schema_change="exception")
    same = msgspec.structs.replace(KEYLESS, version=50)
    assert len(stored_as.evolve(deltalog.load(lake.table_uri("t-1")), KEYLESS, same, strict).columns) == 5  # type: ignore[arg-type]
    run(lake, rows, Alter(KEYLESS, wider, 50, 1))
    rows.update(55, {"v": "c"}, id=15, v="d", w=1)
    run(lake, rows, Apply(wider, 50, 58))
    assert [line[4] for line in log(lake)] == [None, None, None, {"id": "15", "v": "c", "w": "1"}]

    keyed = table(column(1, "id"), column(2, "v", TEXT), column(3, "w"), version=60)
    run(lake, rows, Alter(wider, keyed, 60, 1))
    assert stored(lake, "t-1") == [{"id": 15, "v": "d", "w": 1}, {"id": 5, "v": "a", "w": None}]


def test_ddls_of_columns_move_old_images_too(tmp_path: Path) -> None:
    """Renamed, filled and converted as rows are, they are found again when the table gets its key."""
    lake, rows = moved(tmp_path)
    renamed = table(column(1, "nr"), column(2, "w", TEXT), key=(), version=40)
    filled = column(3, "k", INT, nullable=False, origin_default="7")
    more = table(column(1, "nr", ColumnType(MysqlType.LONGLONG)), column(2, "w", TEXT), filled, key=(), version=50)
    keyed = msgspec.structs.replace(more, version=60, indexes=table(column(1, "nr"), key=("nr",)).indexes)
    run(lake, rows, Alter(KEYLESS, renamed, 40, 1), Alter(renamed, more, 50, 1), Alter(more, keyed, 60, 1))

    assert stored(lake, "t-1") == [{"nr": 15, "w": "b", "k": 7}]


def test_past_values_that_a_new_type_cannot_hold(tmp_path: Path) -> None:
    """Upstream did not have to convert them any more: they become NULL, in rows of the log and in old images."""
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=5, v="no document")
    rows.update(30, {"v": "no document"}, id=5, v="[1]")
    kind = ColumnType(MysqlType.JSON)
    documents = table(column(1, "id"), column(2, "v", kind), key=(), version=40)
    keyed = table(column(1, "id"), column(2, "v", kind), version=60)
    run(lake, rows, Create(KEYLESS, 10, 1), Apply(KEYLESS, 10, 40), Alter(KEYLESS, documents, 40, 1))

    assert log(lake) == [(5, None, "I", 20, None), (5, "[1]", "U", 30, {"id": "5"})]
    run(lake, rows, Alter(documents, keyed, 60, 1))
    assert stored(lake, "t-1") == [{"id": 5, "v": "[1]"}]


def test_partitions_that_go_cut_updates_in_two(tmp_path: Path) -> None:
    """What stays of an UPDATE across the border is the DELETE or the INSERT that it was for the other partitions."""
    parted = msgspec.structs.replace(KEYLESS, partition=RANGES)
    for gone, left in (("p0", (15, "b", "I", 30, None)), ("p1", (5, "a", "D", 30, None))):
        lake, rows = moved(tmp_path / gone, parted)
        run(lake, rows, Trim(parted, parted, (gone,), 40, 1))
        assert log(lake)[-1] == left
        rows.insert(50, id=5, v="a")
        keyed = msgspec.structs.replace(KEYED, partition=RANGES)
        run(lake, rows, Apply(parted, 40, 55), Alter(parted, keyed, 60, 1))
        rest = [{"id": 15, "v": "b"}] if gone == "p0" else []
        assert stored(lake, "t-1") == [*rest, {"id": 5, "v": "a"}]


def test_an_exchange_takes_old_images_along(tmp_path: Path) -> None:
    """They are read by the columns of the table that they came from, and written by those of the one they come to."""
    parted = msgspec.structs.replace(KEYLESS, partition=RANGES)
    other = table(column(7, "v", TEXT), column(8, "id"), name="stage", key=())
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=5, v="a")
    rows.update(21, {"v": "a"}, id=5, v="b")
    rows.update(22, {"id": 5}, id=15, v="b")
    rows.update(23, {"v": "x"}, name="stage", v="y", id=3)
    made = (Create(parted, 10, 1), Create(other, 10, 2), Apply(parted, 10, 30), Apply(other, 10, 30))
    run(lake, rows, *made, Exchange(parted, "p0", other, 30, 1))

    assert log(lake) == [(15, "b", "I", 22, None), (3, "y", "U", 23, {"id": "3", "v": "x"})]
    assert log(lake, "stage-1") == [
        (5, "a", "I", 20, None),
        (5, "b", "U", 21, {"v": "a", "id": "5"}),
        (5, "b", "D", 22, None),
    ]


def test_every_type_comes_back_from_its_text() -> None:
    """Packed and unpacked, an image is what it was, in each type that a stored column can have."""
    moments = [datetime(1000, 1, 1, 0, 0, 0, 1, UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), None]
    values: dict[str, list[object]] = {
        **{name: [-128, 127, None] for name in ("byte", "short", "integer", "long")},
        "float": [0.1, -3.4e38, None],
        "double": [0.1, 5e-324, None],
        "string": ['"ü\\\n\x00', "", None],
        "binary": [b"\xff\x00", b"", None],
        "date": [date(1, 1, 1), date(9999, 12, 31), None],
        "timestamp": [*moments],
        "timestamp_ntz": [moment and moment.replace(tzinfo=None) for moment in moments],
        "decimal(20,0)": [Decimal(2**64 - 1), Decimal(0), None],
        "decimal(38,20)": [Decimal("-123456789012345678.12345678901234567891"), Decimal("1E-20"), None],
    }
    assert values.keys() >= ARROW_TYPES.keys()
    given = [LakeColumn(name, name, at, at, name) for at, name in enumerate(values, 1)]
    images = pa.table({name: pa.array(each, arrow_type(name)) for name, each in values.items()})

    assert unpacked(packed(images, given), given).equals(images)
