"""The structs that one layout of Open Protocol rows is decoded into.

    HEAD   {"ts":…, "scm": the schema, "tbl": the table, "rid":…, "ptn":…, "t":1}
    VALUE  {"u": ROW, "p": ROW, "d": ROW}
    ROW    {"id": CELL, "name": CELL}                     every column there, no other
    CELL   {"t": 3, "h": true, "f": 11, "v": 5 or null}   type and flags as in the layout, or it is no CELL

What is in words here is a literal in the struct, so that msgspec compares it while it decodes, for nothing.  Members
that the layout does not have are refused: a CELL of a column without `h` must not bring one.  A boolean cannot be a
literal, so `h` is looked at afterwards.

Source: `codec/open.py`, whose rules about values these are.
"""

from functools import lru_cache, partial
from operator import attrgetter, is_
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from tidegate.codec.columnar.rows import StructImages, StructLayout, transposed
from tidegate.codec.columnar.values import WIDTH_MAX, WIRE, Misfit, from_json
from tidegate.codec.kept import STRUCTS_BYTES, kept, width
from tidegate.codec.open import form_of
from tidegate.codec.values import ColumnForm
from tidegate.model.event import Field

_INT64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_V, _H = attrgetter("v"), attrgetter("h")


class OpenKey(NamedTuple):
    """What the structs of a table are generated from."""

    schema: str
    table: str
    row: tuple[Field, ...]
    gone: tuple[Field, ...]
    partial: bool
    partitioned: bool
    legacy: bool


class OpenShape(NamedTuple):
    """Decoders of heads and values, and the layouts of what they give."""

    key: OpenKey
    head: Any
    decode: Any
    row: StructLayout
    gone: StructLayout


def width_of(key: OpenKey) -> int:
    """Return about how many bytes it takes to keep what is generated from a key."""
    fields = key.row if key.row == key.gone else key.row + key.gone
    return STRUCTS_BYTES + 2 * width(field.name for field in fields) + len(key.schema) + len(key.table)


@kept(width_of)
def shape_of(key: OpenKey) -> OpenShape | None:
    """Return the structs of a layout; None for one that msgspec or Arrow cannot have: Arrow counts no rows without
    columns."""
    if not min(len(key.row), len(key.gone)) > 0 or max(len(key.row), len(key.gone)) > WIDTH_MAX:
        return None
    rows = {fields: _forms(fields, legacy=key.legacy) for fields in (key.row, key.gone)}
    if any(forms is None for forms in rows.values()):
        return None
    try:
        row, gone = (_row_struct(fields, key.legacy, partial=False) for fields in (key.row, key.gone))
        old = _row_struct(key.row, key.legacy, partial=True) if key.partial else row
        image = msgspec.defstruct(
            "Value", [("u", row | None, None), ("p", old | None, None), ("d", gone | None, None)], gc=False
        )
        decode, head = msgspec.json.Decoder(image).decode, msgspec.json.Decoder(_head(key)).decode
    except (ValueError, TypeError, RecursionError):
        return None
    return OpenShape(key, head, decode, _layout(key, key.row), _layout(key, key.gone))


def _head(key: OpenKey) -> Any:
    """The struct of the key of a row of this table that came whole."""
    members: list[Any] = [("ts", int), ("scm", Literal[key.schema]), ("tbl", Literal[key.table])]
    members += [("rid", _INT64 | None, None)]
    members += [("ptn", _INT64)] if key.partitioned else []
    members += [("t", Literal[1])]
    return msgspec.defstruct("Head", members, gc=False, forbid_unknown_fields=True, kw_only=True)


def _row_struct(fields: tuple[Field, ...], legacy: bool, *, partial: bool) -> Any:  # noqa: FBT001 - as in layout_of
    names = {f"c{at}": field.name for at, field in enumerate(fields)}
    cells = [_cell(field.type, field.flag, field.handle, form_of(field, legacy=legacy)) for field in fields]
    members: list[Any] = [
        (name, cell, _absent(cell, field)) if partial else (name, cell)
        for name, cell, field in zip(names, cells, fields, strict=True)
    ]
    return msgspec.defstruct("Row", members, gc=False, forbid_unknown_fields=True, rename=names)


@lru_cache(maxsize=1024)
def _cell(code: int, flag: int | None, handle: bool, column: ColumnForm) -> Any:  # noqa: FBT001 - a row of Shape
    """The struct of one column: its description as literals, which msgspec compares, and a value."""
    members: list[Any] = [("t", Literal[code])]
    members += [("h", bool)] if handle else []
    members += [] if flag is None else [("f", Literal[flag])]
    members += [("v", WIRE[column.form] | None)]
    return msgspec.defstruct("Cell", members, gc=False, frozen=True, forbid_unknown_fields=True)


def _absent(cell: Any, field: Field) -> Any:
    """The cell of a column that an old image lacks."""
    given: dict[str, object] = {"t": field.type, "v": msgspec.UNSET}
    if field.handle:
        given["h"] = True
    if field.flag is not None:
        given["f"] = field.flag
    return cell(**given)


def _layout(key: OpenKey, fields: tuple[Field, ...]) -> StructLayout:
    handles = [at for at, field in enumerate(fields) if field.handle]

    def values(images: list[Any]) -> list[Any]:
        cells = transposed(images, len(fields))
        if not all(all(map(_H, cells[at])) for at in handles):
            raise Misfit("a handle key column that is none")
        return [list(map(_V, column)) for column in cells]

    return StructLayout(
        schema=key.schema,
        table=key.table,
        fields=fields,
        pk_names=None,
        columns=_forms(fields, legacy=key.legacy) or (),
        values=values,
        convert=from_json,
        images=partial(_images, partial=key.partial),
        unset=msgspec.UNSET,
    )


def _images(values: list[Any], *, partial: bool) -> StructImages:
    new, old, gone = transposed(values, 3)
    if any(map(is_, new, gone)):
        raise Misfit("a row without `u` and `d`")
    after, goners = list(filter(None, new)), len(gone) - gone.count(None)
    if goners:
        before = list(filter(None, [d if p is None else p for p, d in zip(old, gone, strict=True)]))
        ops = ["U" if p is not None else "I" if d is None else "D" for p, d in zip(old, gone, strict=True)]
    else:
        before, ops = list(filter(None, old)), ["I" if p is None else "U" for p in old]
    if len(after) + goners != len(values) or len(old) - old.count(None) + goners != len(before):
        raise Misfit("a row with `d` next to `u` or `p`")
    beside = None
    if partial:
        beside = [
            d if u is None else u for u, p, d in zip(new, old, gone, strict=True) if p is not None or d is not None
        ]
    return StructImages(ops, before, after, beside)


def _forms(fields: tuple[Field, ...], *, legacy: bool) -> tuple[ColumnForm, ...] | None:
    found = [form_of(field, legacy=legacy) for field in fields]
    columns = tuple([column for column in found if column is not None])
    return columns if len(columns) == len(found) else None
