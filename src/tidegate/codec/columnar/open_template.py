"""Open Protocol by template: all events of a chunk cut from their messages at once, table by table to columns.

    key     | 1 (8) | n (8) | head | n (8) | head …        heads    {"ts":digits,"scm":…,"tbl":…,"rid":digits,"t":1}
    value           | n (8) | body | n (8) | body …        bodies   {"u":IMAGE}  {"u":IMAGE,"p":IMAGE}  {"d":IMAGE}

Lengths are found without following them: a length begins with zeros, JSON has none and ends in a brace, so a length
stands where a message begins and where zeros follow a brace.  Then all of them are checked, each
against the place of the next, which proves them; a message with one that fails goes another way.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from tidegate.codec.columnar import open as structs
from tidegate.codec.columnar.open_shape import OpenShape
from tidegate.codec.columnar.rows import Batch, PlacedRows, StructLayout, batch_of
from tidegate.codec.columnar.spans import JSON_QUOTES, json_column
from tidegate.codec.columnar.sweep import NOT_WHOLE, Events, SweptRows, sweep, too_few
from tidegate.codec.columnar.template import (
    Image,
    SpanImages,
    TemplateRows,
    image_of,
    images_of,
    literal,
    members,
    walk_image,
)
from tidegate.codec.columnar.values import Misfit
from tidegate.codec.columnar.walk import TextRun, Walk
from tidegate.codec.kept import LayoutMemory, width

_VERSION: Final = (1).to_bytes(8, "big")
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_DIGITS: Final = frozenset({"ts", "rid", "ptn"})


class _Template(NamedTuple):
    """A head around its numbers, which of `u` and `d` the image may be, and the image."""

    head: tuple[tuple[bytes, str], ...]
    head_last: bytes
    kinds: bytes
    image: Image
    layout: StructLayout


_Name: TypeAlias = tuple[str, str, bytes, bool]

_known: Final = LayoutMemory[_Name, _Template]()
"""By schema, table, `u` or `d`, and whether values are read the old way; it changes no result."""


def by_template(
    keys: Sequence[bytes], values: Sequence[bytes], *, legacy: bool, as_texts: bool
) -> tuple[list[Batch], Any]:
    """Batches of those messages whose rows are of known looks, and which messages that is."""
    heads = _Frames(keys, len(_VERSION))
    bodies = _Frames(values, 0)
    fits = heads.fits & bodies.fits & (heads.counts == bodies.counts)
    versions = heads.text.windows(len(_VERSION))[heads.text.starts[fits]].view(np.uint64)
    fits[np.flatnonzero(fits)[versions != np.frombuffer(_VERSION, np.uint64)]] = False
    counts = np.where(fits, heads.counts, 0)
    message = np.repeat(np.arange(len(values)), counts)
    if too_few(len(message)):
        return [], np.zeros(len(values), np.bool_)
    seq = np.arange(len(message)) - (np.cumsum(counts) - counts)[message]
    counts[~fits] = NOT_WHOLE
    templates = _Templates(heads.of(fits), bodies.of(fits), legacy=legacy, as_texts=as_texts)
    return sweep(Events(message, seq, counts), templates)


class _Frames:
    """The texts of length-prefixed messages: which messages `fits`, how many texts each has, where each text stands."""

    def __init__(self, parts: Sequence[bytes], skip: int) -> None:
        self.text = text = TextRun(parts, b"}")
        firsts = text.starts + skip
        at = np.concatenate((firsts[text.ends >= firsts + 8], _marks(text.array)))
        at.sort(kind="stable")
        at = at[np.append(at[1:] != at[:-1], True)] if len(at) else at
        message = np.searchsorted(text.ends, at, "right")
        inside = (at + 8 <= np.append(text.ends, 0)[message]) & (at >= np.append(firsts, 0)[message])
        at, message = at[inside], message[inside]
        ends = at + 8 + text.windows(8, ">u")[at].astype(np.int64)
        nexts, last = np.append(at, 0)[1:], np.append(message, -1)[1:] != message
        nexts[last] = text.ends[message[last]]
        self.counts = np.bincount(message, minlength=len(parts))
        self.fits = self.counts > 0
        self.fits[message[ends != nexts]] = False
        self.starts, self.ends, self._message = at + 8, ends, message

    def of(self, fits: Any) -> "_Frames":
        """Return the texts of some messages."""
        mask = fits[self._message]
        if not mask.all():
            self.starts, self.ends, self._message = self.starts[mask], self.ends[mask], self._message[mask]
        return self

    def __getitem__(self, number: int) -> bytes:
        return self.text.data[self.starts[number] : self.ends[number]]


def _marks(array: Any) -> Any:
    """Where zeros follow a brace.

    Of five zeros or more, as a length below 2^24 begins, some are an even word; half as many words are quickly seen."""
    words = np.flatnonzero(array[: len(array) & ~1].view(np.uint16) == 0)
    at = 2 * words[np.append(-1, words[:-1]) != words - 1]
    at = at[at > 1]
    at -= array[at - 1] == 0
    return at[array[at - 1] == ord("}")]


class _Templates:
    """Templates of the tables of a chunk."""

    convert = staticmethod(json_column)

    def __init__(self, heads: _Frames, bodies: _Frames, *, legacy: bool, as_texts: bool) -> None:
        self.quotes = JSON_QUOTES if as_texts else None
        self._heads, self._bodies, self._legacy = heads, bodies, legacy
        self.heads, self.text = heads.text, bodies.text

    def known(self, row: int, left: Any) -> SweptRows | None:
        """Return what the template of the row's table reads."""
        name = self._name(row)
        template = None if name is None else _known.get(name)
        return None if template is None else self._read(template, left)

    def learned(self, row: int, left: Any) -> SweptRows | None:
        """Return what a template made of the row reads."""
        name = self._name(row)
        if name is None:
            return None
        shape = structs.known_shape(name[0], name[1], legacy=self._legacy)
        template = None if shape is None else _template(shape, self._heads[row], self._bodies[row])
        if template is None:
            return None
        _known.keep(name, template, width(field.name for field in template.layout.fields))
        return self._read(template, left)

    def _name(self, row: int) -> _Name | None:
        try:
            table = structs.HEAD(self._heads[row])
        except _UNREADABLE:
            return None
        return table.scm, table.tbl, self._bodies[row][2:3], self._legacy

    def _read(self, template: _Template, left: Any) -> SweptRows:
        heads, bodies = self._heads, self._bodies
        walk = Walk(heads.text, left, heads.starts[left], {})
        for piece, name in template.head:
            walk.literal(piece)
            walk.digits(name)
        walk.literal(template.head_last)
        walk.finish(heads.ends)
        walk = Walk(bodies.text, walk.rows, bodies.starts[walk.rows], walk.spans)
        walk.literal(b'{"')
        walk.word("kind", 1)
        walk.keep(np.isin(walk.letters("kind"), np.frombuffer(template.kinds, np.uint8)))
        walk.literal(b'":')
        if too_few(len(walk.rows)):
            return SweptRows(walk.rows, template.layout, [])
        return SweptRows(walk.rows, template.layout, [_part(template, walk, bodies.ends)])


def _part(template: _Template, walk: Walk, ends: Any) -> TemplateRows:
    """The rows that are of `template` to their end."""
    walk_image(walk, template.image, "new")
    alone = walk.ahead(ends) == 1
    pairs, singles = walk.part(~alone & (walk.letters("kind") == ord("u"))), walk.part(alone)
    if len(pairs.rows):
        pairs.literal(b',"p":')
        walk_image(pairs, template.image, "old")
    walk.meet(singles, pairs)
    walk.literal(b"}")
    walk.finish(ends)
    ops = np.where(walk.letters("kind") == ord("u"), ord("I"), ord("D")).astype(np.uint8)
    new, before = images_of(walk, "new", template.layout), list[SpanImages]()
    gone = ops == ord("D")
    if len(pairs.rows):
        updated = np.isin(walk.rows, pairs.rows)
        ops[updated] = ord("U")
        before.append(images_of(pairs, "old", template.layout).of(np.isin(pairs.rows, walk.rows)))
    if gone.any():
        before.append(new.of(gone))
        new = new.of(~gone)
    return TemplateRows(walk.rows, ops, walk.spans["ts"], walk.spans.get("ptn"), tuple(before), (new,))


def _template(shape: OpenShape, head: bytes, body: bytes) -> _Template | None:
    """The look of a row; None when it cannot be one, or when the row is not of `shape`."""
    try:
        told, struct = shape.head(head), shape.decode(body)
        layout = shape.row if struct.d is None else shape.gone
        rows = PlacedRows(layout, [0], [0], [told.ts], [told.ptn] if shape.key.partitioned else [], [struct])
        batch_of(rows)
        pieces, last = _around_numbers(head)
        text = body.decode("latin-1")
        kind, at, end = next(members(text))
        values = [(name, *_value_of(text, start)) for name, start, _ in members(text, at)]
        image = image_of(text, at, end, values, layout, bare=True)
    except (*_UNREADABLE, Misfit, ValueError, IndexError):
        return None
    if kind not in {"u", "d"} or at != len('{"u":'):
        return None
    kinds = b"ud" if shape.row.fields == shape.gone.fields else kind.encode()
    return _Template(pieces, last, kinds, image, layout)


def _around_numbers(head: bytes) -> tuple[tuple[tuple[bytes, str], ...], bytes]:
    text, at, pieces = head.decode("latin-1"), 0, []
    for name, start, end in members(text):
        if name in _DIGITS:
            pieces.append((literal(text, at, start), name))
            at = end
    return tuple(pieces), literal(text, at, len(text))


def _value_of(text: str, at: int) -> tuple[int, int]:
    """Where the value of a cell stands."""
    found = [(start, end) for name, start, end in members(text, at) if name == "v"]
    if len(found) != 1:
        raise ValueError("no value, or several")
    return found[0]
