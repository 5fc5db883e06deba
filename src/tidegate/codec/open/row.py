"""The value of an Open Protocol row: images to values, and which change they make.

    u                INSERT, or an UPDATE whose sender leaves old values out
    u and p          UPDATE; `p` may be partial or {}: what it lacks did not change
    d                DELETE; all columns, or the handle key columns alone

Classic TiCDC leaves an empty `p` out, so with only-output-updated-columns an UPDATE that changed no replicated column
cannot be told from an INSERT; the new architecture writes `"p":{}`, which is an UPDATE.

With only-output-updated-columns the new-architecture emitter forgets to open an object for a column that became NULL:
the members of that column land in `p` itself, again and again under the same names.

    {"u": {"id": {...}, "a": {"t":1,"f":65,"v":null}, "b": {"t":8,"f":65,"v":null}},
     "p": {"t":1,"f":65,"v":127,                       "t":8,"f":65,"v":9}}

What is left tells which columns they are: `u` and `p` are both in table order, an unnamed column is NULL in `u` and
has the same type, flag and handle there.  Matching from the left and from the right must give the same columns; when
they differ, more than one reading is possible and the row is refused rather than guessed.

Source: Open Protocol document, "Row Changed Event"; recordings of both emitters.
"""

from contextlib import suppress
from typing import Final

import msgspec

from tidegate.codec.jsontext import full_of_lists, load_pairs, parse
from tidegate.codec.open.layout import CODEC, OpenColumn, WireLayout, layout_of, shape_of
from tidegate.model.errors import DecodeError
from tidegate.model.event import Delete, Field, Insert, RowChange, Update, Values
from tidegate.model.table import COLUMNS_MAX

_Entry = tuple[str | None, OpenColumn]


def named_old_image(raw: bytes, offset: int) -> tuple[dict[str, OpenColumn], dict[str, OpenColumn]] | None:
    """(`u`, `p` with its names back) of a row value; None when `raw` has no such old image."""
    if full_of_lists(raw):
        return None
    try:
        row = load_pairs(raw)
        if not isinstance(row, tuple):
            return None
        images = {name: image for name, image in row if isinstance(image, tuple)}
        if {"u", "p"} - images.keys() or not any(not isinstance(member, tuple) for _, member in images["p"]):
            return None
        if max(len(images["u"]), len(images["p"])) > 4 * COLUMNS_MAX:
            return None
        after = {name: _column(dict(column)) for name, column in images["u"]}
        entries = _entries(images["p"])
    except (ValueError, TypeError, RecursionError):
        return None
    if entries is None:
        return None
    columns = list(after.items())
    left = _match(columns, entries)
    right = _match(columns[::-1], entries[::-1])
    if left is None or right is None:
        raise DecodeError("members without a column name in `p` fit no columns of `u`", CODEC, offset)
    if left != right[::-1]:
        raise DecodeError("members without a column name in `p` fit several columns of `u`", CODEC, offset)
    return after, {name: column for name, (_, column) in zip(left, entries, strict=True)}


def _column(members: dict[str, object]) -> OpenColumn:
    return msgspec.convert(members, OpenColumn)


def _entries(pairs: tuple[tuple[str, object], ...]) -> list[_Entry] | None:
    """The columns of `p` in order, unnamed ones with None; None when a stray member belongs to no column."""
    found: list[tuple[str | None, dict[str, object]]] = []
    for name, member in pairs:
        if isinstance(member, tuple):
            found.append((name, dict(member)))
        elif name == "t":
            found.append((None, {"t": member}))
        elif name in {"h", "f", "v"} and found and found[-1][0] is None and name not in found[-1][1]:
            found[-1][1][name] = member
        else:
            return None
    if any(name is None and members.get("v") is None for name, members in found):
        return None
    return [(name, _column(members)) for name, members in found]


def _match(columns: list[tuple[str, OpenColumn]], entries: list[_Entry]) -> list[str] | None:
    """The name of each entry when every one takes the first column that it can; None if one finds none."""
    names: list[str] = []
    at = 0
    for wanted, old in entries:
        while at < len(columns) and not _fits(wanted, old, *columns[at]):
            at += 1
        if at == len(columns):
            return None
        names.append(columns[at][0])
        at += 1
    return names


def _fits(wanted: str | None, old: OpenColumn, name: str, new: OpenColumn) -> bool:
    if wanted is not None:
        return wanted == name
    return new.v is None and (new.t, new.f, new.h) == (old.t, old.f, old.h)


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


class RowKey(msgspec.Struct, gc=False):
    """What the key of a row says, checked."""

    schema: str
    table: str
    commit_ts: int
    row_id: int | None
    partition_id: int | None
    handle_only: bool
    claim_check: str | None


_ROW: Final = msgspec.json.Decoder(_Row)
_IMAGES: Final = msgspec.json.Decoder(_Images)
_CELL: Final = msgspec.json.Decoder(OpenColumn)


def read_row(key: RowKey, raw: bytes, offset: int, *, legacy: bool) -> RowChange:
    """Return the change that `raw` tells of; `offset` is where it stands in its message."""
    row = _parse(raw, offset)
    new, old, gone = row.u, row.p, row.d
    if gone is not None:
        if new is not None or old is not None:
            raise DecodeError("a row with `d` next to `u` or `p`", CODEC, offset)
        layout = layout_of(shape_of(gone), legacy)
        return _delete(key, layout.fields, _values(layout, gone))
    if new is None:
        raise DecodeError("a row without `u` and `d`", CODEC, offset)
    shape = shape_of(new)
    layout = layout_of(shape, legacy)
    after = _values(layout, new)
    if old is None:
        return _insert(key, layout.fields, after)
    if shape_of(old) == shape:
        return _update(key, layout.fields, _values(layout, old), after)
    return _update(key, layout.fields, _filled(new, after, old, legacy=legacy), after)


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


def _insert(key: RowKey, fields: tuple[Field, ...], after: Values) -> Insert:
    return Insert(
        schema=key.schema,
        table=key.table,
        fields=fields,
        after=after,
        commit_ts=key.commit_ts,
        row_id=key.row_id,
        partition_id=key.partition_id,
        handle_only=key.handle_only,
        claim_check=key.claim_check,
    )


def _update(key: RowKey, fields: tuple[Field, ...], before: Values, after: Values) -> Update:
    return Update(
        schema=key.schema,
        table=key.table,
        fields=fields,
        before=before,
        after=after,
        commit_ts=key.commit_ts,
        row_id=key.row_id,
        partition_id=key.partition_id,
        handle_only=key.handle_only,
        claim_check=key.claim_check,
    )


def _delete(key: RowKey, fields: tuple[Field, ...], before: Values) -> Delete:
    return Delete(
        schema=key.schema,
        table=key.table,
        fields=fields,
        before=before,
        commit_ts=key.commit_ts,
        row_id=key.row_id,
        partition_id=key.partition_id,
        handle_only=key.handle_only,
        claim_check=key.claim_check,
    )
