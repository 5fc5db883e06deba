"""What a task does of a round: the rows of a table into parts of tallies.

    chunk ─► batch ─► each row once ─► each rule (counter.py) ─► parts, folded to what has room

A source that tells no start_ts may repeat rows: of a transaction each is counted once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tidegate.codec.columnar import typed_batch
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, Written
from tidegate.objectstore.failpoint import reach
from tidegate.sink.metrics.counter import RuleCounter
from tidegate.sink.metrics.images import FirstRows, Images
from tidegate.sink.metrics.options import MetricsOptions
from tidegate.sink.metrics.tally import Limit, TallyPart

FOLD: Final = 10_000
"""So many series a part may have before it is folded amid the rows."""


@dataclass(frozen=True, slots=True)
class CountJob:
    """The rows of a step, and the rules about them by their numbers."""

    changes: Changes
    step: Rows
    rules: Mapping[int, Limit]
    options: MetricsOptions


@dataclass(slots=True)
class CountedRows(Written):
    """What a task counted, by the numbers of rules."""

    parts: dict[int, TallyPart] = field(default_factory=dict)


def count_tables(jobs: Sequence[CountJob]) -> list[CountedRows]:
    """Count the rows of some tables, one after the other. Raises what `count_table` does."""
    return [count_table(job) for job in jobs]


def count_table(job: CountJob) -> CountedRows:
    """Count the rows of a table. SinkRefused with table and commit_ts for a row that a rule cannot judge."""
    table = job.step.table
    done = CountedRows(table.name, parts={number: TallyPart() for number in job.rules})
    counters: dict[int, tuple[object, list[RuleCounter]]] = {}
    for chunk in done.coming(job.changes.batches(table.name, job.step.after, job.step.upto)):
        firsts, last = FirstRows(table), len(chunk.parts) - 1
        for at, (batch, _) in enumerate(chunk.parts):
            typed = typed_batch(batch)
            images = Images.of(typed)
            first_ts = int(typed.commit_ts[0].as_py())
            found = counters.get(id(batch.fields))
            if found is None:
                made = [RuleCounter(table, number, job.options, typed, first_ts) for number in job.rules]
                found = counters[id(batch.fields)] = batch.fields, made
            rows = np.arange(typed.rows) if typed.start_ts is not None else firsts.of(images, is_last=at == last)
            for counter in found[1]:
                part = done.parts[counter.number]
                counter.count(images, rows, part)
                if len(part.series) > FOLD:
                    fold(job, counter.number, part)
            done.rows += typed.rows
    for number, part in done.parts.items():
        fold(job, number, part)
    reach("metrics/counted")
    return done


def fold(job: CountJob, number: int, part: TallyPart) -> None:
    """Put labels together that will have no series of their own."""
    limit = job.rules[number]
    part.fold(limit.known, limit.room, job.options.rules[number].overflow)
