"""A Python function as a sink: `write(batch)` is called in tasks, with rows as Arrow columns.

Guarantee: at least once, each table in commit order, rows before later DDLs.  After a crash, changes above the
checkpoint are sent again: version your writes by `batch.commit_ts`.  `ddl` and `resolved` are called on the driver.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tidegate.codec.columnar import typed_batch
from tidegate.codec.columnar.rows import Batch
from tidegate.engine.plan import PlannedDdl, Round, Rows, Segment
from tidegate.engine.ports import Changes, Checkpoints, Saved, SinkPosition, Tasks, Written
from tidegate.model.errors import SinkError, TidegateError
from tidegate.model.event import Ddl
from tidegate.sink.calls import CheckpointSink


class Callback(NamedTuple):
    """Functions as a sink of a changefeed.

    Parameters:
        write: called in tasks with rows as Arrow columns; pickled, so defined at the top level of a module
        ddl: called on the driver with each DDL, between the rows before and after it
        resolved: called on the driver with each TSO up to which everything was written

    >>> feed = tidegate.Changefeed("tidb:///srv/log", tidegate.sinks.callback(write), state_dir="/srv/state")
    >>> feed.run(spark, idle_s=0).rows
    2"""

    write: Callable[[Batch], None]
    ddl: Callable[[Ddl], None] = lambda _: None
    resolved: Callable[[int], None] = lambda _: None


class CallbackSink(CheckpointSink[Written]):
    """Calls the functions of a Callback."""

    brings_again = "events"

    def __init__(self, callback: Callback, checkpoints: Checkpoints) -> None:
        super().__init__(checkpoints)
        self._callback = callback

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> list[Written]:
        return tasks.run(partial(_write, self._callback.write, changes), segment.steps)

    def ddl(self, planned: PlannedDdl) -> None:
        _call(self._callback.ddl, planned.ddl, commit_ts=planned.commit_ts)

    def advance(self, planned: Round, results: Sequence[Written]) -> SinkPosition:  # noqa: ARG002  their rows are written
        self._checkpoints.save(Saved(position := SinkPosition(planned.checkpoint, planned.state), {}))
        _call(self._callback.resolved, planned.resolved_ts)
        return position


def _write(write: Callable[[Batch], None], changes: Changes, step: Rows) -> Written:
    done = Written(step.table.name)
    for chunk in done.coming(changes.batches(step.table.name, step.after, step.upto)):
        for batch in chunk.runs():
            _call(write, typed_batch(batch), table=str(step.table.name), commit_ts=batch.commit_ts[0].as_py())
            done.rows, done.messages = done.rows + batch.rows, done.messages + 1
    return done


def _call(function: Callable[..., None], argument: object, **where: object) -> None:
    try:
        function(argument)
    except TidegateError:
        raise
    except Exception as error:
        raise SinkError(f"callback {getattr(function, '__qualname__', function)}: {error!r}").at(**where) from error
