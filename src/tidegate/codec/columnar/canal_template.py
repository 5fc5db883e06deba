"""Canal-JSON by template: all rows of a chunk, table by table, to columns.

    {"id":0,"database":…,"type":"word","es":digits,"ts":digits,"sql":"","sqlType":object,"mysqlType":object,
     "old":null or [IMAGE],"data":[IMAGE],"_tidb":{"commitTs":digits}}

Around what is named here the text is the same for all rows of a table.  Members of `mysqlType` come in random order and
those of `sqlType` follow the values, so each text that such an object has is looked at on its own, once.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from tidegate.codec.columnar import canal as structs
from tidegate.codec.columnar.rows import Batch, PlacedRows, StructLayout, batch_of
from tidegate.codec.columnar.spans import TEXT_QUOTES, text_column
from tidegate.codec.columnar.sweep import Events, SweptRows, sweep, too_few
from tidegate.codec.columnar.template import (
    Image,
    SpanImages,
    TemplateRows,
    accepted,
    image_of,
    images_of,
    literal,
    members,
    walk_image,
)
from tidegate.codec.columnar.values import Misfit
from tidegate.codec.columnar.walk import TextRun, Walk
from tidegate.codec.kept import LayoutMemory, width

COLUMNS_MAX: Final = 32
"""Columns of a table that is read by template: each costs some calls a chunk.  A map of Go with more than eight members
comes in another order each time, so nearly every `mysqlType` of such a table is a text of its own to be read."""

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_WORD_BYTES: Final = 6
_WORD, _INSERT, _UPDATE, _DELETE = (
    np.frombuffer(word.ljust(8, b"\0"), np.uint64)[0] for word in (b"\xff" * 6, b"INSERT", b"UPDATE", b"DELETE")
)
"""What `type` may be, as numbers; the first leaves two more bytes out."""


class _Step(NamedTuple):
    """A member whose value varies, the text before it, and what it was once."""

    before: bytes
    name: str
    text: bytes


class _Template(NamedTuple):
    """A message around its values."""

    steps: tuple[_Step, ...]
    last: bytes
    image: Image
    layout: StructLayout
    types: Callable[[bytes], list[Any]]


_known: Final = LayoutMemory[tuple[bytes, bool], _Template]()
"""By hint, as structs are; it changes no result."""


def by_template(
    _keys: Sequence[bytes], values: Sequence[bytes], *, legacy: bool, as_texts: bool
) -> tuple[list[Batch], Any]:
    """Batches of those messages whose rows are of known looks, and which messages that is."""
    count = len(values)
    if too_few(count):
        return [], np.zeros(count, np.bool_)
    events = Events(np.arange(count), np.zeros(count, np.int64), np.ones(count, np.int64))
    return sweep(events, _Templates(values, legacy=legacy, as_texts=as_texts))


class _Templates:
    """Templates of the tables of a chunk."""

    convert = staticmethod(text_column)

    def __init__(self, values: Sequence[bytes], *, legacy: bool, as_texts: bool) -> None:
        self._values, self._legacy = values, legacy
        self.quotes = TEXT_QUOTES if as_texts else None

    @cached_property
    def text(self) -> TextRun:
        """All messages, once one of them is to be read."""
        return TextRun(self._values, b",}")

    @property
    def heads(self) -> TextRun:
        """Where timestamps stand."""
        return self.text

    def known(self, row: int, left: Any) -> SweptRows | None:
        """Return what the template of the row's table reads."""
        template = _known.get((structs.hint_of(self._values[row]), self._legacy))
        return None if template is None else self._read(template, left)

    def learned(self, row: int, left: Any) -> SweptRows | None:
        """Return what a template made of the row reads."""
        value = self._values[row]
        hint = structs.hint_of(value), self._legacy
        shape = structs.known_shape(*hint)
        if shape is None or len(shape.layout.columns) > COLUMNS_MAX:
            return None
        template = _template(shape, value)
        if template is None:
            return None
        _known.keep(hint, template, width(field.name for field in template.layout.fields))
        return self._read(template, left)

    def _read(self, template: _Template, left: Any) -> SweptRows:
        walk = Walk(self.text, left, self.text.starts[left], {})
        walk.literal(template.steps[0].before)
        seen = walk.rows
        if too_few(len(seen)):
            return SweptRows(seen, template.layout, [])
        old = walk
        for number, step in enumerate(template.steps):
            if number:
                walk.literal(step.before)
            old = _STEPS[step.name](walk, template, step) or old
        walk.literal(template.last)
        walk.finish(self.text.ends)
        return SweptRows(seen, template.layout, [_part(walk, old, template.layout)])


def _word(walk: Walk, _template: _Template, step: _Step) -> None:
    walk.word(step.name, _WORD_BYTES)


def _digits(walk: Walk, _template: _Template, step: _Step) -> None:
    walk.digits(step.name)


def _types(walk: Walk, template: _Template, step: _Step) -> None:
    walk.object(step.name, len(step.text))
    accepted(walk, step.name, template.types)


def _any_types(walk: Walk, _template: _Template, step: _Step) -> None:
    if not walk.passes(step.text):
        walk.object(step.name, len(step.text))
        accepted(walk, step.name, _ANY_TYPES)


def _image(walk: Walk, template: _Template, step: _Step) -> None:
    walk.literal(b"[")
    walk_image(walk, template.image, step.name)
    walk.literal(b"]")


def _old(walk: Walk, template: _Template, step: _Step) -> Walk:
    """The rows with an old image."""
    arrays = walk.next_is(b"[")
    old, nulls = walk.part(arrays), walk.part(~arrays)
    nulls.literal(b"null")
    if len(old.rows):
        _image(old, template, step)
    walk.meet(nulls, old)
    return old


_ANY_TYPES: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_STEPS: Final[dict[str, Callable[[Walk, _Template, _Step], Walk | None]]] = {
    "type": _word,
    "es": _digits,
    "ts": _digits,
    "commitTs": _digits,
    "sqlType": _any_types,
    "mysqlType": _types,
    "old": _old,
    "data": _image,
}


def _part(walk: Walk, old: Walk, layout: StructLayout) -> TemplateRows:
    """The rows by the change that they make; `old` has the old images of some."""
    words = walk.text.windows(8, "u")[walk.spans["type"].start] & _WORD
    walk.keep((words == _INSERT) | (words == _UPDATE) | (words == _DELETE))
    letters = walk.letters("type")
    deletes, updates = letters == ord("D"), (letters == ord("U")) & np.isin(walk.rows, old.rows)
    ops = np.where(deletes | updates, letters, np.uint8(ord("I")))
    new, before = images_of(walk, "data", layout), list[SpanImages]()
    if updates.any():
        before.append(images_of(old, "old", layout).of(np.isin(old.rows, walk.rows[updates])))
    if deletes.any():
        before.append(new.of(deletes))
        new = new.of(~deletes)
    return TemplateRows(walk.rows, ops, walk.spans["commitTs"], None, tuple(before), (new,))


def _template(shape: structs.Shape, value: bytes) -> _Template | None:
    """The look of a row; None when it cannot be one, or when the row is not of `shape`."""
    try:
        struct = shape.decode(value)
        batch_of(PlacedRows(shape.layout, [0], [0], [struct.tidb.commitTs], [], [struct]))
        text = value.decode("latin-1")
        steps, at, image = [], 0, None
        for name, start, end in _varying(text):
            steps.append(_Step(literal(text, at, start), name, text[start:end].encode("latin-1")))
            at = end
            if name == "data":
                row_end = end - 1
                image = image_of(text, start + 1, row_end, list(members(text, start + 1)), shape.layout, bare=False)
        last = literal(text, at, len(text))
    except (*_UNREADABLE, Misfit, ValueError, IndexError):
        return None
    names = sorted(map(attrgetter("name"), steps))
    if image is None or names != sorted(_STEPS):
        return None
    return _Template(tuple(steps), last, image, shape.layout, shape.types)


def _varying(text: str) -> list[tuple[str, int, int]]:
    """Where the values stand that differ between the rows of a table."""
    found = []
    for name, start, end in members(text):
        if name == "_tidb":
            found += [one for one in members(text, start) if one[0] == "commitTs"]
        elif name == "type":
            found.append((name, start + 1, end - 1))
        elif name in _STEPS:
            found.append((name, start, end))
    return found
