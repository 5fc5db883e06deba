"""Fields of log records: what a record is about, for readers that are programs.

    with fields(changefeed="default/orders"):    every record of this context, until the end of the block
        LOG.warning("%s", error)                 an error in its arguments, trace or `extra` adds its code, table, ..

The fields of an error are `code` and those of `Where` that are known.  Threads and pools that a changefeed begins take
them along (objectstore/threads.py).
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

from tidegate.model.errors import TidegateError, Where

Field = str | int
_CONTEXT: Final[ContextVar[Mapping[str, Field]]] = ContextVar("log_fields")
_UNSET: Final = msgspec.structs.asdict(Where())


@contextmanager
def fields(**values: Field) -> Iterator[None]:
    """Add fields to the records of a block."""
    token = _CONTEXT.set({**context(), **values})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def context() -> Mapping[str, Field]:
    """Return the fields of the records that this context logs."""
    return _CONTEXT.get({})


def fields_of(record: logging.LogRecord) -> dict[str, Field]:
    """Return the fields of a record; called by the thread that writes it."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    values = *arguments, (record.exc_info or (None, None))[1], getattr(record, "error", None)
    errors = [value for value in values if isinstance(value, TidegateError)]
    of_record: dict[str, Field] = {**context()}
    for error in errors:
        where = msgspec.structs.asdict(error.where)
        of_record |= {"code": error.code, **{name: value for name, value in where.items() if value != _UNSET[name]}}
    return of_record


class Tail(logging.Handler):
    """The last lines of the log, for a support bundle."""

    LINES: Final = 2_000

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=self.LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's line, cut at 4,096 characters."""
        self.lines.append(self.format(record)[:4096])


def log_tail() -> list[str]:
    """Return the last lines of this process's log, oldest first."""
    tails = [handler for handler in logging.getLogger().handlers if isinstance(handler, Tail)]
    return [line for tail in tails for line in tail.lines]
