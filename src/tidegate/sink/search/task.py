"""What tasks do: rows of a round into their index, and one index out of others.

changes  ─► parts   ─► the last change of each key ─► documents ─► writer        write_table
pages    ─► rows    ─► as the DDL makes them       ─► documents ─► writer        fill_index

Parts of a chunk share no order: rows of one layout may lie between those of another, and a large transaction is cut
anywhere.  So a part leaves out what an earlier part of its chunk wrote newer; of one commit_ts what comes wins over
what goes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, Written
from tidegate.engine.refused_rows import converted, refused_rows
from tidegate.model.errors import SinkRefused, TidegateError
from tidegate.model.event import ToldSession, Value
from tidegate.model.table import TableInfo
from tidegate.objectstore.failpoint import reach
from tidegate.sink.documents.change import Change, altered, as_columns, inside
from tidegate.sink.documents.last import last_changes
from tidegate.sink.documents.values import Row, fields_of, json_objects, row_of_json
from tidegate.sink.search.catalog import Filling, Part, TableIndex
from tidegate.sink.search.mapping import field_name
from tidegate.sink.search.names import document_id
from tidegate.sink.search.store import IndexWriter, RowDocument, SearchStore

_Newest: TypeAlias = dict[str, tuple[int, bool]]
"""By the id of a document the commit_ts that was written, and whether a row came with it."""


@dataclass(frozen=True, slots=True)
class IndexJob:
    """The rows of a step, and their index."""

    changes: Changes
    step: Rows
    store: SearchStore
    made: TableIndex
    epoch: int


@dataclass(frozen=True, slots=True)
class FillJob:
    """One share of the documents that a new index begins with, as a DDL of `commit_ts` makes them."""

    filling: Filling
    store: SearchStore
    epoch: int
    time_zone: str
    commit_ts: int
    session: ToldSession
    share: int = 0
    shares: int = 1


def write_table(job: IndexJob) -> Written:
    """Write the job's rows; return when the index has them. Raises what reading and writing do."""
    step = job.step
    done = Written(step.table.name)
    try:
        with job.store.writer(job.made, job.epoch) as writer:
            for chunk in done.coming(job.changes.batches(step.table.name, step.after, step.upto)):
                written: _Newest = {}
                for batch, _ in chunk.parts:
                    _write_batch(writer, step.table, batch, done, written if len(chunk.parts) > 1 else None)
            writer.finish(step.upto)
            reach("search/after-write")
    finally:
        job.store.close()
    return done


def _write_batch(writer: IndexWriter, table: TableInfo, batch: Batch, done: Written, written: _Newest | None) -> None:
    try:
        documents = converted(batch, partial(_documents, table))
        reach("search/before-write")
        done.size_bytes += writer.write(documents if written is None else list(_newer(documents, written)))
    except SinkRefused as error:
        rows = np.flatnonzero(batch.commit_ts.to_numpy() == error.where.commit_ts).tolist()
        if error.messages or not rows:
            raise error.at(table=str(table.name), commit_ts=batch.commit_ts[0].as_py()) from None
        raise refused_rows(batch, rows, str(error), kind=SinkRefused) from error
    except TidegateError as error:
        raise error.at(table=str(table.name), commit_ts=batch.commit_ts[0].as_py()) from None
    done.rows += batch.rows
    done.messages += len(documents)


def _documents(table: TableInfo, batch: Batch) -> list[RowDocument]:
    """The last change of each key, as its document."""
    typed = typed_batch(batch)
    last = last_changes(table, typed, document_id)
    names = [field_name(field.name) for field in typed.fields]
    objects = json_objects(names, typed.fields, last.columns)
    sources = [None if row is None else objects[row] for row in last.rows]
    return [RowDocument(*one) for one in zip(last.keys, last.commit_ts.to_pylist(), sources, strict=True)]


def _newer(documents: Sequence[RowDocument], written: _Newest) -> Iterator[RowDocument]:
    """The documents that are newer than what was written under their ids; they are noted there."""
    for one in documents:
        at = one.commit_ts, one.source is not None
        if at >= written.get(one.id, at):
            written[one.id] = at
            yield one


def fill_index(job: FillJob) -> Written:
    """Write a share of what a new index begins with; return when the index has it."""
    filling = job.filling
    done = Written(filling.table.name)
    try:
        with job.store.writer(filling.made, job.epoch) as writer:
            for part in filling.parts:
                for page in job.store.pages(part.index, job.share, job.shares):
                    documents = list(_filled(job, part, page))
                    writer.write(documents)
                    done.messages += len(documents)
                    reach("search/amid-fill")
            writer.finish(job.commit_ts)
    finally:
        job.store.close()
    return done


def _filled(job: FillJob, part: Part, page: list[tuple[str, bytes]]) -> Iterator[RowDocument]:
    """The documents of a page that the new index gets."""
    ts, table = job.commit_ts, job.filling.table
    takes = None
    if part.partitions:
        lies = inside(part.old, part.partitions, job.time_zone)
        takes = lies if part.within else _not(lies)
    if part.how == "copy":
        for name, source in page:
            if takes is None or takes(row_of_json(part.old, source, field_name)):
                yield RowDocument(name, ts, source)
        return
    change = _change(job, part)
    rows = [row_of_json(part.old, source, field_name) for _, source in page]
    made = [change(row) for row in rows if takes is None or takes(row)]
    fields = fields_of(table)
    columns: list[list[Value]] = [[row[field.name] for row in made] for field in fields]
    objects = json_objects([field_name(field.name) for field in fields], fields, columns)
    key = [column.name for name in table.handle_key if (column := table.column(name)) is not None]
    for row, source in zip(made, objects, strict=True):
        yield RowDocument(document_id([row[name] for name in key]), ts, source)


def _change(job: FillJob, part: Part) -> Change:
    table = job.filling.table
    if part.how == "alter":
        found = altered(part.old, table, job.time_zone, job.commit_ts, job.session, keeps_null=True)
        assert found is not None, "rows that stay as they are get copied"
        return found
    return as_columns(part.old, table)


def _not(lies: Callable[[Row], bool]) -> Callable[[Row], bool]:
    return lambda row: not lies(row)
