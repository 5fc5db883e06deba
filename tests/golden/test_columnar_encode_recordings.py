"""Every recorded row event, in every recorded configuration, is written by columns as it is by rows."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.codec.columnar_rows import batch_of, by_columns, by_rows
from tests.golden.encode_kit import RecordedClaims, Run, encode, recorded, runs
from tests.golden.test_recordings import ids
from tidegate.codec import WireTable
from tidegate.codec.columnar import ColumnarEncoder
from tidegate.codec.neutral_read import EventLine
from tidegate.model.event import Delete, Insert, RowChange, Update

EVERY = [*recorded("codec"), *recorded("codec_newarch")]
QUICK = {"open_default", "canal_tidb_ext"}
Part = tuple[list[RowChange], WireTable, list[bytes | None]]


def slow_ones(path: Path) -> object:
    """All but one recording a protocol are slow."""
    quick = path.name.split(".")[0] in QUICK and path.parent.name == "types" and path.parent.parent.name == "codec"
    return pytest.param(path, id=ids(path), marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("path", [slow_ones(path) for path in EVERY])
def test_every_recorded_row(path: Path) -> None:
    """Messages, sizes, cuts and files of claim checks are those of the plain encoder, and so is what is refused."""
    for run in runs(path):
        _, errors, _ = encode(run, 7)
        lines = [(name, line) for name, line in run.events if isinstance(line.event, Insert | Update | Delete)]
        taken = parts_of(line for name, line in lines if name not in errors)
        here, there = (RecordedClaims(iter(run.case.files)) for _ in range(2))
        made = by_columns(taken, run.options, claims=here)
        assert made == by_rows(taken, run.options, claims=there), run.case.name
        assert here.files == there.files
        for rows, table, _ in parts_of(line for name, line in lines if name in errors):
            check_refused(run, rows, table)


def check_refused(run: Run, rows: list[RowChange], table: WireTable) -> None:
    """Each row alone raises what it raised as an event."""
    expected = [str(error) for error in encode(run, 7)[1].values()]
    for row in rows:
        encoder = ColumnarEncoder(run.options, claims=RecordedClaims(iter([])), few_rows=0)
        batch, row_ids = batch_of([row], table)
        with pytest.raises(Exception) as found:  # noqa: PT011 - compared with the recorded ones
            encoder.append(batch, table, row_ids=row_ids)
        assert str(found.value) in expected


def parts_of(lines: Iterable[EventLine]) -> list[Part]:
    """The rows of each table, in their order."""
    found: dict[tuple[object, ...], Part] = {}
    for line in lines:
        row, table = line.event, line.table
        assert isinstance(row, Insert | Update | Delete)
        assert table is not None
        part = found.setdefault((id(table), row.schema, row.table, row.pk_names), ([], table, []))
        part[0].append(row)
        part[2].append(line.row_key)
    return list(found.values())
