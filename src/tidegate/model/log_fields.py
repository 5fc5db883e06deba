"""Fields of log records: what a record is about, for readers that are programs.

    with fields(changefeed="default/orders"):        every record of this context, until the end of the block
        LOG.warning("%s", error)                     an error in its arguments or trace adds its own: code, table, ..

The fields of an error are `code` and those of `Where` that are known.  A thread begins without the fields of the one
that starts it, unless it runs in a copy of its context.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

import msgspec

from tidegate.model.errors import TidegateError, Where

Field = str | int
_KNOWN: Final[ContextVar[Mapping[str, Field]]] = ContextVar("log_fields", default=MappingProxyType({}))
_UNSET: Final = msgspec.structs.asdict(Where())


@contextmanager
def fields(**known: Field) -> Iterator[None]:
    """Add fields to the records of a block."""
    token = _KNOWN.set({**_KNOWN.get(), **known})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def fields_of(record: logging.LogRecord) -> dict[str, Field]:
    """Return the fields of a record; called by the thread that writes it."""
    given = record.args if isinstance(record.args, tuple) else ()
    errors = [one for one in (*given, (record.exc_info or (None, None))[1]) if isinstance(one, TidegateError)]
    found: dict[str, Field] = {**_KNOWN.get()}
    for error in errors:
        where = msgspec.structs.asdict(error.where)
        found |= {"code": error.code, **{name: value for name, value in where.items() if value != _UNSET[name]}}
    return found
