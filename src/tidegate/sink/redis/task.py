"""What a task does of a round: the rows of a table into Redis.

chunk ─► parts ─► the last change of each key (documents/last.py) ─► entries ─► calls (write.py)
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, Tasks, Written
from tidegate.engine.refused_rows import converted
from tidegate.model.errors import TidegateError
from tidegate.model.table import TableInfo
from tidegate.sink.documents.last import last_changes
from tidegate.sink.redis.ddl import moves_of, run_moves
from tidegate.sink.redis.forms import FORMS
from tidegate.sink.redis.keys import parse_template, row_key
from tidegate.sink.redis.lookups import lookup_entries
from tidegate.sink.redis.options import RedisOptions
from tidegate.sink.redis.places import writing
from tidegate.sink.redis.servers import RedisServers
from tidegate.sink.redis.templates import channel_of
from tidegate.sink.redis.version import row_versions
from tidegate.sink.redis.work import DdlWork, TableJob
from tidegate.sink.redis.write import ROW, KeyEntry, write


class KeptRows:
    """The modes hash and json."""

    needs_key = follows = True

    def __init__(self, options: RedisOptions) -> None:
        self._options = options

    def check(self, tables: Sequence[TableInfo]) -> None:
        """Take any tables."""

    def run(
        self,
        tasks: Tasks,
        changes: Changes,
        steps: Sequence[Rows],
        run_ids: Mapping[str, str],  # noqa: ARG002  what a server lost is written again
    ) -> Sequence[Written]:
        """Write the rows of steps, each in a task."""
        return tasks.run(write_table, [TableJob(changes, step, self._options) for step in steps])

    def ddl(self, servers: RedisServers, work: DdlWork) -> None:
        """Move keys. SinkRefused for rows that Redis does not have any more."""
        moves = list(moves_of(work.effects, self._options, work.commit_ts, work.ddl.told))
        run_moves(servers, moves, work.commit_ts, work.number)


def write_table(job: TableJob) -> Written:
    """Write the job's rows; return when Redis has them. Raises what reading and writing do."""
    step = job.step
    done = Written(step.table.name)
    servers = RedisServers(job.options)
    try:
        for chunk in done.coming(job.changes.batches(step.table.name, step.after, step.upto)):
            for batch, _ in chunk.parts:
                _write_batch(servers, job, batch, done)
    finally:
        servers.close()
    return done


def _write_batch(servers: RedisServers, job: TableJob, batch: Batch, done: Written) -> None:
    try:
        entries = converted(batch, partial(_entries, job.options, job.step.table))
        names = FORMS[job.options.mode].names([field.name for field in batch.fields])
        with writing():
            done.size_bytes += write(servers, names, entries, channel_of(job.options, job.step.table.name))
    except TidegateError as error:
        raise error.at(table=str(job.step.table.name), commit_ts=batch.commit_ts[0].as_py()) from None
    done.rows += batch.rows
    done.messages += len(entries)


def _entries(options: RedisOptions, table: TableInfo, batch: Batch) -> list[KeyEntry]:
    """The last change of each key, with the look-ups beside it."""
    typed = typed_batch(batch)
    prefix = parse_template(options.template).prefix(table.name)
    last = last_changes(table, typed, lambda values: row_key(prefix, values))
    rows = FORMS[options.mode].render(typed.fields, last.columns)
    versions = row_versions(last.commit_ts, pa.array([row is not None for row in last.rows], pa.bool_()))
    found = [
        KeyEntry(key, version, None if row is None else rows[row], ROW, key)
        for key, version, row in zip(last.keys, versions, last.rows, strict=True)
    ]
    if not options.lookups:
        return found
    groups: dict[bytes, list[KeyEntry]] = {}
    for entry in chain(found, lookup_entries(table, typed, prefix, options.mode)):
        groups.setdefault(entry.beside, []).append(entry)
    return list(chain.from_iterable(groups.values()))
