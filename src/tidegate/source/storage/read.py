"""What a task does of a batch: some files of one stream, in the order of their numbers, into the changelog.

    file ─► cut off? ─► rows with after < commit_ts <= upto ─► Parquet files that no commit names yet
                            └ bad lines: dead letters, or the run halts

A file is done when no row of it lies above `upto`; one with such rows is read again when `upto` has passed the least of
them (`waits`).  An early run takes only files that are done, and stops before the first that is not.

A file that was cut off, the last of its stream, waits until it is whole or has a follower: nobody vouches for it yet.
One with a follower is a crashed writer's: its whole lines count, and the rest stands in later files.

Rows that a restarted writer wrote again stand in two files, perhaps of two days.  They have one commit_ts, so they land
in one batch; where one task reads both, and the table has a key, equal rows of one commit_ts are landed once.  Files
that no index names come last: of them only rows land that files before do not have, also of a table without a key.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.changelog.files import DEAD, HALT, ControlFiles, RowFiles
from tidegate.changelog.report import Halt, LandedFile, TableRows
from tidegate.model.errors import SourceError
from tidegate.model.roads import RoadCounts
from tidegate.model.tso import MAX_TS
from tidegate.objectstore.failpoint import reach
from tidegate.source.storage.canal_file import CanalFiles
from tidegate.source.storage.csv_file import CsvFiles
from tidegate.source.storage.file_rows import FileRows, Text
from tidegate.source.storage.plan import CsvDialect, ReadPlan, RunJob

LOGGER: Final = logging.getLogger(__name__)
FLUSH_BYTES: Final = 64 << 20
TEXT_BYTES: Final = 16 << 20
"""What is decoded at once of a file, which may have 512 MiB: decoding takes some times its size."""
SEEN_BYTES: Final = 128 << 20
"""Rows of a table that are kept to know repeats, the last ones; a writer repeats what it wrote shortly before."""


class FileRead(NamedTuple):
    """What became of a file: its number and version; `waits` is the least commit_ts that was left for later, None
    where all of it has landed; `is_cut` for one that was cut off."""

    number: int
    version: str
    waits: int | None
    is_cut: bool = False


@dataclass(slots=True)
class RunRead:
    """What a run read; of a run that halts nothing counts but the halt."""

    stream: str
    is_loose: bool = False
    read: list[FileRead] = field(default_factory=list)
    files: tuple[LandedFile, ...] = ()
    tables: tuple[TableRows, ...] = ()
    messages: int = 0
    filtered: int = 0
    roads: RoadCounts = field(default_factory=RoadCounts)
    dead: int = 0
    halt: Halt | None = None


def read_runs(plan: ReadPlan, runs: tuple[RunJob, ...]) -> list[RunRead]:
    """Read some runs, one after the other; repeats are known among those of one table that follow each other.

    SourceError."""
    found: list[RunRead] = []
    for _, group in groupby(runs, key=lambda run: run.table.name):
        some = list(group)
        has_key = any(one.handle for one in some[0].table.fields)
        seen = _Seen(has_key=has_key, keeps=has_key or any(run.is_loose for run in some))
        found += [read_run(plan, run, seen) for run in some]
    return found


def read_run(plan: ReadPlan, run: RunJob, seen: "_Seen") -> RunRead:
    """Read files and write their rows into the changelog's directory; nothing is committed. SourceError."""
    done = RunRead(run.stream, run.is_loose)
    rows, controls = RowFiles(plan.changelog, flush_bytes=FLUSH_BYTES), ControlFiles(plan.changelog, FLUSH_BYTES)
    reader = CsvFiles(plan, run) if isinstance(plan.dialect, CsvDialect) else CanalFiles(plan, run)
    for job in run.files:
        path, version = job.stored.path, job.stored.version
        body = plan.place.read(path)
        if body is None:
            raise SourceError(f"{plan.place.shown}/{path} was there a moment ago, and is gone")
        whole = reader.whole(body)
        if whole < len(body) or not body:
            if job.is_last:
                done.read.append(FileRead(job.number, version, MAX_TS, is_cut=True))
                break
            LOGGER.warning("%s was cut off behind %d bytes: a writer crashed amid it", path, whole)
            whole = reader.end(body)
        found = FileRows()
        for text in _texts(reader, body[:whole], found):
            piece = reader.rows(job, text)
            if piece.halt is not None:
                return _halted(plan, done, piece)
            if plan.early:
                found.tables += piece.tables
            else:
                _keep(piece.tables, run, seen, rows)
            found.then(piece)
        if plan.early and found.waits is not None:
            done.read.append(FileRead(job.number, version, plan.after))
            break
        done.read.append(FileRead(job.number, version, found.waits))
        _keep(found.tables, run, seen, rows)
        letters = [*found.letters, *(found.undated if found.waits is None else ())]
        controls.add((), [(DEAD, letter) for letter in letters])
        done.messages += found.messages
        done.filtered += found.filtered
        done.roads.update(found.roads)
        reach("files/read")
    done.files, done.tables, done.dead = (*rows.close(), *controls.close()), rows.counts(), controls.dead
    return done


def _texts(reader: CsvFiles | CanalFiles, body: bytes, found: FileRows) -> Iterator[Text]:
    """A file in pieces of about TEXT_BYTES, cut between two records; `found` is what those before have told."""
    at = reader.header(body)
    head = lines = 1 if at else 0
    while at < len(body):
        size, end = TEXT_BYTES, 0
        while not end:
            part = body[at : at + size]
            end = len(part) if at + size >= len(body) else reader.end(part)
            size *= 2
        yield Text(part[:end], head + found.records, lines)
        lines += part.count(b"\n", 0, end)
        at += end


def _keep(tables: Iterable[pa.Table], run: RunJob, seen: "_Seen", rows: RowFiles) -> None:
    """Hold the rows that no file before had."""
    for table in tables:
        if (kept := seen.fresh(table, is_loose=run.is_loose)).num_rows:
            rows.add([(run.table.name, kept)])


def _halted(plan: ReadPlan, done: RunRead, found: FileRows) -> RunRead:
    """A run that stops, with the line that it stops at, kept to be looked at."""
    controls = ControlFiles(plan.changelog, FLUSH_BYTES)
    if found.halted_at is not None and found.halted_at.place not in plan.halted:
        controls.add((), [(HALT, found.halted_at)])
    return RunRead(done.stream, done.is_loose, halt=found.halt, files=controls.close())


class _Seen:
    """The rows of a table so far, to know again those that a restarted writer repeats.

    Of a table without a key equal rows may be rows of their own: a loose file repeats as many as there are."""

    def __init__(self, *, has_key: bool, keeps: bool) -> None:
        self._has_key, self._keeps = has_key, keeps
        self._tables, self._high, self._size_bytes = list[pa.Table](), -1, 0

    def fresh(self, table: pa.Table, *, is_loose: bool) -> pa.Table:
        """Return the rows that no file before had."""
        if not self._keeps:
            return table
        low, high = pc.min_max(table["commit_ts"]).as_py().values()
        if low <= self._high and (self._has_key or is_loose):
            known = Counter(
                row for one in self._tables for row in _values(one.filter(pc.greater_equal(one["commit_ts"], low)))
            )
            late = pc.less_equal(table["commit_ts"], self._high)
            repeated = np.zeros(table.num_rows, bool)
            repeated[late.to_numpy()] = [self._is_known(row, known) for row in _values(table.filter(late))]
            table = table.filter(pa.array(~repeated))
        self._high = max(high, self._high)
        self._tables.append(table)
        self._size_bytes += table.nbytes
        while self._size_bytes > SEEN_BYTES and len(self._tables) > 1:
            self._size_bytes -= self._tables.pop(0).nbytes
        return table

    def _is_known(self, row: Any, known: Counter[Any]) -> bool:
        found = known[row] > 0
        if found and not self._has_key:
            known[row] -= 1
        return found


def _values(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table as values that compare."""
    for row in table.select(["commit_ts", "op", "before", "after"]).to_pylist():
        yield row["commit_ts"], row["op"], _tuple(row["before"]), _tuple(row["after"])


def _tuple(image: list[bytes | None] | None) -> tuple[bytes | None, ...] | None:
    return None if image is None else tuple(image)
