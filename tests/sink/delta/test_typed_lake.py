"""A lake fed straight from a change log, in typed columns, is the lake that the same log makes through a changelog."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.log_source import log_source
from tests.source.tidb.kit import recorded_log
from tests.source.tidb.test_landing import landed, landing
from tidegate.changelog.changelog import Changelog
from tidegate.engine.change import SourceDdl
from tidegate.engine.filter import TableFilter
from tidegate.engine.ports import Changes, LocalTasks
from tidegate.engine.segment import Planning, plan_landed, segment_end
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.files import read
from tidegate.sink.delta.options import DeltaOptions, Mode
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source import tidb_changes as log_changes

TASKS = LocalTasks()
Lake = dict[str, list[str]]


class Fed:
    """A lake that takes rounds as an engine gives them."""

    def __init__(self, root: Path, mode: Mode) -> None:
        self.sink = DeltaSink(DeltaOptions(root=str(root), feed="f", mode=mode))
        self.position = self.sink.recover()
        self.rows = 0
        self.paths: set[str] = set()

    def round(self, ddls: Sequence[SourceDdl], upto: int, changes: Changes) -> None:
        """The changes up to a ts."""
        at, state = self.position.checkpoint, self.position.state
        accept = TableFilter.parse(("*.*",)).matches
        planned = plan_landed(state, at, ddls, upto, changes, rules=Planning(accept))
        self.sink.admit(planned)
        results = self.sink.run(TASKS, planned.units, changes)
        self.rows += sum(result.rows for result in results)
        self.paths |= {path for result in results for path in result.path_counts.by_path()}
        self.position = self.sink.advance(planned, results)

    def held(self) -> Lake:
        """The stored rows of all tables, those that were dropped too, whatever their order."""
        found = {}
        published = self.sink.snapshot
        versions = {incarnation: table.version for incarnation, table in published.tables.items()} | published.retired
        for incarnation, version in versions.items():
            snapshot = deltalog.load(self.sink.options.table_uri(incarnation), version)
            assert snapshot is not None
            columns = stored_columns(snapshot)
            rows = [row for file in snapshot.files() for row in read(snapshot.uri, file, columns).to_pylist()]
            found[incarnation] = sorted(map(repr, rows))
        return found


def straight(log: Path, fed: Fed) -> None:
    """One round between two DDLs after the other, as long as the log goes on."""
    found = log_source(log)
    at = found.start(TASKS, None)
    while True:
        found.refresh()
        frontier = found.frontier()
        assert frontier is not None
        ddls = found.ddls(at, frontier)
        upto = segment_end(fed.position.checkpoint, ddls, frontier)
        if upto == at:
            return
        fed.round(ddls, upto, found.changes(at, upto))
        at = upto
        found.release(at)


def through(changelog: Changelog, fed: Fed) -> None:
    """All at once."""
    frontier = changelog.frontier()
    assert frontier is not None
    fed.round(changelog.ddls(0, frontier), frontier, changelog.slice(0, frontier))


CASES = [(stream, mode) for stream in ("types", "ddl", "partition") for mode in ("replica", "changelog", "history")]


@pytest.mark.slow
@pytest.mark.parametrize(("stream", "mode"), CASES)
def test_a_lake_without_a_changelog(tmp_path: Path, stream: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each mode, with tables that have no key, every type and every DDL that a recording has, the lakes hold the
    same rows; the one was fed in typed columns, the other in texts."""
    monkeypatch.setattr(log_changes, "FEW_ROWS", 2)
    log = recorded_log(tmp_path / "log", stream)
    landing(log, tmp_path / "landed").batch()
    changelog = landed(tmp_path / "landed")
    one, other = Fed(tmp_path / "straight", mode), Fed(tmp_path / "through", mode)
    straight(log, one)
    through(changelog, other)

    assert one.held() == other.held()
    assert any(one.held().values())
    assert one.rows == other.rows > 0
    assert one.position.checkpoint == other.position.checkpoint
    assert one.paths == {"mount/columns", "mount/rows"}
    assert other.paths == {"changelog/columns"}
