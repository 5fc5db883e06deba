"""The images of an Open Protocol row: values to the JSON objects `u`, `p` and `d`.

    {"u":{NAME:{"t":type,"h":true,"f":flags,"v":value},…},"p":{…}}      u new, p old, d deleted

    classic   columns in order of their names' bytes; an empty image is left out
    newarch   columns in table order; an empty `p` is {}, an empty `u` or `d` an error

All of a column but its value is the same in every row, so a table is prepared once (`TableForm`).

One of encoding.FAULTS, with only-output-updated-columns, in `p` of an UPDATE:

    unnamed-null    "p":{"a":{"t":3,"f":65,"v":1}}  arrives as  "p":{"t":3,"f":65,"v":1}   when `a` became NULL

Source: Open Protocol document, "Row Changed Event"; recordings of both emitters.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go.json import Quote
from tidegate.codec.open.encode.values import Write, style_of, writer
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.model.errors import EncodeError, HandleKeyMissing
from tidegate.model.event import Delete, Insert, RowChange, Update, Value, Values

_NAME: Final = re.compile(r'"(?:[^"\\]|\\.)*+":\{', re.DOTALL)


def unnamed_null(member: str) -> str:
    """`"name":{members}` without name and braces."""
    found = _NAME.match(member)
    assert found is not None, member
    return member[found.end() : -1]


_MISSING: Final = "no handle key column in table {}; give it a primary key, or a unique key on NOT NULL columns"


class OpenField(NamedTuple):
    """One column: where its value stands, all of its JSON before the value, and how values are written."""

    place: int
    head: str
    write: Write


class TableForm:
    """A table made ready: how each column starts and how its values are written, in message order."""

    def __init__(self, table: WireTable, options: EncodeOptions, flags: Mapping[str, int] | None = None) -> None:
        """`flags` stand in `f` instead of the columns' own, 0 for columns that it lacks."""
        style = style_of(options)
        order = list(range(len(table.columns)))
        if not options.newarch:
            order.sort(key=lambda index: table.columns[index].name.encode("utf-8", "surrogatepass"))
        columns = table.columns
        sent = {column.name: column.flag for column in columns} if flags is None else flags
        heads = [_head(column, sent.get(column.name, 0), style.quote) for column in columns]
        self.parts = [
            OpenField(index, heads[index], writer(columns[index], style, options.time_zone)) for index in order
        ]
        self.handles = [part for part in self.parts if columns[part.place].handle]
        self._columns = table.columns
        self._unnamed = "unnamed-null" in options.faults

    def image(self, values: Values, *, handles: bool = False) -> str:
        """Return the JSON object of an image, of its handle key columns alone if asked; "" when it has no column."""
        return self._object(values, self.handles if handles else self.parts)

    def changed(self, before: Values, after: Values, *, handles: bool = False) -> str:
        """Return the object of the old values that are not the new ones; "" when there is none."""
        parts = self.handles if handles else self.parts
        different = [part for part in parts if before[part[0]] != after[part[0]]]
        if not self._unnamed:
            return self._object(before, different)
        return _braced(
            unnamed_null(member) if after[part[0]] is None else member
            for part, member in zip(different, self._members(before, different), strict=True)
        )

    def _object(self, values: Values, parts: list[OpenField]) -> str:
        return _braced(self._members(values, parts))

    def _members(self, values: Values, parts: list[OpenField]) -> list[str]:
        """The members of an image, one a column."""
        try:
            return [
                head + ("null" if (value := values[index]) is None else write(value)) + "}"
                for index, head, write in parts
            ]
        except (TypeError, AttributeError, UnicodeEncodeError) as error:
            self._blame(values, parts)
            raise EncodeError(f"a value that open-protocol cannot carry: {error}") from error

    def _blame(self, values: Values, parts: list[OpenField]) -> None:
        """Raises the error of the first value that cannot be written, with its column."""
        for index, _, write in parts:
            value: Value = values[index]
            try:
                if value is not None:
                    write(value)
            except (TypeError, AttributeError, UnicodeEncodeError) as error:
                column = self._columns[index]
                raise EncodeError(
                    f"column {column.name!r} (type {int(column.type.code)}) cannot hold {value!a:.60}"
                ) from error


def _head(column: WireColumn, flag: int, quote: Quote) -> str:
    """All of a column that comes before its value."""
    handle = '"h":true,' if column.handle else ""
    return f'{quote(column.name)}:{{"t":{int(column.type.code)},{handle}"f":{flag},"v":'


def _braced(members: Iterable[str]) -> str:
    joined = ",".join(members)
    return f"{{{joined}}}" if joined else ""


def row_value(row: RowChange, images: TableForm, options: EncodeOptions, *, handles: bool) -> str:
    """Return the value JSON of a row, of its handle key columns alone when `handles`."""
    match row:
        case Insert():
            return f'{{"u":{_needed(row, images.image(row.after, handles=handles), options, handles=handles)}}}'
        case Delete():
            only = handles or options.delete_only_output_handle_key_columns
            return f'{{"d":{_needed(row, images.image(row.before, handles=only), options, handles=only)}}}'
        case Update():
            return _update(row, images, options, handles=handles)


def _update(row: Update, images: TableForm, options: EncodeOptions, *, handles: bool) -> str:
    new = _needed(row, images.image(row.after, handles=handles), options, handles=handles)
    if not options.output_old_value:
        return f'{{"u":{new}}}'
    if options.only_output_updated_columns:
        old = images.changed(row.before, row.after, handles=handles)
    else:
        old = images.image(row.before, handles=handles)
    if not old and not options.newarch:
        return f'{{"u":{new}}}'
    return f'{{"u":{new},"p":{old or "{}"}}}'


def _needed(row: RowChange, image: str, options: EncodeOptions, *, handles: bool) -> str:
    if not image and (handles or options.newarch):
        raise HandleKeyMissing(_MISSING.format(f"{row.schema}.{row.table}"))
    if not image:
        raise EncodeError(f"a row of {row.schema}.{row.table} without any column")
    return image
