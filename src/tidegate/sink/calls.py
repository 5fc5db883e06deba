"""Shared by several sinks: rows identified by their keys, and tasks that write batch by batch."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from tidegate.codec.columnar import Batch
from tidegate.engine.plan import PlannedDdl, Rows, zone_warning
from tidegate.engine.ports import (
    Changes,
    Checkpoints,
    FlushPolicy,
    Result,
    RoundLimit,
    SegmentSink,
    SinkPosition,
    WithOmissions,
    Written,
    sink_position,
)
from tidegate.model.errors import SinkRefused, TidegateError
from tidegate.model.left_out import LeftOut, without_key
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.effects import TableAltered
from tidegate.schema.state import SchemaState

R = TypeVar("R", bound=Result)


class CheckpointSink(SegmentSink[R]):
    """A sink whose progress is kept in a checkpoint store."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    def run_lock(self) -> AbstractContextManager[None]:
        return self._checkpoints.run_lock()

    def recover(self) -> SinkPosition:
        return sink_position(self._checkpoints.load())


class KeyedSink(SegmentSink[Written], WithOmissions):
    """A sink in which rows are found by their keys, so that tables without a key are left out: `run` writes the steps
    that `_keyed` returns. `held` keeps another run of the feed on this machine out."""

    flush_policy = FlushPolicy(limit=RoundLimit(rows=200_000, size_bytes=128 << 20), idle_s=5.0)
    makes_views = False

    def __init__(self, run_lock: Callable[[], AbstractContextManager[None]]) -> None:
        self._run_lock = run_lock
        self._state = SchemaState()
        self._schema: tuple[SchemaState | None, str] = None, ""
        self._warned: set[str] = set()
        self._keyless: set[TableName] = set()

    def run_lock(self) -> AbstractContextManager[None]:
        return self._run_lock()

    def left_out(self) -> Sequence[LeftOut]:
        return without_key(map(self._state.table, self._keyless))

    def _keyed(self, steps: Sequence[Rows]) -> list[Rows]:
        self._keyless |= {step.table.name for step in steps if not step.table.handle_key}
        return [step for step in steps if step.table.handle_key]

    def _schema_text(self, state: SchemaState) -> str:
        """Return the JSON of a schema, which is made anew only when it is another one."""
        if state is not self._schema[0]:
            self._schema = state, state.to_json().decode()
        return self._schema[1]

    def _warn_of(self, planned: PlannedDdl) -> None:
        """Log what a user has to know of a DDL that is done, each text once."""
        keyed = (
            effect.new.name
            for effect in planned.effects
            if isinstance(effect, TableAltered) and effect.new.handle_key and not effect.old.handle_key
        )
        texts = (f"table {name} has a key now: its earlier rows are replicated when they change" for name in keyed)
        for text in (zone_warning(planned.ddl, planned.effects), *texts):
            if text and text not in self._warned:
                self._warned.add(text)
                logging.getLogger(type(self).__module__).warning("%s", text)


def rows_gone(table: TableInfo, target: str) -> SinkRefused:
    """Return the error of a recovered table, whose rows the target no longer has."""
    return SinkRefused(
        f"table {table.name} was recovered with rows that {target} no longer has; create a new changefeed that "
        f"includes them, or exclude the DDL by an event filter"
    )


def write_batches(changes: Changes, step: Rows, write: Callable[[Batch], tuple[int, int]]) -> Written:
    """Write the rows of a step by `write`, which returns the number of messages and of bytes; errors name table and
    commit_ts."""
    done = Written(step.table.name)
    for chunk in done.coming(changes.batches(step.table.name, step.after, step.upto)):
        for batch, _ in chunk.parts:
            try:
                messages, size_bytes = write(batch)
            except TidegateError as error:
                raise error.at(table=str(step.table.name), commit_ts=batch.commit_ts[0].as_py()) from None
            done.rows, done.messages = done.rows + batch.rows, done.messages + messages
            done.size_bytes += size_bytes
    return done
