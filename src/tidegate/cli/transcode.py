"""`tidegate transcode`: convert messages of one protocol into the other.

    framed file ─→ sniff (--from auto) ─→ decode ─→ claim checks fetched ─→ BatchEncoder ─→ framed messages
    gzip or plain       first messages      │                                   │
                                            └── DecodeError                     └── EncodeError
                                                    a line on standard error, then the next message
    topic ─→ cli/relay.py ─→ topic

$ tidegate transcode --set enable-tidb-extension=true open.bin.gz > canal.bin
$ tidegate transcode --from canal-json --to open-protocol --set max-batch-size=64 canal.bin > open.bin
$ tidegate transcode --to canal-json --set enable-tidb-extension=true --set large-message-handle-compression=lz4 - < x
$ tidegate transcode --from 'kafka://h/a?protocol=canal-json&enable-tidb-extension=true' --to 'kafka://h/b?protocol=open-protocol'

--set configures the output, --from-set the input.  What cannot be converted is refused or documented, never invented:
docs/formats/transcoding.md.  Exit status: 0 if all messages were written, 1 if there were errors.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

import click
import msgspec

from tidegate.cli.framed import (
    FollowedTables,
    RefusedMessage,
    address,
    clock,
    framed_messages,
    settings_of,
    target_options,
    whole_events,
    write_out,
)
from tidegate.codec import BatchEncoder, DecodeOptions, from_config
from tidegate.codec.sniff import Sniffed, sniff_all
from tidegate.codec.stream import CODEC as FRAME
from tidegate.codec.stream import StreamPosition, decode_messages, pack_frame
from tidegate.engine.event_filter import acting
from tidegate.model.errors import ConfigError, DecodeError, EncodeError, TidegateError
from tidegate.model.event import Ddl, RowChange
from tidegate.sink.kafka_topics import ClaimFiles, random_names

AUTO: Final = "auto"
KAFKA: Final = "kafka://"
_SAMPLE: Final = 64
"""Messages from which the protocol is detected."""

Frames = Iterator[tuple[bytes, bytes]]


@click.command()
@click.option(
    "--from",
    "source",
    metavar="NAME|URI",
    default=AUTO,
    callback=address,
    help="open-protocol, canal-json, auto (default), or kafka://…",
)
@click.option(
    "--to",
    "target",
    metavar="NAME|URI",
    callback=address,
    help="The protocol to write (default: the other one), or kafka://…",
)
@click.option("--from-set", "read_words", metavar="KEY=VALUE", multiple=True, help="A configuration key of the source.")
@click.option("--set", "words", metavar="KEY=VALUE", multiple=True, help="A configuration key of the target.")
@click.option("--ts", "now_ms", type=int, metavar="MS", help="Canal-JSON's clock, in ms; default: now.")
@click.option(
    "--config", "path", type=click.Path(dir_okay=False), help="Topics: options, dispatchers and filters of this file."
)
@click.option(
    "--stop-when-idle",
    "idle_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Topics: run until no message has arrived for this long, instead of stopping at the current end offsets.",
)
@click.option("--json", "as_json", is_flag=True, help="Topics: report progress as JSON lines on stdout.")
@click.argument("file", default="-", metavar="[FILE]")
def transcode(
    *,
    source: str,
    target: str | None,
    read_words: tuple[str, ...],
    words: tuple[str, ...],
    now_ms: int | None,
    path: str | None,
    idle_s: float | None,
    as_json: bool,
    file: str,
) -> None:
    """Convert the messages of one protocol to the other.

    FILE holds messages one after the other, each with 4-byte big-endian lengths before key and value; gzip is
    recognised, and - (or nothing) is standard input.  With --from kafka://… and --to kafka://… a topic is read and
    another one written, in commit order, up to the last watermark and what follows it."""
    if source.startswith(KAFKA) or (target or "").startswith(KAFKA):
        if not (source.startswith(KAFKA) and (target or "").startswith(KAFKA)) or file != "-":
            raise click.UsageError("--from kafka://… and --to kafka://… must be used together, without FILE")
        from tidegate.cli.relay import transcode_topic

        settings = settings_of(read_words, "--from-set"), settings_of(words)
        transcode_topic((source, target or ""), settings, path=path, now_ms=now_ms, idle_s=idle_s, as_json=as_json)
        return
    if path is not None or idle_s is not None or as_json:
        raise click.UsageError("--config, --stop-when-idle and --json need topics: --from kafka://… --to kafka://…")
    frames, config = framed_messages(file), settings_of(read_words, "--from-set")
    try:
        read, frames = _auto(frames, config) if source == AUTO else (from_config(config, source), frames)
        written = target_options(settings_of(words), target, read)
    except ConfigError as error:
        raise click.UsageError(f"{error} ({error.code})") from error
    claims = ClaimFiles(written.claim_check_storage_uri, random_names())
    write_out(_transcoded(frames, read, BatchEncoder(written, now_ms=clock(now_ms), claims=claims)))


def _auto(frames: Frames, config: dict[str, object]) -> tuple[DecodeOptions, Frames]:
    """Return the options detected from the first messages, with those that were set, and all messages again."""
    sample: list[tuple[bytes, bytes]] = []
    torn: list[DecodeError] = []
    try:
        sample += islice(frames, _SAMPLE)
    except DecodeError as error:
        torn.append(error)
    if not sample and not torn:
        return from_config(config, "open-protocol"), iter(())
    try:
        sniffed = sniff_all(sample)
        options = sniffed.decode_options()
    except DecodeError as error:
        reason = torn[0] if torn and not sample else error
        raise click.UsageError(f"cannot detect the protocol of the messages: {reason}; set --from") from error
    return _completed(sniffed, options, config), chain(sample, _raising(torn), frames)


def _completed(sniffed: Sniffed, options: DecodeOptions, config: dict[str, object]) -> DecodeOptions:
    """Return the detected options, overridden by those that were set."""
    explicit = from_config(config, sniffed.protocol)
    compression = options.compression if explicit.compression == "none" else explicit.compression
    return msgspec.structs.replace(explicit, compression=compression, legacy=explicit.legacy or options.legacy)


def _raising(errors: list[DecodeError]) -> Frames:
    yield from ()
    for error in errors:
        raise error


def _transcoded(frames: Frames, read: DecodeOptions, encoder: BatchEncoder) -> Iterator[bytes | RefusedMessage]:
    """Yield the messages of all events in order, and the messages and events that were refused."""
    refused: list[RefusedMessage] = []
    tables = FollowedTables()

    def unreadable(position: StreamPosition, error: DecodeError) -> None:
        refused.append(RefusedMessage("" if error.codec == FRAME else f"message {position.message}", error))

    def cut(position: StreamPosition, error: TidegateError) -> None:
        refused.append(RefusedMessage(f"message {position.message}", error))

    for position, event in whole_events(decode_messages(frames, read, unreadable), read, cut):
        yield from refused
        refused.clear()
        try:
            wire = tables.wire(event) if isinstance(event, RowChange) else None
            for message in encoder.append(acting(event) if isinstance(event, Ddl) else event, wire):
                yield pack_frame(message.key, message.value)
        except (DecodeError, EncodeError) as error:
            yield RefusedMessage(f"message {position.message}", error)
        if isinstance(event, Ddl):
            tables.follow(event)
    yield from refused
    for message in encoder.flush():
        yield pack_frame(message.key, message.value)
