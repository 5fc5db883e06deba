"""The task of a round: reads changes, folds them, and writes those of its shard, transaction by transaction.

    changes ─► chunk ─► entries of the shard ─► groups of whole transactions ─► BEGIN; fence; statements ─► COMMIT
               one thread reads, folds and renders the next chunk                while another one writes this one

A group is written once.  Its transaction moves the shard's position from that of the previous group, and must match one
row; so after any error, even a COMMIT without an answer, the position shows whether to write the group again.  A task
begins at the current position of its shard, which an earlier attempt may have moved.

A chunk of a full load comes in several chunks of one commit_ts, each a group, which are one transaction; after an error
behind the first of them the task fails, and its next attempt reads them again.

A statement that changes more or fewer rows than it has is an error: a row is missing, or exists already.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from tidegate.codec.batch import calls_of
from tidegate.engine.load import LoadChanges
from tidegate.engine.plan import Segment
from tidegate.engine.ports import Changes, Written
from tidegate.engine.retry_policy import Outage, RetryPolicy, retry
from tidegate.model.errors import Retry, SinkError, SinkRefused, TidegateError, redacted
from tidegate.model.table import TableName
from tidegate.mysql import server_sql as sent
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.threads import ContextPool
from tidegate.sink.sql.connection import ROWS_MAX, RowCounts, SqlOptions, TargetServer, TargetSession, number_of
from tidegate.sink.sql.progress import fence, position_of
from tidegate.sink.sql.rows import (
    ROOM_BYTES,
    Counted,
    Entries,
    EntryReader,
    Net,
    Statement,
    StatementLimits,
    fold_counted,
    fold_keyed,
    groups_of,
    row_checks,
    statements,
    to_utc,
)

OF_VALUES: Final = frozenset({1264, 1265, 1292, 1366, 1406, 1411, 1918})
"""Errors of a strict server about values that one that is not strict may hold: an ENUM's '', a generated column that
was cut off."""
TRIES: Final = 8
"""As TiCDC tries a transaction."""
PAUSE_S: Final = 0.1
SILENT_S: Final = 60
"""The time for which a dead task holds its locks."""
SILENT_LOAD_S: Final = 600
"""The same in a full load, whose transactions wait for a slow upstream."""
AHEAD: Final = 2
"""Chunks that wait to be written, at most."""


@dataclass(frozen=True, slots=True)
class ShardJob:
    """The rows of `segment`, of which those of `shard` are written; `splits` are the tables whose rows fall into
    `shards`."""

    changes: Changes
    segment: Segment
    splits: frozenset[tuple[str, str]]
    shards: int
    shard: int
    epoch: int
    options: SqlOptions
    target: TargetServer


NO_ROWS: Final[Mapping[TableName, int]] = {}


class Group(NamedTuple):
    """Whole transactions from `first_ts` to `ts`, and the statements of their `rows`; `parts` are the net changes of
    each table, `tables` the rows. The next group goes on with the last transaction unless this one `ends` it."""

    first_ts: int
    ts: int
    rows: int = 0
    statements: tuple[Statement, ...] = ()
    parts: Sequence[tuple[Entries, Net]] = ()
    tables: Mapping[TableName, int] = NO_ROWS
    ends: bool = True


def write_shard(job: ShardJob) -> Written:
    """Write the job's rows; return when they are committed. Raises errors of reading and writing."""
    done = Written()
    waiting: deque[Future[None]] = deque()
    writer = _Writer(job, done)
    with ContextPool(1, "sql-writer") as pool:
        try:
            for groups in _groups(job, writer.begin(), done):
                waiting.append(pool.submit(writer.write, groups))
                while len(waiting) > AHEAD:
                    waiting.popleft().result()
            while waiting:
                waiting.popleft().result()
        finally:
            for part in waiting:
                part.cancel()
            pool.shutdown(wait=True)
            writer.close()
    return done


def _groups(job: ShardJob, position: int, done: Written) -> Iterator[list[Group]]:
    """The groups of each chunk behind `position`."""
    options = job.options
    traits = job.target.traits
    txn_rows = min(options.txn_rows, ROWS_MAX)
    rows = txn_rows if options.batch else 1
    limits = StatementLimits(rows, job.target.packet_bytes, traits.duplicates and options.batch, options.safe_mode)
    utc = None if options.time_zone == "UTC" else partial(to_utc, zone=options.time_zone)
    shards = dict.fromkeys(job.splits, job.shards)
    tables = {table.name.key: table for table in job.segment.tables}
    reader = EntryReader(tables, shards, documents=traits.documents, utc=utc)
    names, after = [table.name for table in job.segment.tables], max(job.segment.after, position)
    chunks = done.coming(job.changes.in_order(names, after, job.segment.upto))
    chunk, begun = next(chunks, None), False
    while chunk is not None:
        try:
            entries = reader.read(chunk)
        except TidegateError as error:
            batch = chunk.parts[0].batch
            raise error.at(table=f"{batch.schema}.{batch.table}", commit_ts=batch.commit_ts[0].as_py()) from None
        for index, entries_part in enumerate(entries):
            if TableName(entries_part.table.schema, entries_part.table.table).key in job.splits:
                entries[index] = entries_part.of(entries_part.shard == job.shard)
        entries = [part for part in entries if len(part.number)]
        last_ts, chunk = max(part.batch.commit_ts[-1].as_py() for part in chunk.parts), next(chunks, None)
        ends = chunk is None or last_ts < min(part.batch.commit_ts[0].as_py() for part in chunk.parts)
        groups = _cut(entries, limits, txn_rows) if entries else [Group(last_ts, last_ts)] if begun and ends else []
        if groups:
            begun = not ends
            yield [*groups[:-1], groups[-1]._replace(ends=ends)]


def _cut(entries: list[Entries], limits: StatementLimits, txn_rows: int) -> list[Group]:
    """The groups of some entries, each with the statements of all its tables."""
    times = np.sort(np.concatenate([part.commit_ts for part in entries]))
    group, ends = groups_of(times, txn_rows)
    starts = times[np.searchsorted(group, np.arange(len(ends)))].tolist()
    texts: list[list[Statement]] = [[] for _ in ends]
    parts: list[list[tuple[Entries, Net]]] = [[] for _ in ends]
    tables: list[Counter[TableName]] = [Counter() for _ in ends]
    for group_part in entries:
        mine = np.searchsorted(np.array(ends), group_part.commit_ts)
        code = pc.dictionary_encode(group_part.identity).indices.to_numpy().astype(np.int64)
        keyed = bool(group_part.table.key)
        net = (
            fold_keyed(mine, code, group_part.put, group_part.existed)
            if keyed
            else fold_counted(mine, code, group_part.put)
        )
        counts = np.bincount(mine[np.unique(group_part.number, return_index=True)[1]], minlength=len(ends))
        for number in np.flatnonzero(counts).tolist():
            tables[number][TableName(group_part.table.schema, group_part.table.table)] += int(counts[number])
        bounds = np.searchsorted(net.group, np.arange(len(ends) + 1))
        for number in np.unique(net.group).tolist():
            group_slice = slice(bounds[number], bounds[number + 1])
            part = Net(*(array[group_slice] for array in net))
            texts[number] += statements(group_part.table, part, group_part.texts, limits)
            parts[number].append((group_part, part))
    rows = map(Counter.total, tables)
    return [Group(*each) for each in zip(starts, ends, rows, map(tuple, texts), parts, tables, strict=True)]


class _Writer:
    """Writes groups in order, over one session that is made anew when it breaks."""

    def __init__(self, job: ShardJob, done: Written) -> None:
        self._job, self._done = job, done
        self._session: TargetSession | None = None
        self._committed = self._position = 0
        self._failed = False

    def begin(self) -> int:
        """Return the position of the shard. Raises Fenced if another writer has begun."""
        job = self._job
        self._committed = self._position = position_of(self._connected(), job.options.feed, job.shard, job.epoch)
        return self._position

    def write(self, groups: list[Group]) -> None:
        """Write each group once, in order; after an error none of the following ones."""
        for group in groups:
            if self._failed:
                return
            self._failed = True
            self._write(group)
            self._position, self._failed = group.ts, False
            if group.ends:
                self._committed = group.ts

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    @property
    def _is_open(self) -> bool:
        """True amid a transaction: the groups before are not there to be written again."""
        return self._position != self._committed

    def _write(self, group: Group) -> None:
        outage = Outage(RetryPolicy(quick=0 if self._is_open else TRIES - 1, stuck_s=None, first_s=PAUSE_S))
        retry(partial(self._try, group), outage.sleep)
        self._done.rows += group.rows
        self._done.tables.update(group.tables)
        self._done.messages += len(group.statements)
        self._done.size_bytes += sum(len(statement.text) for statement in group.statements)

    def _try(self, group: Group) -> None:
        try:
            self._transaction(self._connected(), group)
        except TidegateError as error:
            self.close()
            tables = ", ".join(dict.fromkeys(statement.table.replace("`", "") for statement in group.statements))
            error.at(table=error.where.table or tables, commit_ts=group.first_ts)
            if not self._is_done(group, error):
                raise

    def _is_done(self, group: Group, error: TidegateError) -> bool:
        """Return True if a group that met an error was committed nevertheless. Raises Fenced; SinkError where another
        try of this task writes the shard; `error` while the server does not tell."""
        job = self._job
        try:
            position = position_of(self._connected(), job.options.feed, job.shard, job.epoch)
        except TidegateError as unknown:
            self.close()
            if unknown.retry is Retry.NEVER or error.retry is Retry.NEVER:
                raise unknown from error
            return False
        if position != self._committed and not (position == group.ts and group.ends):
            raise SinkError(f"shard {job.shard} is at {position}: another attempt of this task writes it") from error
        return position == group.ts

    def _connected(self) -> TargetSession:
        if self._session is None:
            job = self._job
            opened = TargetSession(job.options, read_s=job.options.read_s, many=job.options.multi_statements)
            wait_s = SILENT_LOAD_S if isinstance(job.changes, LoadChanges) else SILENT_S
            self._session = opened.prepare(job.target, wait_s=wait_s)
        return self._session

    def _transaction(self, session: TargetSession, group: Group) -> None:
        """Write a group. Where the server refuses a value that a server that is not strict may hold, write the rest in
        a session that is not, and check whether the server holds what was sent."""
        target, refusal = self._job.target, None
        moves = fence(self._job.options.feed, self._job.shard, self._job.epoch, self._position, group.ts)
        left = deque([Statement(moves, 1, Counted.AFFECTED, "tidegate.progress"), *group.statements])
        if not self._is_open:
            left.appendleft(Statement(sent.BEGIN.encode(), 0, Counted.NONE, ""))
        while left:
            try:
                self._send(session, left, group)
            except SinkRefused as error:
                if refusal is not None or number_of(error) not in OF_VALUES:
                    raise
                refusal = error
                session.set(target.modes(strict=False))
        if refusal is not None:
            _check_rows(session, group, refusal, documents=target.traits.documents)
            session.set(target.modes(strict=True))
        if group.ends:
            failpoint("sql/before-commit")
            list(session.send([sent.COMMIT.encode()]))
            failpoint("sql/after-commit")

    def _send(self, session: TargetSession, left: deque[Statement], group: Group) -> None:
        """Send statements, and take those that are done out of `left`."""
        size_bytes = self._job.target.packet_bytes - ROOM_BYTES + 1  # but for the last ;
        most = None if self._job.options.multi_statements else 1
        packets = calls_of(list(left), lambda statement: len(statement.text) + 1, most=most, most_bytes=size_bytes)
        for packet in packets:
            failpoint("sql/before-statements")
            answers = session.send([statement.text for statement in packet])
            for statement, answer in zip(packet, answers, strict=True):
                _check(statement, answer, group)
                left.popleft()


def _check(statement: Statement, answer: RowCounts, group: Group) -> None:
    rows = {Counted.AFFECTED: answer.affected, Counted.DUPLICATES: answer.duplicates}.get(
        statement.counted, statement.rows
    )
    if rows == statement.rows:
        return
    if statement.table == "tidegate.progress":
        raise SinkError("the shard has moved: an earlier attempt succeeded, or another run has taken over")
    what = redacted(statement.text[:300].decode(errors="replace"))
    raise SinkRefused(
        f"{statement.table}: {rows} of {statement.rows} rows exist that ts {group.first_ts} to {group.ts} change: "
        f"another client writes the table, or it differed at the start; safe-mode=true overwrites rows: {what}"
    ).at(table=statement.table.replace("`", ""), commit_ts=group.first_ts)


def _check_rows(session: TargetSession, group: Group, refusal: SinkRefused, *, documents: bool) -> None:
    checks = (row_checks(entries.table, net, entries.texts, documents=documents) for entries, net in group.parts)
    for check in chain.from_iterable(checks):
        rows = session.ask(check.question)
        wrong = [name for name, same in zip(check.columns, rows[0], strict=True) if not same] if rows else []
        if wrong or not rows:
            what = f"column {', '.join(wrong)}" if wrong else "a row"
            raise SinkRefused(
                f"{refusal}. Without strict mode, the server stores another value in {what} of {check.table}: compare "
                f"its type, members and charset with the upstream's, ALTER it, then resume"
            ).at(table=check.table.replace("`", ""), commit_ts=group.first_ts) from refusal.__cause__
