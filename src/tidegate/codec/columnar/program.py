r"""Templates as programs: the fixed text of a table's rows, learned from one row.

    row       {"u":{"id":{"t":8,"v":7},"c":{"t":254,"v":"x"}}}
    Template  the steps of its text (`scan.py`), its literals, the layout of its values
    Programs  the templates of a chunk as arrays

A row that the plain decoder accepts is a sample: its event has the layout, and the text around its values names the
columns, their types and flags.  Any other row with exactly the same text around its values has the same layout, so only
its values are read.  A row whose text differs, even by a space, takes another path; nothing is guessed.  The protocol's
own steps cover what may differ between rows besides values; old images may lack columns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from json import JSONDecoder
from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.codec.columnar import scan
from tidegate.codec.columnar.rows import RowLayout
from tidegate.codec.columnar.swept import WIDTH_MAX
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.values import ColumnForm, Form
from tidegate.model.compiled import windows
from tidegate.model.event import Event, Field, RowChange
from tidegate.model.name import all_digits
from tidegate.model.path_counts import Reason

NUMBERS: Final = frozenset({Form.INTEGER, Form.FLOAT, Form.DOUBLE})
WORDS: Final = b"INSERTUPDATEDELETE"
KEPT_SETS: Final = 64

_decoded: Final = JSONDecoder().raw_decode


class JsonMember(NamedTuple):
    """A member of a JSON object: its name, its start, and the start and end of its value."""

    name: str
    begun: int
    start: int
    end: int


class ScanStep(NamedTuple):
    """A step of a program; `size` is the literal's."""

    code: int
    literal: bytes = b""
    size: int = 0
    slot: int = 0
    jump: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """The form of row texts: steps for each text of a row, members of `mysqlType`, and the columns' layout."""

    layout: RowLayout
    steps: tuple[tuple[ScanStep, ...], ...]
    members: tuple[tuple[bytes, int], ...] = ()
    partitioned: bool = False


class Programs(NamedTuple):
    """The programs of one of a row's texts, of several templates."""

    first_steps: Any
    steps: Any
    pool: Any
    members: Any
    table: Any


def layout_of(events: Sequence[Event], form_of: Callable[[Field], ColumnForm | None]) -> RowLayout | None:
    """Return the layout of a sample from its events, None for an incomplete row. Raises Mismatch for columns without
    templates. `form_of` returns the wire form of a column's values, None if it varies."""
    row = events[0] if len(events) == 1 else None
    if not isinstance(row, RowChange) or row.handle_only or row.claim_check or row.commit_ts is None:
        return None
    forms = [form_of(field) for field in row.fields]
    columns = tuple([form for form in forms if form is not None])
    if not 0 < len(columns) == len(forms) <= WIDTH_MAX:
        raise Mismatch("columns that no template is made for", Reason.NO_LAYOUT)
    return RowLayout(row.schema, row.table, row.fields, row.pk_names, columns)


@dataclass(slots=True)
class Image:
    """The steps of an image: those of its values, and the literals around them."""

    text: str
    end: int
    columns: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Start of a member, start and end of its value, and the column."""
    numbers: list[bool] = field(default_factory=list)

    def steps(self, at_slot: int, at_step: int, *, partial: bool) -> list[ScanStep]:
        """Return the steps; values become the cells from `at_slot` on. The first is a program's step `at_step`."""
        steps = [ScanStep(scan.OPEN)]
        for number, (begun, start, end, column) in enumerate(self.columns):
            value = ScanStep(scan.NUMBER if self.numbers[number] else scan.STRING, slot=at_slot + column)
            behind = self._behind(number, end)
            jump = at_step + len(steps) + 2 + bool(behind) if partial else 0
            steps += [ScanStep(scan.PIECE, self._bytes(begun, start), slot=at_slot + column, jump=jump), value]
            steps += [ScanStep(scan.LITERAL, behind)] if behind else []
        return [*steps, ScanStep(scan.LITERAL, b"}")]

    def _behind(self, number: int, end: int) -> bytes:
        until = self.columns[number + 1][0] - 1 if number + 1 < len(self.columns) else self.end - 1
        return self._bytes(end, until)

    def _bytes(self, start: int, end: int) -> bytes:
        return literal(self.text, start, end)


def members(text: str, offset: int = 0) -> Iterator[JsonMember]:
    """Return the members of the object at `offset`; ValueError for JSON that is not compact.

    `text` has one byte per character, so that positions are positions of bytes."""
    if text[offset] != "{":
        raise ValueError("no object")
    while text[offset] != "}":
        begun = offset + 1
        name, offset = _decoded(text, begun)
        if text[offset] != ":":
            raise ValueError("no compact JSON")
        start = offset + 1
        _, offset = _decoded(text, start)
        yield JsonMember(name.encode("latin-1").decode(), begun, start, offset)
        if text[offset] not in ",}":
            raise ValueError("no compact JSON")


def digits(text: str, member: JsonMember, slot: int) -> ScanStep:
    """Return the step of an integer that becomes a row's number `slot`, -1 or SIGNED for none.

    Raises
    ------
    ValueError
        There is no integer at the slot.
    """
    value = text[member.start : member.end]
    if not all_digits(value.removeprefix("-") if slot == scan.SIGNED else value):
        raise ValueError("no integer")
    return ScanStep(scan.DIGITS, slot=slot)


def image_of(text: str, offset: int, layout: RowLayout, values: Mapping[str, tuple[int, int]], *, bare: bool) -> Image:
    """Return the image that begins at `offset`; ValueError for one that cannot be a template.

    `values` returns the position of a column's value, `bare`: numbers have no quotes."""
    json_members = list(members(text, offset))
    names = [field.name for field in layout.fields]
    if sorted(names) != sorted(member.name for member in json_members):
        raise ValueError("other columns")
    image = Image(text, json_members[-1].end + 1)
    for member in json_members:
        column = names.index(member.name)
        image.columns.append((member.begun, *values[member.name], column))
        image.numbers.append(bare and layout.columns[column].form in NUMBERS)
    return image


def literal(text: str, start: int, end: int) -> bytes:
    """Return bytes of a template; ValueError where a name has an escape, whose spelling is not the only one."""
    if "\\" in text[start:end] or start > end:
        raise ValueError("an escape in a name")
    return text[start:end].encode("latin-1")


@lru_cache(maxsize=KEPT_SETS)
def programs_of(templates: tuple[Template, ...], number: int) -> Programs:
    """Return the programs of the `number`th text of each of some templates, in their order."""
    pool = bytearray(WORDS)
    firsts, steps, entries, table = [], list[tuple[int, ...]](), list[tuple[int, ...]](), list[int]()
    for template in templates:
        firsts.append(len(steps))
        for step in template.steps[number]:
            begun, size = len(pool), step.size or len(step.literal)
            pool += step.literal
            if step.code == scan.TYPES:
                begun, size = len(table), _add_members(template.members, pool, entries, table)
            steps.append((step.code, begun, size, step.slot, step.jump + firsts[-1] if step.jump else 0))
    return Programs(
        np.array(firsts, np.int64),
        np.array(steps, np.int64).reshape(-1, 5),
        windows(np.frombuffer(bytes(pool) + bytes(8), np.uint8)),
        np.array(entries, np.int64).reshape(-1, 3),
        np.array(table, np.int64),
    )


def _add_members(
    named_members: Sequence[tuple[bytes, int]], pool: bytearray, entries: list[tuple[int, ...]], table: list[int]
) -> int:
    """Add members and a hash table of them; return its mask."""
    mask = 1
    while mask < 2 * len(named_members):
        mask = 2 * mask + 1
    slots = [-1] * (mask + 1)
    for text, name_size in named_members:
        name = windows(np.frombuffer(text[1 : name_size - 1] + bytes(8), np.uint8))
        probe = scan.name_hash(name, 0, name_size - 2) & mask
        while slots[probe] >= 0:
            probe = (probe + 1) & mask
        slots[probe] = len(entries)
        entries.append((len(pool), len(text), len(named_members)))
        pool += text
    table += slots
    return mask
