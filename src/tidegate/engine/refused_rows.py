"""Errors about rows, with the messages that brought those rows, so that a source can set the messages aside.

    refused_rows      some rows of a batch            their positions
    converted         a batch that does not convert   the rows that do not convert alone either
    refused_layout    a layout                        all rows in it: it describes no valid table
    blamed            a table, refused by its sink    the row that the error names; if the table is known from its rows
                                                      alone, the rows of the rarest layout

When a table that is known from its rows alone is refused, some of these rows are wrong.  The rows of one layout
after another are set aside, the rarest first, until the rest is taken.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from tidegate.codec.columnar.rows import Batch
from tidegate.engine.change import Layout
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, parks
from tidegate.model.errors import EncodeError, SchemaError, SinkRefused, TidegateError
from tidegate.model.table import TableName

REFUSED_MAX: Final = 10_000
"""Messages that one error tells; the others come with the next."""
OF_TABLES: Final = SchemaError, EncodeError, SinkRefused
"""Errors that a table may be to blame for, not the configuration."""

DEFECTS: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, NotImplementedError)
"""Errors of Python and Arrow for rows that a table cannot hold; a retry raises them again."""

T = TypeVar("T")
Message = tuple[str, int, int, int]


def refused_rows(
    batch: Batch, rows: Iterable[int], what: str, rest: str = "", kind: type[TidegateError] = SchemaError
) -> TidegateError:
    """Return the error of some rows, with the place of the first in its text, and the messages of all of them."""
    some = list(islice(rows, REFUSED_MAX))
    where: dict[str, Any] = {"table": str(TableName(batch.schema, batch.table))}
    where["commit_ts"] = batch.commit_ts[some[0]].as_py()
    if batch.place is None:
        return kind(f"{what}{rest}").at(**where)
    found = list(dict.fromkeys(_messages(batch, some)))
    topic, partition, offset, _ = found[0]
    error = kind(f"{what} (topic {topic} partition {partition} offset {offset}){rest}")
    error.messages = tuple(found)
    return error.at(**where, topic=topic, partition=partition, offset=offset)


def converted(batch: Batch, convert: Callable[[Batch], T]) -> T:
    """Return what `convert` makes of a batch; its error tells the messages of the rows that it cannot take."""
    name = TableName(batch.schema, batch.table)
    if not batch.fields:
        raise refused_rows(batch, range(batch.rows), f"table {name}: a row without columns")
    try:
        return convert(batch)
    except (*OF_TABLES, *DEFECTS) as error:
        bad = [row for row in range(batch.rows) if not _takes(convert, batch.part(row, row + 1))]
        what = str(error) if isinstance(error, OF_TABLES) else f"table {name}: {type(error).__name__}: {error}"
        kind = type(error) if isinstance(error, OF_TABLES) else SinkRefused
        raise refused_rows(batch, bad or range(batch.rows), what, kind=kind) from error


def _takes(convert: Callable[[Batch], object], batch: Batch) -> bool:
    try:
        convert(batch)
    except (*OF_TABLES, *DEFECTS):
        return False
    return True


def refused_layout(changes: Changes, name: TableName, layout: Layout, what: str) -> TidegateError:
    """Return the error of a table's rows that have a layout."""
    batches = (batch for batch, found in _batches(changes, name, changes.after, changes.upto) if found == layout)
    first = next(batches)
    error = refused_rows(first, range(first.rows), f"table {name}: {what}")
    for batch in batches:
        error.messages += tuple(_messages(batch, range(batch.rows)))
    error.messages = tuple(dict.fromkeys(error.messages))[:REFUSED_MAX]
    return error


def blamed(error: TidegateError, steps: Iterable[Rows], changes: Changes) -> TidegateError:
    """Return a sink's error about these rows, with messages if it names none and is about a table that only rows tell
    of."""
    if not parks(error) or not isinstance(error, OF_TABLES):
        return error
    for step in steps:
        if step.table.inferred and error.where.table == str(step.table.name):
            at = error.where
            row = (at.topic, at.partition or 0, at.offset, at.commit_ts) if at.offset is not None else None
            error.messages = (row,) if row is not None else _rarest(changes, step)
            if error.messages:
                topic, partition, offset, ts = error.messages[0]
                return error.at(commit_ts=ts, topic=topic, partition=partition, offset=offset)
    return error


def _rarest(changes: Changes, step: Rows) -> tuple[Message, ...]:
    found: dict[Layout, list[Message]] = {}
    for batch, layout in _batches(changes, step.table.name, step.after, step.upto):
        if batch.place is not None:
            mine = found.setdefault(layout, [])
            mine += _messages(batch, range(min(batch.rows, REFUSED_MAX - len(mine))))
    return tuple(dict.fromkeys(min(found.values(), key=len, default=())))


def _batches(changes: Changes, name: TableName, after: int, upto: int) -> Iterator[tuple[Batch, Layout]]:
    for chunk in changes.batches(name, after, upto):
        for batch, _ in chunk.parts:
            yield batch, Layout(batch.fields, batch.pk_names)


def _messages(batch: Batch, rows: Sequence[int]) -> Iterator[Message]:
    places = batch.place.take(list(rows)).to_pylist()
    for row, place in zip(rows, places, strict=True):
        yield place["topic"], place["partition"], place["offset"], batch.commit_ts[row].as_py()
