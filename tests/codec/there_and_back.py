"""A topic as one of the other protocol, and that one as one of the first again.

    topic ── transcode ──► there ── transcode ──► back        0 refused; rows and DDLs say on both ways what they said

What docs/formats/transcoding.md lists as lost is not asked for: flags, row ids, the order of columns, bytes that are
no UTF-8.
"""

from collections.abc import Iterable, Iterator, Sequence

from click.testing import CliRunner, Result

from tidegate.cli.transcode import transcode
from tidegate.codec import DecodeOptions, decode
from tidegate.codec.stream import read_frames
from tidegate.model.event import Ddl, Event, Resolved, RowChange, Values, images

OTHER = {"open-protocol": "canal-json", "canal-json": "open-protocol"}
EXTENSION = "enable-tidb-extension=true"


def there_and_back(
    raw: bytes, reading: DecodeOptions, words: Sequence[str] = (), whole: Iterable[Event] = ()
) -> list[str]:
    """Return what is refused or said otherwise of framed messages, at most three complaints.

    `words` are the keys by which they are read, `whole` what they say to a reader of claim checks."""
    protocol, other = reading.protocol, OTHER[reading.protocol]
    there = _run(raw, protocol, other, words)
    back = _run(there.stdout_bytes, other, protocol, ())
    if refused := [line for one in (there, back) for line in one.stderr.splitlines() if one.exit_code]:
        return [f"{len(refused)} messages of {protocol} refused: {refused[:2]}"]
    first = [*map(_told, whole or events_of(raw, reading))]
    return [
        f"{way}: {one} is {two}"
        for way, result, written in (("there", there, other), ("back", back, protocol))
        for one, two in _unlike(first, [*map(_told, events_of(result.stdout_bytes, DecodeOptions(protocol=written)))])
    ][:3]


def events_of(raw: bytes, options: DecodeOptions) -> list[Event]:
    """Return the events of framed messages."""
    return [event for key, value in read_frames(raw) for event in decode(key, value, options)]


def _run(raw: bytes, source: str, target: str, words: Sequence[str]) -> Result:
    given = [part for word in words for part in ("--from-set", word)]
    arguments = ["--from", source, "--to", target, *given]
    return CliRunner().invoke(transcode, [*arguments, *(("--set", EXTENSION) if target == "canal-json" else ())], raw)


def _told(event: Event) -> str:
    """What both protocols say."""
    match event:
        case Resolved():
            return f"resolved {event.ts}"
        case Ddl():
            return repr((event.schema, event.table, event.commit_ts, event.query))
    values = [image and sorted(_columns(event, image)) for image in images(event)]
    return repr((type(event).__name__, event.schema, event.table, event.commit_ts, event.handle_only, values))


def _columns(row: RowChange, image: Values) -> Iterator[tuple[str, int, str]]:
    for field, value in zip(row.fields, image, strict=True):
        shown = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if isinstance(value, str) else value
        yield field.name, int(field.type), repr(shown)


def _unlike(first: Sequence[str], other: Sequence[str]) -> list[tuple[str, str]]:
    if len(first) != len(other):
        return [(f"{len(first)} events", f"{len(other)} events")]
    return [(one, two) for one, two in zip(first, other, strict=True) if one != two]
