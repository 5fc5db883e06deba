"""Framed messages for commands: reading them, completing cut rows, writing results and reporting refused messages.

FILE or -, gzip or plain       ─→ (key, value), one after the other
row with only its handle key   ─→ the whole row, from a claim-check storage or the upstream if one is given
bytes                          ─→ standard output
RefusedMessage                 ─→ a line on standard error; processing continues, and the exit status is 1
"""

import gzip
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase, BufferedReader, RawIOBase
from itertools import islice
from typing import Final, NamedTuple, TypeVar, cast

import click

from tidegate.cli.output import echo
from tidegate.codec import DecodeOptions, EncodeOptions, encode_options
from tidegate.codec.kept import TABLES_MAX, LayoutMemory
from tidegate.codec.stream import read_frames
from tidegate.codec.wire_table import WireTable, table_of_row
from tidegate.config.uri import resolve_uri
from tidegate.model.errors import ConfigError, SchemaError, SqlError, TidegateError, UnsupportedError
from tidegate.model.event import Ddl, Field, RowChange
from tidegate.model.table import TableName
from tidegate.schema.snapshot import SchemaState

Where = TypeVar("Where")
Sniffing = TypeVar("Sniffing")

_GZIP_MAGIC: Final = b"\x1f\x8b"


class RefusedMessage(NamedTuple):
    """A message that could not be processed: its position ("" if the error states it) and the error."""

    position: str
    error: TidegateError


@contextmanager
def unzipped(file: str) -> Iterator[BufferedIOBase]:
    """Open a file or standard input (-), gzip or plain; raises click's error if it cannot be read."""
    try:
        with click.open_file(file, "rb") as raw:
            stream = raw if isinstance(raw, BufferedReader) else BufferedReader(cast("RawIOBase", raw))
            zipped = stream.peek(2)[:2] == _GZIP_MAGIC
            yield gzip.GzipFile(fileobj=stream) if zipped else stream
    except (OSError, EOFError, zlib.error) as error:
        raise click.FileError(file, hint=getattr(error, "strerror", None) or str(error)) from error


def framed_messages(file: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the messages of a framed file; raises click's error if it cannot be read."""
    with unzipped(file) as stream:
        yield from read_frames(stream)


def settings_of(words: tuple[str, ...], option: str = "--set") -> dict[str, object]:
    """Return the keys and values of a repeated KEY=VALUE option."""
    pairs: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} {word}: write KEY=VALUE")
        pairs[key.strip()] = value.strip() or value
    return pairs


def write_out(messages: Iterable[bytes | RefusedMessage]) -> None:
    """Write messages and report refused ones; exit with status 1 if any was refused."""
    failed = False
    for part in messages:
        if isinstance(part, RefusedMessage):
            failed = True
            position = f"{part.position}: " if part.position else ""
            echo(f"error {part.error.code}: {position}{part.error}", err=True)
        else:
            sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()
    if failed:
        click.get_current_context().exit(1)


def address(_context: click.Context, option: click.Parameter, uri: str | None) -> str | None:
    """Return the address that an option names: itself, or the content of a file or variable."""
    return None if uri is None else resolve_uri(uri, option.opts[0])


def clock(now_ms: int | None) -> Callable[[], int]:
    """Return Canal-JSON's clock in ms; it is fixed at `now_ms` if that is set."""
    return (lambda: time.time_ns() // 1_000_000) if now_ms is None else lambda: now_ms


def whole_events(
    events: Iterable[tuple[Where, Sniffing]], options: DecodeOptions, refused: Callable[[Where, TidegateError], None]
) -> Iterator[tuple[Where, Sniffing | RowChange]]:
    """Yield events with cut rows completed as `options` say; `refused` is called for rows that stay cut."""
    if not (options.claim_check_storage_uri or options.upstream_uri):
        yield from events
        return
    from tidegate.source.large import WINDOW, WholeRows

    reader, rest = WholeRows(options), iter(events)
    try:
        while window := list(islice(rest, WINDOW)):
            wholes = reader.whole([event for _, event in window if reader.makes_whole(event)])
            for where, event in window:
                whole = next(wholes) if reader.makes_whole(event) else None
                if isinstance(whole, TidegateError):
                    refused(where, whole)
                yield where, event if whole is None or isinstance(whole, TidegateError) else whole
    finally:
        reader.close()


class FollowedTables:
    """Tables as of the DDLs among the messages, for properties that rows do not carry (`wire`)."""

    def __init__(self) -> None:
        self.state = SchemaState()
        self._wires = LayoutMemory[tuple[object, ...], tuple[tuple[Field, ...], WireTable]](TABLES_MAX)

    def follow(self, ddl: Ddl) -> None:
        """Apply a DDL; one that cannot be followed leaves the tables as they are."""
        from tidegate.schema.state import apply_ddl  # twice the time that this command takes to start

        self._wires.clear()
        with suppress(SqlError, SchemaError, UnsupportedError):  # a table that is not known is told when it matters
            self.state, _ = apply_ddl(self.state, ddl, 0)

    def wire(self, row: RowChange) -> WireTable:
        """Return the table of a decoded row; rows of one layout share their fields, so those are known by identity."""
        key = (row.schema, row.table, id(row.fields), row.pk_names)
        entry = self._wires.get(key)
        if entry is None:
            table = self.state.table(TableName(row.schema, row.table))
            entry = self._wires.keep(key, (row.fields, table_of_row(row, table)))
        return entry[1]


_OTHER: Final = {"open-protocol": "canal-json", "canal-json": "open-protocol"}


def target_options(config: dict[str, object], protocol: str | None, read: DecodeOptions) -> EncodeOptions:
    """Return the encoder's options of a transcoding. Raises ConfigError for options that need more than messages
    carry."""
    named = any(key.rpartition(".")[2] == "protocol" for key in config)
    written = encode_options(config, protocol or (None if named else _OTHER[read.protocol]))
    if written.content_compatible and written.protocol == "canal-json" and read.protocol == "open-protocol":
        raise ConfigError(
            "content-compatible needs the parameters of types, such as the 50 of varchar(50), "
            "which open-protocol does not carry"
        )
    if written.output_row_key:
        raise ConfigError("output-row-key needs the key of a row in TiKV, which no message carries")
    return written
