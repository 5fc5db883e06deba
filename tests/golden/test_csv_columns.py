"""Every recorded row event is written as csv by columns as it is by rows."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.codec.columnar_rows import batch_of
from tests.golden.encode_kit import recorded, runs
from tests.golden.test_columnar_encode_recordings import parts_of
from tidegate.codec.columnar.encode.csv import CsvColumns
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.csv import CsvEncoder, CsvOptions
from tidegate.model.errors import CsvEncodeFailed
from tidegate.model.event import Delete, Insert, Update

OPTIONS: Mapping[str, dict[str, Any]] = {
    "default": {},
    "everything": {"include_commit_ts": True, "output_old_value": True, "binary_encoding_method": "hex"},
    "other characters": {"delimiter": "|+", "quote": "'", "null": "", "terminator": "\n", "include_commit_ts": True},
    "a zone": {"time_zone": "Asia/Shanghai"},
}


def types() -> Path:
    """The recording of all types."""
    (found,) = (one for one in recorded("codec") if one.match("types/canal_tidb_ext.*"))
    return found


@pytest.mark.parametrize("options", OPTIONS)
def test_every_recorded_row(options: str) -> None:
    """Lines are those of the plain encoder for every type and value; what has no line has none by columns either."""
    told = CsvOptions(**OPTIONS[options])
    (path,) = (
        one for one in recorded("codec") if one.name.startswith("canal_tidb_ext.") and one.parent.name == "types"
    )
    events = chain.from_iterable(run.events for run in runs(path))
    lines = [line for _, line in events if isinstance(line.event, Insert | Update | Delete)]
    compared = 0
    for rows, table, _ in parts_of(lines):
        batch, _ = batch_of(rows, table)
        try:
            expected = [CsvEncoder(told).row(row, table) for row in rows]
        except CsvEncodeFailed:
            with pytest.raises((CsvEncodeFailed, Mismatch)):
                CsvColumns(batch.schema, batch.table, table, told).lines(batch)
            continue
        assert CsvColumns(batch.schema, batch.table, table, told).lines(batch).to_pylist() == expected
        compared += len(rows)
    assert compared > 100


def test_without_a_quote() -> None:
    """Escaped texts are written row by row."""
    (path,) = (
        one for one in recorded("codec") if one.name.startswith("canal_tidb_ext.") and one.parent.name == "types"
    )
    line = next(line for run in runs(path) for _, line in run.events if isinstance(line.event, Insert))
    assert line.table is not None
    with pytest.raises(Mismatch):
        CsvColumns("s", "t", line.table, CsvOptions(quote=""))
