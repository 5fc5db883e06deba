"""`tidegate decode`: what stands in a file or a topic, one event JSON object a line.

    framed file, gzip or plain ─┐
    standard input             ─┼→ (key, value) → decode → rows that came cut down made whole → a line
    topic, from its start to   ─┘                     │    (claim-check storage, --complete-from)
    the end it had at the start                       └→ DecodeError → a line of kind "error"

With --pretty each is a block for people instead (cli/pretty.py).

$ tidegate decode --protocol open-protocol messages.bin.gz
$ tidegate decode --protocol canal-json --set claim-check-storage-uri=file:///var/claims messages.bin
$ tidegate decode --pretty --protocol open-protocol messages.bin.gz
$ tidegate decode --complete-from mysql://reader:secret@10.0.0.1:4000/ --protocol open-protocol messages.bin
$ tidegate decode --from 'kafka://127.0.0.1:9092/shop?protocol=canal-json'

A message that cannot be read never stops the others, and a row that cannot be made whole comes as it is, with a line on
standard error.  Exit status: 0 when all were read and made whole, 1 when there were errors.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import click

from tidegate.cli.framed import address, framed_messages, settings_of, whole_events
from tidegate.codec import DecodeOptions, from_config
from tidegate.codec import decode as decode_message
from tidegate.codec.neutral import Json, error_object, event_object, render
from tidegate.codec.options import DECODE_KEYS
from tidegate.config.say import say
from tidegate.model.errors import ConfigError, DecodeError, TidegateError
from tidegate.model.event import Event

UPSTREAM: Final = "large-message-upstream-uri"

Message: TypeAlias = tuple[bytes | None, bytes | None, str]
"""Key, value and place (topic/partition/offset; "" in a file)."""


@click.command()
@click.option("--protocol", metavar="NAME", help="open-protocol or canal-json.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="A key of the changefeed; may be repeated.")
@click.option("--legacy", is_flag=True, help="VARCHAR as base64 (before 2021); official Canal's ENUM and SET names.")
@click.option(
    "--from", "source", metavar="URI", callback=address, help="A topic, kafka://HOST:PORT/TOPIC, instead of a file."
)
@click.option(
    "--complete-from",
    "upstream",
    metavar="URI",
    callback=address,
    help="Rows cut to their key: read from mysql://USER:PASSWORD@HOST:PORT/.",
)
@click.option("--pretty", is_flag=True, help="A block an event for people, instead of JSON.")
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
        raise click.UsageError("give FILE or --from, not both")
    options = _options(protocol, settings, source, upstream, legacy=legacy)
    framed = ((key, value, "") for key, value in framed_messages(file))
    found = _events(_topic(source, options) if source is not None else framed, options)
    cut: list[str] = []
    whole = (event for _, event in whole_events(found, options, partial(_cut, cut)))
    failed = _blocks(whole) if pretty else _lines(whole)
    if failed or cut:
        click.get_current_context().exit(1)


def _cut(told: list[str], place: str, error: TidegateError) -> None:
    told.append(place)
    say(f"warning {error.code}: {place}: {error}", err=True)


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


def _lines(found: Iterator[Event | Json]) -> bool:
    """Prints a JSON object a line; whether there were errors."""
    out, failed = sys.stdout.buffer, False
    for each in found:
        failed = failed or isinstance(each, dict)
        out.write(render(each if isinstance(each, dict) else event_object(each)) + b"\n")
    out.flush()
    return failed


def _blocks(found: Iterator[Event | Json]) -> bool:
    """Prints a block an event; whether there were errors."""
    from tidegate.cli.pretty import block, error_block, printer

    out, failed = printer(), False
    for each in found:
        failed = failed or isinstance(each, dict)
        out(error_block(each) if isinstance(each, dict) else block(each))
    return failed


def _events(messages: Iterator[Message], options: DecodeOptions) -> Iterator[tuple[str, Event | Json]]:
    """The events of all messages with their places, in order, and error objects where there are none."""
    index = 0
    while True:
        place = ""
        try:
            key, value, place = next(messages)
            for event in decode_message(key, value, options):
                yield place or f"message {index}", event
        except StopIteration:
            return
        except DecodeError as error:
            yield place, error_object(index, error) | ({"place": place} if place else {})
        index += 1


def _topic(uri: str, options: DecodeOptions) -> Iterator[Message]:
    from tidegate.config.topics import kafka_topics
    from tidegate.source.kafka.fetch import messages

    return messages(kafka_topics(uri, options))
