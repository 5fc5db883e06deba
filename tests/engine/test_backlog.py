"""How much waits is told with its size in memory, however well it shrinks on disk."""

from pathlib import Path

import pyarrow as pa

from tests.lakes.stages import Play, truths
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.changelog.files import LANDED_SCHEMA, ChangeSlice, RowFiles, groups_of
from tidegate.engine.change import ROWS_SCHEMA, encode_layout
from tidegate.engine.ports import RoundLimit, round_end
from tidegate.model.event import Field, Insert
from tidegate.model.table import TableName


def test_row_groups_are_measured(tmp_path: Path) -> None:
    """Each row group counts with its rows, its range and its bytes, and a round ends where these are too many."""
    Play(tmp_path).land(truths()[0].ts, at_most=400)
    changelog = Changelog(changelog_uri(str(tmp_path)))
    changelog.refresh()
    whole = changelog.slice(0, truths()[0].ts)

    found = list(whole.row_ranges())

    size_bytes = sum(one.size_bytes for one in found)
    assert [(one.first_ts, one.last_ts, one.rows) for one in found] == [
        (group.min_ts, group.max_ts, group.rows) for group in whole.groups
    ]
    assert all(one.size_bytes for one in found)
    assert round_end(found, whole.upto, RoundLimit(1 << 40, size_bytes)) == whole.upto
    assert round_end(found, whole.upto, RoundLimit(1 << 40, size_bytes // 4)) < whole.upto


def test_what_shrinks_on_disk_counts_whole(tmp_path: Path) -> None:
    """A thousand rows with the same text of 10 KiB are 10 MiB to a round, though the file is a few KiB."""
    uri, text = str(tmp_path), "x" * 10_240
    layout = encode_layout(Insert(schema="s", table="t", commit_ts=5, fields=(Field("v", 15, 0),), after=(text,)))
    rows = pa.Table.from_pylist(
        [
            {"topic": "x", "partition": 0, "offset": at, "seq": 0, "commit_ts": 5, "op": "I", "schema": "s"}
            | {"table": "t", "layout": layout, "after": [text.encode()]}
            for at in range(1000)
        ],
        schema=ROWS_SCHEMA,
    )
    files = RowFiles(uri, flush_bytes=1 << 26)
    files.add([(TableName("s", "t"), rows.cast(LANDED_SCHEMA))])
    (file,) = files.close()
    landed = ChangeSlice(uri, 0, 9, groups_of(uri, file.path))

    (found,) = landed.row_ranges()

    assert file.size_bytes < 100_000
    assert found.size_bytes > 10_000_000
