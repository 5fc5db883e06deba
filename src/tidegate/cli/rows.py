"""Rows on standard output.

    table    columns side by side, for people               NULL shown as NULL
    csv      RFC 4180 with a header line                     NULL is an empty field, an empty text is ""
    json     one object a line                               numbers beyond 2^53 and decimals exactly: decimals as text
    arrow    an Arrow IPC stream, types and all              for `pyarrow.ipc.open_stream`, DuckDB, pandas …

In the texts a binary value is 0x and hex digits, a time is ISO 8601, with +00:00 where it is an instant.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import click
import msgspec
import pyarrow as pa

from tidegate.model.name import printable

ROWS_PER_BATCH: Final = 10_000
NULL: Final = "NULL"
CELL_CHARS_MAX: Final = 60


def tell(rows: pa.Table, form: str) -> None:
    """Print `rows` in one of FORMATS."""
    FORMATS[form](rows)


def _table(rows: pa.Table) -> None:
    names = [printable(name) for name in rows.column_names]
    right = [_is_number(field.type) for field in rows.schema]
    lines = [[_cell(value) for value in row] for row in _rows(rows)]
    widths = [max(len(name), *(len(line[at]) for line in lines), 0) for at, name in enumerate(names)]

    def line(cells: list[str]) -> str:
        aligned = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ]
        return "  ".join(aligned).rstrip()

    click.echo(line(names))
    click.echo("  ".join("-" * width for width in widths))
    for cells in lines:
        click.echo(line(cells))
    click.echo(f"({rows.num_rows:,} row{'' if rows.num_rows == 1 else 's'})", err=True)


def _csv(rows: pa.Table) -> None:
    click.echo(",".join(map(_field, rows.column_names)), nl=False)
    for batch in rows.to_batches(ROWS_PER_BATCH):
        lines = ("\r\n" + ",".join(map(_field, row)) for row in _rows(pa.table(batch)))
        click.echo("".join(lines), nl=False)
    click.echo("\r\n", nl=False)


def _field(value: Any) -> str:
    """A field of a CSV line: nothing for NULL, quotes around what could be read otherwise."""
    if value is None:
        return ""
    text = _text(value)
    return '"' + text.replace('"', '""') + '"' if not text or set(text) & set(',"\r\n') else text


def _json(rows: pa.Table) -> None:
    names = rows.column_names
    encoder = msgspec.json.Encoder(decimal_format="string")
    for row in _rows(rows):
        object_ = {name: _plain(value) for name, value in zip(names, row, strict=True)}
        click.echo(encoder.encode(object_).decode())


def _arrow(rows: pa.Table) -> None:
    out = sys.stdout.buffer
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=ROWS_PER_BATCH)
    out.flush()


FORMATS: Final[Mapping[str, Callable[[pa.Table], None]]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "arrow": _arrow,
}


def _rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in rows.to_batches(ROWS_PER_BATCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return f"0x{value.hex()}"
        case date():
            return _text(value)
        case _:
            return value


def _text(value: Any) -> str:
    match value:
        case bytes():
            return f"0x{value.hex()}"
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)


def _cell(value: Any) -> str:
    text = NULL if value is None else _text(value).encode("unicode_escape").decode() if _odd(value) else _text(value)
    return text if len(text) <= CELL_CHARS_MAX else f"{text[: CELL_CHARS_MAX - 1]}…"


def _odd(value: Any) -> bool:
    """True for a text that would break the lines of a table."""
    return isinstance(value, str) and not value.isprintable()
