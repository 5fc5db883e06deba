"""`tidegate encode`: event lines in, the messages that TiCDC would send out.

    event JSON lines, gzip or plain ─→ EventReader ─→ BatchEncoder ─→ framed messages on standard output
    (with their `table` lines)          │                │
                                        │                └→ EncodeError → a line on standard error
                                        └→ CsvEncoder (--protocol csv) ─→ lines of a storage sink's files

$ tidegate encode --protocol open-protocol events.jsonl.gz > messages.bin
$ tidegate encode --protocol canal-json --set enable-tidb-extension=true --ts 1700000000000 - < events.jsonl
$ tidegate encode --protocol open --set dialect=newarch --set uri.max-message-bytes=2000 events.jsonl
$ tidegate encode --protocol csv --set sink.csv.include-commit-ts=true events.jsonl

An event that cannot be written never stops the others.  Exit status: 0 if all were written, 1 if there were errors.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import click

from tidegate.cli.framed import RefusedMessage, clock, settings_of, unzipped, write_out
from tidegate.codec.batch import BatchEncoder, Message, join_for_storage
from tidegate.codec.csv import CsvEncoder, csv_options
from tidegate.codec.encoding import encode_options, ignored_keys
from tidegate.codec.neutral_read import EventReader
from tidegate.codec.stream import pack_frame
from tidegate.codec.zone import hour_twice
from tidegate.model.errors import ConfigError, EncodeError
from tidegate.model.event import Ddl, Resolved
from tidegate.sink.kafka_topics import ClaimFiles, random_names

Options = TypeVar("Options")

CSV: Final = "csv"


@click.command()
@click.option("--protocol", metavar="NAME", help="open-protocol, canal-json or csv.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="A configuration key; may be repeated.")
@click.option("--ts", "now_ms", type=int, metavar="MS", help="Canal-JSON's clock, in ms; default: now.")
@click.option(
    "--claim-names", type=click.Path(exists=True, dir_okay=False), help="File with claim check names, one per line."
)
@click.option("--storage", is_flag=True, help="Write values followed by the terminator, as in files of a storage sink.")
@click.argument("file", default="-", metavar="[FILE]")
def encode(
    *,
    protocol: str | None,
    settings: tuple[str, ...],
    now_ms: int | None,
    claim_names: str | None,
    storage: bool,
    file: str,
) -> None:
    """Encode events as messages, byte for byte as TiCDC does.

    FILE holds event JSON lines as `tidegate decode` prints them, and `table` lines before the rows that name them; gzip
    is recognised, and - (or nothing) is standard input.  Messages are written with 4-byte big-endian lengths before key
    and value.  --set dialect=newarch selects the messages of TiCDC's new architecture."""
    config = settings_of(settings)
    if _protocol(protocol, config) == CSV:
        write_out(_csv_lines(file, CsvEncoder(_read(csv_options, config))))
        return
    options = _read(lambda options_read: encode_options(options_read, protocol), config)
    if storage and (options.protocol != "canal-json" or options.large_message_handle != "none"):
        raise click.UsageError("--storage needs canal-json without large-message-handle-option")
    for key, reason in ignored_keys(config).items():
        click.echo(f"note: {key} is ignored: {reason}", err=True)
    if warning := hour_twice(options.time_zone):
        click.echo(f"note: {warning}", err=True)
    names = iter(Path(claim_names).read_text("utf-8").split()) if claim_names else random_names()
    encoder = BatchEncoder(options, now_ms=clock(now_ms), claims=ClaimFiles(options.claim_check_storage_uri, names))
    framed = partial(_stored, options.terminator) if storage else _framed
    write_out(_messages(file, encoder, framed))


def _protocol(protocol: str | None, config: Mapping[str, object]) -> str:
    named = (str(value) for key, value in config.items() if key.rpartition(".")[2] == "protocol")
    return (protocol or next(named, "")).lower()


def _read(read: Callable[[Mapping[str, object]], Options], config: Mapping[str, object]) -> Options:
    """Return the result of `read` for the configuration; a usage error if it is refused."""
    try:
        return read(config)
    except ConfigError as error:
        raise click.UsageError(f"{error} ({error.code})") from error


def _framed(message: Message) -> bytes:
    return pack_frame(message.key, message.value)


def _stored(terminator: str, message: Message) -> bytes:
    return join_for_storage([message], terminator)


def _messages(file: str, encoder: BatchEncoder, framed: Callable[[Message], bytes]) -> Iterator[bytes | RefusedMessage]:
    """Yield the messages of all lines in order, and the lines that could not be encoded."""
    reader = EventReader()
    for number, line in enumerate(_lines(file), 1):
        try:
            item = reader.read(line) if line.strip() else None
            if item is not None:
                yield from map(framed, encoder.append(item.event, item.table, item.row_key))
        except EncodeError as error:
            yield RefusedMessage(f"line {number}", error)
    yield from map(framed, encoder.flush())


def _csv_lines(file: str, encoder: CsvEncoder) -> Iterator[bytes | RefusedMessage]:
    """The csv lines of all rows, with a header wherever another table begins; other events have none."""
    reader, last = EventReader(), None
    for number, line in enumerate(_lines(file), 1):
        try:
            item = reader.read(line) if line.strip() else None
            if item is None or item.table is None or isinstance(item.event, Ddl | Resolved):
                continue
            written = encoder.row(item.event, item.table)
            yield written if item.table is last else encoder.header(item.table) + written
            last = item.table
        except EncodeError as error:
            yield RefusedMessage(f"line {number}", error)


def _lines(file: str) -> Iterator[bytes]:
    with unzipped(file) as stream:
        yield from stream
