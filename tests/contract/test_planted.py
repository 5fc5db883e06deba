"""The suite finds the fault of a sink that has one: each of these breaks one promise, and a case that says so."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.adapters import Journal
from tests.contract.test_sinks import TestCallback as CallbackCases
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Saved, Sink, SinkPosition
from tidegate.model.errors import TidegateError
from tidegate.sink.callback import CallbackSink


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

    def held(self) -> Any:
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
    (NobodyHeld, "test_a_second_writer", ()),
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
