"""`tidegate decode`: the events of a file or a topic, one JSON object per line.

    framed file, gzip or plain ─┐
    standard input             ─┼→ (key, value) → decode → cut rows completed → a line, or a block with --pretty
    topic, from its start to   ─┘                     │    (claim-check storage, --complete-from)
    the end it had at the start                       └→ DecodeError → a line of kind "error"

$ tidegate decode --protocol open-protocol messages.bin.gz
$ tidegate decode --protocol canal-json --set claim-check-storage-uri=file:///var/claims messages.bin
$ tidegate decode --pretty --protocol open-protocol messages.bin.gz
$ tidegate decode --complete-from mysql://reader:secret@10.0.0.1:4000/ --protocol open-protocol messages.bin
$ tidegate decode --from 'kafka://127.0.0.1:9092/shop?protocol=canal-json'

A message that cannot be read never stops the others.  A row that cannot be completed is printed as it is, with a line
on standard error.  Exit status: 0 if all messages were read and completed, 1 if there were errors.
"""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import click
from rich.console import Console
from rich.text import Text

from tidegate.cli.framed import address, framed_messages, settings_of, whole_events
from tidegate.cli.output import echo
from tidegate.codec import DecodeOptions, from_config
from tidegate.codec import decode as decode_message
from tidegate.codec.neutral import Json, error_object, event_object, render
from tidegate.codec.options import DECODE_KEYS
from tidegate.model.errors import ConfigError, DecodeError, TidegateError
from tidegate.model.event import Ddl, Delete, Event, Insert, Resolved, RowChange, Update, Value, images
from tidegate.model.tso import physical_ms

_MAX_SHOWN: Final = 200
_WORDS: Final[dict[type, tuple[str, str]]] = {
    Insert: ("INSERT", "green"),
    Update: ("UPDATE", "yellow"),
    Delete: ("DELETE", "red"),
}
_GONE: Final = object()


def printer() -> Callable[[Text], None]:
    """Print blocks on standard output without wrapping."""
    console = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
    return console.print


def block(event: Event) -> Text:
    """Return the block that --pretty prints of an event, with the empty line after it.

        UPDATE shop.orders  470606743881121792  2026-03-17 09:31:05.250 UTC
          id *    1
          total   '10.00' -> '12.00'
          note    NULL

        DDL shop.orders  470606744143265793  2026-03-17 09:31:06.250 UTC
          ALTER TABLE orders ADD COLUMN c INT

        RESOLVED  470606744143265794  2026-03-17 09:31:06.250 UTC

    A star marks the handle columns.  A column that did not change has one value.  Text is quoted and cut, bytes are
    hexadecimal, and control characters are escaped, so that foreign data can be looked at in a terminal.  Colours
    only on a terminal."""
    match event:
        case Resolved():
            return Text.assemble(("RESOLVED", "dim"), f"  {_moment(event.ts, None)}\n")
        case Ddl():
            name = ".".join(_plain(part) for part in (event.schema, event.table) if part)
            return Text.assemble(
                ("DDL", "bold magenta"), f" {name}  {_moment(event.commit_ts, event.es_ms)}\n", _statement(event.query)
            )
        case _:
            return _row(event)


def error_block(error: Json) -> Text:
    """Return the block of a message that could not be decoded."""
    where = error.get("place") or f"message {error['message_index']}"
    return Text.assemble(("ERROR", "bold red"), f" {where}  {error['code']}\n  {_plain(str(error['error']))}\n")


def _row(row: RowChange) -> Text:
    word, style = _WORDS[type(row)]
    name = f"{_plain(row.schema)}.{_plain(row.table)}"
    head = Text.assemble((word, f"bold {style}"), f" {name}  {_moment(row.commit_ts, row.es_ms)}")
    head.append("".join(_marks(row)) + "\n")
    labels = [_plain(field.name) + (" *" if field.handle else "") for field in row.fields]
    width = max(map(len, labels), default=0)
    for label, line in zip(labels, _changes(row), strict=True):
        head.append(f"  {label:<{width}}  ")
        head.append_text(line)
        head.append("\n")
    return head


def _marks(row: RowChange) -> Iterator[str]:
    if row.partition_id is not None:
        yield f"  partition {row.partition_id}"
    if row.handle_only:
        yield "  only handle columns"
    if row.claim_check is not None:
        yield f"  claim check {_plain(row.claim_check)}"


def _changes(row: RowChange) -> Iterator[Text]:
    before, after = images(row)
    for index in range(len(row.fields)):
        old = _GONE if before is None else before[index]
        new = _GONE if after is None else after[index]
        if old is _GONE or new is _GONE or old == new:
            yield Text(_shown(row, index, after is None))
        else:
            yield Text.assemble(
                (_shown(row, index, True), "red"),
                " -> ",
                (_shown(row, index, False), "green"),
            )


def _shown(row: RowChange, index: int, old: bool) -> str:  # noqa: FBT001
    before, after = images(row)
    values = before if old else after
    assert values is not None
    return _value(values[index])


def _value(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"0x{value[:_MAX_SHOWN].hex()}" + _rest(len(value), "bytes")
        case str():
            return f"'{_plain(value[:_MAX_SHOWN])}'" + _rest(len(value), "characters")
        case _:
            return str(value)


def _rest(length: int, unit: str) -> str:
    return f"… ({length} {unit})" if length > _MAX_SHOWN else ""


def _statement(query: str) -> str:
    return "".join(f"  {_plain(line)}\n" for line in query.strip().splitlines())


def _moment(ts: int | None, ms: int | None) -> str:
    """Return a timestamp as number and time of day; the time alone if there is no number."""
    if ts is None:
        return "no time" if ms is None else f"{_time(ms)} (es; no commit_ts)"
    return f"{ts}  {_time(physical_ms(ts))}"


def _time(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03} UTC"
    except (OverflowError, ValueError, OSError):
        return "beyond the year 9999"


def _plain(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


UPSTREAM: Final = "large-message-upstream-uri"

Message: TypeAlias = tuple[bytes | None, bytes | None, str]
"""Key, value and position (topic/partition/offset; "" in a file)."""


@click.command()
@click.option("--protocol", metavar="NAME", help="open-protocol or canal-json.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="A configuration key; may be repeated.")
@click.option("--legacy", is_flag=True, help="VARCHAR as base64 (before 2021); official Canal's ENUM and SET names.")
@click.option(
    "--from", "source", metavar="URI", callback=address, help="A topic, kafka://HOST:PORT/TOPIC, instead of a file."
)
@click.option(
    "--complete-from",
    "upstream",
    metavar="URI",
    callback=address,
    help="Complete rows cut to their key from mysql://USER:PASSWORD@HOST:PORT/.",
)
@click.option("--pretty", is_flag=True, help="Print a readable block per event, instead of JSON.")
@click.argument("file", default="-", metavar="[FILE]")
def decode(
    *,
    protocol: str | None,
    settings: tuple[str, ...],
    legacy: bool,
    source: str | None,
    upstream: str | None,
    pretty: bool,
    file: str,
) -> None:
    """Print messages as events, one JSON object a line.

    FILE holds messages one after the other, each with 4-byte big-endian lengths before key and value; gzip is
    recognised, and - (or nothing) is standard input.
    """
    if source is not None and file != "-":
        raise click.UsageError("FILE and --from are mutually exclusive")
    options = _options(protocol, settings, source, upstream, legacy=legacy)
    framed: Iterator[Message] = ((key, value, "") for key, value in framed_messages(file))
    if source is not None:
        from tidegate.config.kafka import kafka_topics
        from tidegate.source.kafka_fetch import messages

        framed = messages(kafka_topics(source, options))
    events = _events(framed, options)
    cut: list[str] = []
    whole = (event for _, event in whole_events(events, options, partial(_cut, cut)))
    failed = _print(whole, pretty=pretty)
    if failed or cut:
        click.get_current_context().exit(1)


def _cut(positions: list[str], position: str, error: TidegateError) -> None:
    positions.append(position)
    echo(f"warning {error.code}: {position}: {error}", err=True)


def _options(
    protocol: str | None, settings: tuple[str, ...], source: str | None, upstream: str | None, *, legacy: bool
) -> DecodeOptions:
    query = parse_qsl(urlsplit(source or "").query)
    config: dict[str, object] = {f"uri.{name}": value for name, value in query if name in DECODE_KEYS}
    config |= settings_of(settings)
    if upstream is not None:
        config = {key: value for key, value in config.items() if not key.endswith(UPSTREAM)} | {UPSTREAM: upstream}
    if legacy:
        config["legacy"] = True
    try:
        return from_config(config, protocol)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _print(events: Iterator[Event | Json], *, pretty: bool) -> bool:
    """Print a JSON object per line, or a block per event; return True if there were errors."""
    lines, blocks, failed = sys.stdout.buffer, printer(), False
    for event in events:
        failed = failed or isinstance(event, dict)
        if pretty:
            blocks(error_block(event) if isinstance(event, dict) else block(event))
        else:
            lines.write(render(event if isinstance(event, dict) else event_object(event)) + b"\n")
    lines.flush()
    return failed


def _events(messages: Iterator[Message], options: DecodeOptions) -> Iterator[tuple[str, Event | Json]]:
    """Yield the events of all messages with their positions, in order, and error objects for messages that cannot be
    decoded."""
    index = 0
    while True:
        position = ""
        try:
            key, value, position = next(messages)
            for event in decode_message(key, value, options):
                yield position or f"message {index}", event
        except StopIteration:
            return
        except DecodeError as error:
            yield position, error_object(index, error) | ({"place": position} if position else {})
        index += 1
