"""Events for people: `tidegate decode --pretty`.

    UPDATE shop.orders  470606743881121792  2026-03-17 09:31:05.250 UTC
      id *    1
      total   '10.00' -> '12.00'
      note    NULL

    DDL shop.orders  470606744143265793  2026-03-17 09:31:06.250 UTC
      ALTER TABLE orders ADD COLUMN c INT

    RESOLVED  470606744143265794  2026-03-17 09:31:06.250 UTC

A star marks the handle columns.  A column that did not change stands once.  Text is quoted and cut, bytes are
hexadecimal, and what could steer a terminal is escaped, so that foreign data can be looked at.  Colours only on a
terminal.  A block ends with an empty line.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from tidegate.codec.neutral import Json
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
    """Print blocks on standard output, unwrapped."""
    console = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
    return console.print


def block(event: Event) -> Text:
    """Return the block of an event, with the empty line after it."""
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
    """Return the block of a message that could not be read."""
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
    """What stands after each column's name."""
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
    """A timestamp as number and wall time; the time alone when that is all there is."""
    if ts is None:
        return "no time" if ms is None else f"{_time(ms)} (es; no commit_ts)"
    return f"{ts}  {_time(physical_ms(ts))}"


def _time(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03} UTC"
    except (OverflowError, ValueError, OSError):
        return "beyond the year 9999"


def _plain(text: str) -> str:
    """`text` with what is not printable escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
