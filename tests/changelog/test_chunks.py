"""Landed rows as chunks: their parts, and the runs in which parts follow each other."""

from itertools import pairwise

import pytest

from tidegate.changelog import files
from tidegate.codec.columnar import RowTexts
from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.engine.change import Chunk
from tidegate.model.event import RowChange
from tidegate.model.table import TableName
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, landed


def in_runs(chunk: Chunk) -> list[RowChange]:
    """The rows of a chunk as its runs have them."""
    return [row for batch in chunk.runs() for row in events_of(batch)]


def chunk_of(story: Script, *, texts: bool) -> Chunk:
    """All rows of the script's one table in one chunk."""
    rows = landed(TableName("shop", "t"), story.rows(story.ts))
    (found,) = files.text_chunks(rows) if texts else files.chunks_of([rows])
    return found


@pytest.mark.parametrize("texts", [False, True])
def test_runs_are_in_commit_order(texts: bool) -> None:  # noqa: FBT001
    """Rows of two layouts alternate in runs as they were committed, though each layout is a part of its own."""
    story = stories.bare_deletes()
    chunk = chunk_of(story, texts=texts)
    assert len(chunk.parts) == 2
    assert isinstance(chunk.parts[0].batch.before, RowTexts) == texts
    assert in_runs(chunk) == story.rows(story.ts)
    layouts = [batch.fields for batch in chunk.runs()]
    assert all(one != other for one, other in pairwise(layouts)), "a run is cut without need"


def test_runs_of_one_layout_are_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that stands alone is a run as it is; parts of a large transaction follow each other."""
    story = stories.bare_deletes()
    del story.events[8:]
    chunk = chunk_of(story, texts=True)
    assert next(chunk.runs()) is chunk.parts[0].batch
    monkeypatch.setattr(files, "PART_BYTES", 1)
    rows = landed(TableName("shop", "t"), story.rows(story.ts))
    (chunk,) = files.chunks_of([rows], 100)
    assert len(chunk.parts) == len(chunk) == 6
    assert in_runs(chunk) == story.rows(story.ts)


def test_a_part_of_a_batch_has_all_its_columns() -> None:
    """What a source tells of each row stays with the row."""
    batch = chunk_of(stories.bare_deletes(), texts=False).parts[0].batch
    some = batch.part(1, batch.rows - 1)
    for name in ("message", "seq", "commit_ts", "op", "partition_id"):
        assert getattr(some, name).to_pylist() == getattr(batch, name).to_pylist()[1:-1]
    assert (some.positions.to_pylist(), some.start_ts) == (batch.positions.to_pylist()[1:-1], None)
    assert events_of(some) == events_of(batch)[1:-1]
