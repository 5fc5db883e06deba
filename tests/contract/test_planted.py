"""The suite finds the fault of a sink that has one: each of these breaks one promise, and a case that says so."""

import sqlite3
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.adapters import Journal
from tests.contract.test_sinks import TestCallback as CallbackCases
from tests.contract.test_sqlite_sink import TestSqlite as SqliteCases
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Saved, Sink, SinkPosition, Written
from tidegate.model.errors import TidegateError
from tidegate.schema.effects import TableCreated
from tidegate.sink import sqlite
from tidegate.sink.callback import CallbackSink
from tidegate.testing.contract import stories


class LosesATable(CallbackSink):
    """Leaves out the last table of a round."""

    def run(self, tasks: Any, segment: Any, changes: Any) -> Any:
        """Run a round."""
        some = msgspec.structs.replace(segment, tables=segment.tables[:-1] or segment.tables)
        return super().run(tasks, some, changes)


class WritesTwice(CallbackSink):
    """Writes each round once more."""

    def run(self, tasks: Any, segment: Any, changes: Any) -> Any:
        """Run a round."""
        super().run(tasks, segment, changes)
        return super().run(tasks, segment, changes)


class WritesLate(CallbackSink):
    """Holds a round back until the next one: what it says to be durable is not."""

    held_back: tuple[Any, ...] = ()

    def run(self, tasks: Any, segment: Any, changes: Any) -> Any:
        """Run a round."""
        if self.held_back:
            super().run(*self.held_back)
        self.held_back = (tasks, segment, changes)
        return []


class SwallowsErrors(CallbackSink):
    """Goes on behind a row that it could not write."""

    def run(self, tasks: Any, segment: Any, changes: Any) -> Any:
        """Run a round."""
        try:
            return super().run(tasks, segment, changes)
        except TidegateError:
            return []


class ForgetsDdls(CallbackSink):
    """Does no DDL."""

    def ddl(self, placed: Any) -> None:
        """Do a DDL, or not."""


class TellsDdlsTwice(CallbackSink):
    """Keeps a DDL back and tells it with the next one."""

    kept: Any = None

    def ddl(self, placed: Any) -> None:
        """Do a DDL, or not."""
        if self.kept is not None:
            super().ddl(self.kept)
        self.kept = placed


class NobodyHeld(CallbackSink):
    """Lets a second writer in."""

    def run_lock(self) -> Any:
        """Hold nothing."""
        return nullcontext()


class ForgetsWhereItStands(CallbackSink):
    """Saves no checkpoint."""

    def advance(self, planned: Any, results: Any) -> SinkPosition:
        """Advance."""
        assert results is not None
        return SinkPosition(planned.checkpoint, planned.state)


class ForgetsDoneDdls(CallbackSink):
    """Saves a checkpoint that does not name the DDLs of its ts."""

    def advance(self, planned: Any, results: Any) -> SinkPosition:
        """Advance."""
        position = super().advance(planned, results)
        bare = SinkPosition(Checkpoint(position.checkpoint.ts), position.state)
        self._checkpoints.save(Saved(bare, {}))
        return position


class AdvancesFirst(CallbackSink):
    """Saves the round's end before its rows are written, as far as it knows it."""

    def run(self, tasks: Any, segment: Any, changes: Any) -> Any:
        """Run a round."""
        position = self.recover()
        self._checkpoints.save(Saved(SinkPosition(Checkpoint(changes.upto), position.state), {}))
        return super().run(tasks, segment, changes)


PLANTED = [
    (LosesATable, "test_everything_arrives", ()),
    (WritesTwice, "test_everything_arrives", ()),
    (WritesTwice, "test_stops_and_goes_on", ()),
    (WritesLate, "test_nothing_above_the_frontier", ()),
    (SwallowsErrors, "test_a_row_that_cannot_be_taken", ()),
    (ForgetsDdls, "test_a_ddl", ("add index",)),
    (TellsDdlsTwice, "test_everything_arrives", ()),
    (NobodyHeld, "test_a_second_writer", ("after run",)),
    (ForgetsWhereItStands, "test_again_without_news", ()),
    (ForgetsDoneDdls, "test_stops_and_goes_on", ()),
    (AdvancesFirst, "test_a_crash_at_each_step", ("in a task",)),
]


@pytest.mark.parametrize(("broken", "case", "given"), PLANTED)
def test_a_planted_fault_is_found(tmp_path: Path, broken: type[CallbackSink], case: str, given: tuple[str]) -> None:
    """By the case that is there for it."""

    class Cases(CallbackCases):
        """The cases of the callback, with this sink."""

        def sink(self, home: Path) -> Sink:
            """The broken one."""
            return broken(Journal(home / "journal", "poison").callback(), DirectoryCheckpoints(home, "feed"))

    with pytest.raises((AssertionError, pytest.fail.Exception, TidegateError)):
        getattr(Cases(), case)(tmp_path, *given)


class Commits(sqlite3.Connection):
    """Keeps what a transaction did before its error."""

    def close(self) -> None:
        """Close, behind a COMMIT in place of a ROLLBACK."""
        if self.in_transaction:
            self.execute("COMMIT")
        super().close()


def _rows_alone(connection: Any, position: Any, move: Any = sqlite._move) -> None:
    """Move the position behind rows, and behind no DDL."""
    if not position[1]:
        move(connection, position)


def _in_part(connection: Any, table: Any, batch: Any, write: Any = sqlite._write_batch) -> None:
    """Leave out the last row of a batch."""
    write(connection, table, batch.part(0, max(1, batch.rows - 1)))


def _no_epoch(file: Any, connection: Any, check: Any = sqlite.SqliteFile._check) -> None:
    """Let a run go on that another one has replaced."""
    check(msgspec.structs.replace(file, epoch=0), connection)


def _no_create(connection: Any, effect: Any, ddl: Any, follow: Any = sqlite._follow) -> None:
    """Follow all DDLs but CREATE TABLE."""
    if not isinstance(effect, TableCreated):
        follow(connection, effect, ddl)


class NeverAhead(Written):
    """Says of no table that an earlier run has brought it further."""

    @property  # type: ignore[override]
    def ahead(self) -> int:
        """Nothing."""
        return 0

    @ahead.setter
    def ahead(self, ts: int) -> None:
        """Forget it."""


PLANTED_IN_SQLITE: dict[str, tuple[tuple[Any, str, Any], tuple[Any, ...]]] = {
    "a COMMIT in place of a ROLLBACK": (
        (sqlite.sqlite3, "connect", partial(sqlite3.connect, factory=Commits)),
        ("test_an_error_inside_a_task", 1, None),
    ),
    "a DDL without its position": ((sqlite, "_move", _rows_alone), ("test_a_crash_at_each_step", "after ddl")),
    "a row that is not written": ((sqlite, "_write_batch", _in_part), ("test_everything_arrives",)),
    "digits as numbers": ((sqlite, "_is_digits", lambda _: False), ("test_every_type",)),
    "names without quotes": ((sqlite, "_quoted", '"{}"'.format), ("test_a_story", stories.odd_names)),
    "a table that keeps its name": ((sqlite, "_rename", lambda *_: None), ("test_a_ddl", "rename table")),
    "an epoch that nobody checks": ((sqlite.SqliteFile, "_check", _no_epoch), ("test_a_second_writer", "after run")),
    "a COMMIT in the middle of a DDL": (
        (sqlite.sqlite3, "connect", partial(sqlite3.connect, factory=Commits)),
        ("test_an_error_inside_a_ddl", "swap names"),
    ),
    "a table that is never ahead": ((sqlite, "Written", NeverAhead), ("test_a_round_that_ends_earlier",)),
    "tables that only rows make": ((sqlite, "_follow", _no_create), ("test_a_ddl", "create empty table")),
    "tables that only a DDL makes": ((sqlite, "_ensure", lambda *_: None), ("test_tables_that_no_ddl_has_brought",)),
    "empty texts that a DDL makes NULL": ((sqlite, "_loaded", lambda _, value: value or None), ("test_every_type",)),
    "a table that is left out in silence": (
        (sqlite.SqliteSink, "left_out", lambda _: ()),
        ("test_everything_arrives",),
    ),
}


@pytest.mark.parametrize("fault", PLANTED_IN_SQLITE)
def test_a_fault_of_a_sink_of_tables_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """By the case that is there for it, which passes without it."""
    planted, (case, *given) = PLANTED_IN_SQLITE[fault]
    (tmp_path / "sound").mkdir()
    getattr(SqliteCases(), case)(tmp_path / "sound", *given)
    monkeypatch.setattr(*planted)
    with pytest.raises((AssertionError, pytest.fail.Exception, TidegateError, sqlite3.Error)):
        getattr(SqliteCases(), case)(tmp_path, *given)
