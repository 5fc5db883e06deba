"""The value of an Open Protocol row: images to values, and which change they make.

    u                INSERT, or an UPDATE whose sender leaves old values out
    u and p          UPDATE; `p` may be partial or {}: what it lacks did not change
    d                DELETE; all columns, or the handle key columns alone

Classic TiCDC leaves an empty `p` out, so with only-output-updated-columns an UPDATE that changed no replicated column
cannot be told from an INSERT; the new architecture writes `"p":{}`, which is an UPDATE.

Source: Open Protocol document, "Row Changed Event"; recordings of both emitters.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from tidegate.codec.jsontext import parse
from tidegate.codec.open.layout import CODEC, OpenColumn, WireLayout, layout_of, shape_of
from tidegate.codec.open.unnamed import named_old_image
from tidegate.model.errors import DecodeError
from tidegate.model.event import Delete, Insert, RowChange, Update, Values

__all__ = ["read_row"]


class _Row(msgspec.Struct, gc=False):
    """The three images of a value, as on the wire."""

    u: dict[str, OpenColumn] | None = None
    p: dict[str, OpenColumn] | None = None
    d: dict[str, OpenColumn] | None = None


class _Cell(msgspec.Struct, gc=False):
    """A column whose value is left as it stands."""

    v: msgspec.Raw = msgspec.Raw(b"null")


class _Images(msgspec.Struct, gc=False):
    """A row to look for the value that none can be."""

    u: dict[str, _Cell] | None = None
    p: dict[str, _Cell] | None = None
    d: dict[str, _Cell] | None = None


_ROW: Final = msgspec.json.Decoder(_Row)
_IMAGES: Final = msgspec.json.Decoder(_Images)
_CELL: Final = msgspec.json.Decoder(OpenColumn)


def read_row(key: Mapping[str, Any], raw: bytes, offset: int, *, legacy: bool) -> RowChange:
    """Return the change that `raw` tells of; `key` are the members told by its key, `offset` its place."""
    row = _parse(raw, offset)
    new, old, gone = row.u, row.p, row.d
    if gone is not None:
        if new is not None or old is not None:
            raise DecodeError("a row with `d` next to `u` or `p`", CODEC, offset)
        layout = layout_of(shape_of(gone), legacy)
        return Delete(fields=layout.fields, before=_values(layout, gone), **key)
    if new is None:
        raise DecodeError("a row without `u` and `d`", CODEC, offset)
    shape = shape_of(new)
    layout = layout_of(shape, legacy)
    after = _values(layout, new)
    if old is None:
        return Insert(fields=layout.fields, after=after, **key)
    before = _values(layout, old) if shape_of(old) == shape else _filled(new, after, old, legacy=legacy)
    return Update(fields=layout.fields, before=before, after=after, **key)


def _parse(raw: bytes, offset: int) -> _Row:
    try:
        return parse(_ROW, raw, CODEC, "row value", offset)
    except DecodeError:
        named = named_old_image(raw, offset)
        if named is None:
            _blame_text(raw, offset)
            raise
        return _Row(u=named[0], p=named[1])


def _blame_text(raw: bytes, offset: int) -> None:
    """Raises an error with the name of the first column whose value is no value at all, such as a list."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        row = _IMAGES.decode(raw)
        for image in (row.u, row.p, row.d):
            for name, cell in (image or {}).items():
                try:
                    _CELL.decode(b'{"t":0,"v":%b}' % bytes(cell.v))
                except msgspec.ValidationError as error:
                    what = str(error).removesuffix(" - at `$.v`")
                    raise DecodeError(f"column {name!r}: {what}", CODEC, offset) from error


def _filled(new: dict[str, OpenColumn], after: Values, old: dict[str, OpenColumn], *, legacy: bool) -> Values:
    """The old image in the order of `new`, columns that it lacks taken from there."""
    unknown = old.keys() - new.keys()
    if unknown:
        raise DecodeError(f"column {min(unknown)!r} stands in `p` and not in `u`", CODEC, 0)
    layout = layout_of(shape_of(old), legacy)
    given = dict(zip(old, _values(layout, old), strict=True))
    return tuple([given.get(name, value) if name in given else value for name, value in zip(new, after, strict=True)])


def _values(layout: WireLayout, columns: dict[str, OpenColumn]) -> Values:
    try:
        return tuple(
            [
                None if column.v is None else read(column.v)
                for read, column in zip(layout.reads, columns.values(), strict=True)
            ]
        )
    except DecodeError:
        _blame(layout, columns)
        raise


def _blame(layout: WireLayout, columns: dict[str, OpenColumn]) -> None:
    """Raises the error of the first bad value with its column in front."""
    for field, read, column in zip(layout.fields, layout.reads, columns.values(), strict=True):
        try:
            if column.v is not None:
                read(column.v)
        except DecodeError as error:
            raise DecodeError(f"column {field.name!r} (type {field.type}): {error.what}", CODEC, 0) from error
