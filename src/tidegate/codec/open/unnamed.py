"""Old images whose members lost their names.

With only-output-updated-columns the new-architecture emitter forgets to open an object for a column that became NULL:
the members of that column land in `p` itself, again and again under the same names.

    {"u": {"id": {...}, "a": {"t":1,"f":65,"v":null}, "b": {"t":8,"f":65,"v":null}},
     "p": {"t":1,"f":65,"v":127,                       "t":8,"f":65,"v":9}}

What is left tells which columns they are: `u` and `p` are both in table order, an unnamed column is NULL in `u` and
has the same type, flag and handle there.  Matching from the left and from the right must give the same columns; when
they differ, more than one reading is possible and the row is refused rather than guessed.

Source: recordings of the new architecture (types/open_only_updated).
"""

import msgspec

from tidegate.codec.jsontext import full_of_lists, load_pairs
from tidegate.codec.open.layout import CODEC, OpenColumn
from tidegate.codec.values import COLUMNS_MAX
from tidegate.model.errors import DecodeError

__all__ = ["named_old_image"]

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
