"""What commands on messages share: framed messages from a file, rows in claim checks, and the way out.

FILE or -, gzip or plain ─→ (key, value), one after the other
row with a claim check   ─→ the row that its file holds, when a storage is given; else the row as it came
bytes                    ─→ standard output
Refused                  ─→ a line on standard error; the others go on, and the exit status is 1
"""

import gzip
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Final, NamedTuple

import click

from tidegate.codec import DecodeOptions
from tidegate.codec import decode as decode_message
from tidegate.codec.claim import open_claim
from tidegate.codec.frame import read_frames
from tidegate.model.errors import SourceError, TidegateError
from tidegate.model.event import Ddl, Event, Resolved

__all__ = ["Refused", "clock", "framed_messages", "settings_of", "whole", "write_out"]

_GZIP_MAGIC: Final = b"\x1f\x8b"


class Refused(NamedTuple):
    """What gave no message, where it stands ("" where the error says so itself), and why."""

    place: str
    error: TidegateError


def framed_messages(file: str) -> Iterator[tuple[bytes, bytes]]:
    """The messages of a framed file; click's error where the file cannot be read."""
    try:
        with _open(file) as stream:
            yield from read_frames(_unzipped(stream))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise click.FileError(file, hint=reason) from error


def settings_of(words: tuple[str, ...], option: str = "--set") -> dict[str, object]:
    """The keys and values of a repeated KEY=VALUE option."""
    found: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise click.UsageError(f"{option} {word}: write KEY=VALUE")
        found[key.strip()] = value.strip() or value
    return found


def write_out(found: Iterable[bytes | Refused]) -> None:
    """Writes what comes, tells what was refused; status 1 if anything was."""
    failed = False
    for part in found:
        if isinstance(part, Refused):
            failed = True
            place = f"{part.place}: " if part.place else ""
            click.echo(f"error {part.error.code}: {place}{part.error}", err=True)
        else:
            sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()
    if failed:
        click.get_current_context().exit(1)


def clock(now_ms: int | None) -> Callable[[], int]:
    """Canal-JSON's clock in ms: it stands at `now_ms` if that is given."""
    return (lambda: time.time_ns() // 1_000_000) if now_ms is None else lambda: now_ms


def whole(event: Event, options: DecodeOptions) -> tuple[Event, ...]:
    """The event, or what its claim check holds when that can be had."""
    if isinstance(event, Ddl | Resolved) or event.claim_check is None or not options.claim_check_storage_uri:
        return (event,)
    from tidegate.source.kafka.claim import fetch

    try:
        body = fetch(event.claim_check, options.claim_check_storage_uri)
    except SourceError as error:
        click.echo(f"warning {error.code}: {error}", err=True)
        return (event,)
    return decode_message(*open_claim(body, options), options)


def _open(file: str) -> BufferedReader:
    if file == "-":
        stream = sys.stdin.buffer
        return stream if isinstance(stream, BufferedReader) else BufferedReader(stream)  # type: ignore[arg-type]
    return Path(file).open("rb")


def _unzipped(stream: BufferedReader) -> BufferedIOBase:
    return gzip.GzipFile(fileobj=stream) if stream.peek(2)[:2] == _GZIP_MAGIC else stream
