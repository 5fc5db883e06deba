"""`tidegate decode`: what stands in a file or a topic, one event JSON object a line.

    framed file, gzip or plain ─┐
    standard input             ─┼→ (key, value) → decode → claim check fetched when its storage is given → a line
    topic, from its start to   ─┘                     │
    the end it had at the start                       └→ DecodeError → a line of kind "error"

$ tidegate decode --protocol open-protocol messages.bin.gz
$ tidegate decode --protocol canal-json --set claim-check-storage-uri=file:///var/claims messages.bin
$ tidegate decode --from 'kafka://127.0.0.1:9092/shop?protocol=canal-json'

A message that cannot be read never stops the others.  Exit status: 0 when all were read, 1 when there were errors.
"""

import gzip
import sys
import zlib
from collections.abc import Iterator
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import click

from tidegate.codec import DecodeOptions, from_config
from tidegate.codec import decode as decode_message
from tidegate.codec.claim import open_claim
from tidegate.codec.frame import read_frames
from tidegate.codec.neutral import Json, error_object, event_object, render
from tidegate.codec.options import DECODE_KEYS
from tidegate.model.errors import ConfigError, DecodeError, SourceError
from tidegate.model.event import Ddl, Event, Resolved

__all__ = ["decode"]

Message: TypeAlias = tuple[bytes | None, bytes | None, str]
"""Key, value and place (topic/partition/offset; "" in a file)."""

_GZIP_MAGIC: Final = b"\x1f\x8b"


@click.command()
@click.option("--protocol", metavar="NAME", help="open-protocol or canal-json.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="A key of the changefeed; may be repeated.")
@click.option("--legacy", is_flag=True, help="VARCHAR as base64 (before 2021); official Canal's ENUM and SET names.")
@click.option("--from", "source", metavar="URI", help="A topic, kafka://HOST:PORT/TOPIC, instead of a file.")
@click.argument("file", default="-", metavar="[FILE]")
def decode(*, protocol: str | None, settings: tuple[str, ...], legacy: bool, source: str | None, file: str) -> None:
    """Print messages as events, one JSON object a line.

    FILE holds messages one after the other, each with 4-byte big-endian lengths before key and value; gzip is
    recognised, and - (or nothing) is standard input.
    """
    if source is not None and file != "-":
        raise click.UsageError("give FILE or --from, not both")
    options = _options(protocol, settings, source, legacy=legacy)
    out = sys.stdout.buffer
    failed = False
    for line in _lines(_topic(source, options) if source is not None else _framed(file), options):
        failed = failed or line["kind"] == "error"
        out.write(render(line) + b"\n")
    out.flush()
    if failed:
        click.get_current_context().exit(1)


def _options(protocol: str | None, settings: tuple[str, ...], source: str | None, *, legacy: bool) -> DecodeOptions:
    config: dict[str, object] = {}
    for name, value in parse_qsl(urlsplit(source or "").query):
        if name in DECODE_KEYS:
            config[f"uri.{name}"] = value
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--set {setting}: write KEY=VALUE")
        config[key.strip()] = value.strip()
    if legacy:
        config["legacy"] = True
    try:
        return from_config(config, protocol)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _lines(messages: Iterator[Message], options: DecodeOptions) -> Iterator[Json]:
    """Event objects of all messages, in order, and error objects where there are none."""
    index = 0
    while True:
        place = ""
        try:
            key, value, place = next(messages)
            for event in decode_message(key, value, options):
                yield from map(event_object, _whole(event, options))
        except StopIteration:
            return
        except DecodeError as error:
            yield error_object(index, error) | ({"place": place} if place else {})
        index += 1


def _whole(event: Event, options: DecodeOptions) -> tuple[Event, ...]:
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


def _framed(file: str) -> Iterator[Message]:
    """The messages of a framed file; click's error where the file cannot be read."""
    try:
        with _open(file) as stream:
            yield from ((key, value, "") for key, value in read_frames(_unzipped(stream)))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise click.FileError(file, hint=reason) from error


def _open(file: str) -> BufferedReader:
    if file == "-":
        stream = sys.stdin.buffer
        return stream if isinstance(stream, BufferedReader) else BufferedReader(stream)  # type: ignore[arg-type]
    return Path(file).open("rb")


def _unzipped(stream: BufferedReader) -> BufferedIOBase:
    return gzip.GzipFile(fileobj=stream) if stream.peek(2)[:2] == _GZIP_MAGIC else stream


def _topic(uri: str, options: DecodeOptions) -> Iterator[Message]:
    from tidegate.app.topics import kafka_topics
    from tidegate.source.kafka.cli_stream import messages

    return messages(kafka_topics(uri, options))
