"""Dropped tables: there to be recovered for as long as promised, then gone, and honestly so."""

import contextlib
import dataclasses
import time
from pathlib import Path

import pytest

from tests.sink.delta.small import Small
from tests.sink.delta.tended import NO_MERCY
from tidegate.engine.retention import PURGED, Limits
from tidegate.lakes.lake import Lake
from tidegate.model.errors import SinkRefused
from tidegate.objectstore import stores as lifespan
from tidegate.testing.contract.sinks import Died

HOUR_MS = 3_600_000


def dropped(root: Path, limits: Limits = NO_MERCY, how: str = "DROP TABLE t") -> Small:
    """A feed whose table `t` held two rows and is gone since ts 30."""
    feed = Small(root, limits)
    feed.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    feed.rows.insert(11, id=1, v=1)
    feed.rows.insert(12, id=2, v=2)
    feed.round(20)
    feed.ddl(30, how)
    feed.round(40)
    return feed


def later_ms() -> int:
    """A second from now: whatever was done before lies in another millisecond."""
    return int(time.time() * 1000) + 1000


def directories(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "tables").iterdir())


def test_recovered_in_time(tmp_path):
    """Within recover-retention a dropped table comes back with its rows, however often the lake was tended."""
    feed = dropped(tmp_path, dataclasses.replace(NO_MERCY, recover_ms=HOUR_MS))
    for upto in (41, 42, 43):
        feed.tend()
        feed.round(upto)
    feed.ddl(50, "RECOVER TABLE t")
    feed.rows.insert(51, id=3, v=3)
    feed.round(60)
    feed.tend()

    assert Lake(str(tmp_path)).arrow("s.t").num_rows == 3
    assert list((tmp_path / "_tidegate" / "retired").iterdir()) == []


def test_recovered_too_late(tmp_path):
    """Purged only after the published state has forgotten it; a RECOVER after that stops the feed with the reason."""
    feed = dropped(tmp_path)
    feed.tend()
    assert feed.tend(later_ms()).retired == directories(tmp_path)
    assert feed.tend(later_ms()).purged == []
    feed.round(45)
    assert list(feed.sink.snapshot.retired.values()) == [PURGED]
    assert len(feed.tend(later_ms()).purged) == 1
    assert directories(tmp_path) == []

    feed.start(NO_MERCY)
    feed.ddl(50, "RECOVER TABLE t")
    with pytest.raises(SinkRefused, match=r"table s\.t comes back at ts 50 .*recover-retention"):
        feed.round(60)


def test_dropped_with_its_database(tmp_path):
    """What cannot be recovered does not wait for recover-retention, and leaves no trace in the state."""
    feed = dropped(tmp_path, dataclasses.replace(NO_MERCY, recover_ms=HOUR_MS), "DROP DATABASE s")
    for upto in (41, 42, 43):
        feed.tend()
        feed.round(upto)

    assert feed.sink.snapshot.retired == {}
    feed.tend()
    assert directories(tmp_path) == []


def test_a_kept_snapshot_keeps_its_dropped_tables(tmp_path):
    """As long as a snapshot shows a table, it can be read there, dropped or not."""
    feed = dropped(tmp_path, dataclasses.replace(NO_MERCY, snapshot_ms=HOUR_MS))
    for upto in (41, 42, 43):
        feed.tend()
        feed.round(upto)

    assert Lake(str(tmp_path), 20).arrow("s.t").num_rows == 2


def test_a_forgotten_snapshot_is_readable_for_the_grace(tmp_path):
    """Who opened a snapshot before it was forgotten reads on until the grace is over; then its files are gone."""
    feed = dropped(tmp_path, dataclasses.replace(NO_MERCY, reader_grace_ms=HOUR_MS))
    reader = Lake(str(tmp_path), 20)
    assert reader.snapshot.number == 0
    for upto in (41, 42, 43):
        feed.tend()
        feed.round(upto)

    assert reader.arrow("s.t").num_rows == 2
    assert Lake(str(tmp_path)).at("latest").tables() == []

    later_ms = int(time.time() * 1000) + 2 * HOUR_MS
    for upto in (44, 45, 46):
        feed.tend(later_ms)
        feed.round(upto)
    assert directories(tmp_path) == []


@pytest.mark.parametrize("survivors", range(12))
def test_killed_while_purging(tmp_path, monkeypatch, survivors):
    """A purge that dies after any number of deletions is finished by the next life."""
    feed = dropped(tmp_path)
    feed.tend()
    feed.tend(later_ms())
    feed.round(45)
    assert list(feed.sink.snapshot.retired.values()) == [PURGED]
    delete, left = lifespan.obstore.delete, [survivors]

    def mortal(store, paths) -> None:
        if left[0] == 0:
            raise Died
        left[0] -= 1
        delete(store, paths)

    monkeypatch.setattr(lifespan.obstore, "delete", mortal)
    with contextlib.suppress(Died):
        feed.tend(later_ms())
    monkeypatch.undo()
    feed.start(NO_MERCY)
    feed.tend(later_ms())
    feed.tend(later_ms())

    assert directories(tmp_path) == []


def test_a_table_ahead_of_its_snapshot_is_left_alone(tmp_path):
    """A table that a dead round made is not touched before the orphans' grace, and going on finds it as it was."""
    limits = dataclasses.replace(NO_MERCY, orphan_grace_ms=HOUR_MS)
    feed = Small(tmp_path, limits)
    feed.ddl(10, "CREATE TABLE a (id INT PRIMARY KEY)", "a")
    feed.round(15)
    before = feed.sink.snapshot
    feed.ddl(20, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    feed.rows.insert(21, id=1, v=1)
    feed.round(30)
    (tmp_path / "_tidegate" / "snapshots" / f"{1:020d}.json").unlink()
    feed.start(limits)
    assert feed.sink.snapshot.number == before.number

    feed.tend()
    assert len(directories(tmp_path)) == 2
    feed.tend(int(time.time() * 1000) + 2 * HOUR_MS)
    assert len(directories(tmp_path)) == 1
    feed.round(30)

    assert Lake(str(tmp_path)).arrow("s.t").num_rows == 1
