"""Canal-JSON by template: all rows of a chunk, all tables at once, to columns.

    {"id":0,"database":…,"type":"word","es":digits,"ts":digits,"sql":"","sqlType":codes,"mysqlType":types,
     "old":null or [IMAGE],"data":[IMAGE],"_tidb":{"commitTs":digits}}

The text around these parts is the same for all rows of a table.  Members of `mysqlType` come in random order,
those of `sqlType` follow the values, and an old image may lack columns.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from tidegate.codec.canal import CODEC, decode_canal
from tidegate.codec.columnar import scan
from tidegate.codec.columnar.program import (
    Image,
    JsonMember,
    ScanStep,
    Template,
    digits,
    image_of,
    layout_of,
    literal,
    members,
)
from tidegate.codec.columnar.rows import RowLayout
from tidegate.codec.columnar.sweep import Events, PackedTexts, RowsText, sweep
from tidegate.codec.columnar.swept import SweptChunk, nothing_swept, too_few
from tidegate.codec.kept import LayoutMemory
from tidegate.codec.options import DecodeOptions
from tidegate.codec.values import INT_RANGES, ColumnForm, Form, integer_range
from tidegate.model.compiled import compiled, windows
from tidegate.model.event import Field
from tidegate.model.mysql import NAMED, MysqlType

_KEY_END: Final = np.uint64(int.from_bytes(b',"type":', "little"))
_NAMES: Final = ("type", "es", "ts", "sqlType", "mysqlType", "old", "data", "commitTs")

_templates: Final = LayoutMemory[int, tuple[Template, ...]]()
"""A cache of templates by key, which includes the options of decoding."""


def by_template(_keys: Sequence[bytes], values: Sequence[bytes], *, legacy: bool, as_texts: bool) -> SweptChunk:
    """Return batches of the messages whose rows fit a known template, and a mask of these messages."""
    count = len(values)
    if too_few(count):
        return nothing_swept(count)
    events = Events(np.arange(count), np.zeros(count, np.int64), np.ones(count, np.int64))
    return sweep(events, _CanalShape(values, legacy=legacy), as_texts=as_texts)


class _CanalShape:
    quotes = 1

    def __init__(self, values: Sequence[bytes], *, legacy: bool) -> None:
        self._values, self._legacy = values, legacy
        self.templates = _templates
        text = PackedTexts.of(values)
        self.texts = (RowsText(text.array, text.starts, text.ends),)

    @cached_property
    def keys(self) -> Any:
        """A hash of what precedes `type`: database, table and key."""
        text = self.texts[0]
        hashes = np.empty(len(text.starts), np.int64)
        _keys_before(windows(text.array), text.starts, text.ends, _KEY_END, hashes)
        return hashes ^ np.int64(self._legacy)

    def learn(self, row: int) -> Template | None:
        value = self._values[row]
        events = decode_canal(None, value, DecodeOptions(protocol=CODEC, legacy=self._legacy))
        layout = layout_of(events, partial(_form, legacy=self._legacy))
        return None if layout is None else _template(value.decode("latin-1"), layout)


def _form(field: Field, *, legacy: bool) -> ColumnForm | None:
    """The wire form of a column's values; None for official Canal's names of ENUM and SET."""
    if field.binary:
        return ColumnForm(Form.LATIN1)
    if legacy and field.type in NAMED:
        return None
    if field.type in INT_RANGES:
        return ColumnForm(Form.INTEGER, *integer_range(field.type, unsigned=field.unsigned))
    return ColumnForm(_NUMBERS.get(field.type, Form.TEXT))


_NUMBERS: Final[dict[int, Form]] = {MysqlType.FLOAT: Form.FLOAT, MysqlType.DOUBLE: Form.DOUBLE}


@compiled
def _keys_before(words: Any, starts: Any, ends: Any, mark: Any, hashes: Any) -> None:
    """Hash each text up to `mark`, or all of it."""
    for row in range(len(starts)):
        offset, end = starts[row], ends[row]
        while offset < end and words[np.uint64(offset)] != mark:
            offset += 1
        hashes[row] = np.int64(scan.text_hash(words, starts[row], offset))


def _template(text: str, layout: RowLayout) -> Template:
    steps, offset, json_members = list[ScanStep](), 0, list[JsonMember]()
    for member in members(text):
        if member.name == "_tidb":
            json_members += [inner for inner in members(text, member.start) if inner.name == "commitTs"]
        elif member.name == "type":
            json_members.append(member._replace(start=member.start + 1, end=member.end - 1))
        elif member.name in _NAMES:
            json_members.append(member)
    if sorted(member.name for member in json_members) != sorted(_NAMES) or [
        member.name for member in json_members
    ].index("type"):
        raise ValueError("no message of a row, or one whose type comes late")
    types = list(members(text, next(member.start for member in json_members if member.name == "mysqlType")))
    if len({member.name for member in types}) < len(types):
        raise ValueError("a type that is given twice: the last one counts, and members have no order")
    for member in json_members:
        steps.append(ScanStep(scan.LITERAL, literal(text, offset, member.start)))
        steps += _STEPS[member.name](text, member, layout, len(steps))
        offset = member.end
    steps += [ScanStep(scan.LITERAL, literal(text, offset, len(text))), ScanStep(scan.END)]
    found_types = [(literal(text, member.begun, member.end), member.start - 1 - member.begun) for member in types]
    return Template(layout, (tuple(steps),), tuple(found_types))


def _digits(text: str, member: JsonMember, _layout: RowLayout, _offset: int) -> list[ScanStep]:
    return [digits(text, member, 0 if member.name == "commitTs" else -1)]


def _data(text: str, member: JsonMember, layout: RowLayout, offset: int) -> list[ScanStep]:
    image = _image(text, member.start + 1, layout)
    return [ScanStep(scan.LITERAL, b"["), *image.steps(0, offset + 1, partial=False), ScanStep(scan.LITERAL, b"]")]


def _old(text: str, _member: JsonMember, layout: RowLayout, offset: int) -> list[ScanStep]:
    data = next(member for member in members(text) if member.name == "data")
    steps = _image(text, data.start + 1, layout).steps(len(layout.columns), offset + 1, partial=True)
    return [ScanStep(scan.OLD, jump=offset + len(steps) + 2), *steps, ScanStep(scan.LITERAL, b"]")]


def _image(text: str, offset: int, layout: RowLayout) -> Image:
    return image_of(
        text, offset, layout, {member.name: (member.start, member.end) for member in members(text, offset)}, bare=False
    )


_STEPS: Final[dict[str, Callable[[str, JsonMember, RowLayout, int], list[ScanStep]]]] = {
    "type": lambda _text, _member, _layout, _offset: [ScanStep(scan.WORD)],
    "es": _digits,
    "ts": _digits,
    "commitTs": _digits,
    "sqlType": lambda text, member, _layout, _offset: [ScanStep(scan.CODES, literal(text, member.start, member.end))],
    "mysqlType": lambda _text, _member, _layout, _offset: [ScanStep(scan.TYPES)],
    "old": _old,
    "data": _data,
}
