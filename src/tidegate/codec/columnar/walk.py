r"""Many texts of one shape read in step: numpy goes from left to right, one call for all of them.

    TextRun   some texts joined, and where the strings and objects of their JSON may end
    Walk   rows that stand at the same place of a template, each at its own position of the text

    {"u":{"id":{"t":8,"v":7},"c":{"t":254,"v":"x"}}}      at    literal   `{"u":{"id":{"t":8,"v":`   all rows compared
    {"u":{"id":{"t":8,"v":12345},"c":{"t":254,"v":""}}}   at    number    7 | 12345                 to the first `}`
    ^ at                                                        literal   `},"c":{"t":254,"v":`
                                                                string    "x" | ""                  to the next closing

A row that is not as a step says is left out of the walk, and nothing is known of it then.  Who walks on to the end of
a row has proved that its text is the template's, with values in between:

    a literal    is equal, byte by byte
    digits       are 1 to 19 of them, a JSON number that 63 bits hold
    a string     begins with a quote and ends with one; what is between may still be no JSON string
    a number     begins anyhow and ends before a brace; it may be no number at all
    an object    begins anyhow and ends with the first brace

What the last three hold is checked where it becomes a column (`spans.py`), a whole column at once.

`closings` are the quotes that a backslash does not escape and that a comma or a brace follows: every string that is a
value ends with one.  `cursor` is the number of closings before a row's place; a literal moves it by as many as it has,
so that the end of a string is looked up and not searched.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.values import Misfit

PAD: Final = bytes(4096)
"""Behind the last text, so that a look at the next bytes needs no check, nor one at what a step ended beyond it."""

LITERAL_MAX: Final = len(PAD) - 64
"""Bytes of a literal."""

TEXT_MAX: Final = 1 << 30
"""Bytes of a text: its places are offsets of Arrow arrays, which have 31 bits."""

BLOCK: Final = 1 << 18
"""Bytes that are searched at once: what is in between stays in the processor's cache."""

ESCAPES_MAX: Final = 64
"""Backslashes in a row before a quote; a longer run is left to others."""

DIGITS_MAX: Final = 19
NUMBER_MAX: Final = 27
"""Characters of a number; the longest that TiCDC writes has 24."""

_QUOTE, _COMMA, _BRACE, _BACKSLASH, _ZERO, _N = b'",}\\0n'
_NULL: Final = int(np.frombuffer(b"null", np.uint32)[0])
_LARGEST: Final = str((1 << 63) - 1).encode()


class ValueSpan(NamedTuple):
    """Where a value stands in the text of each row; `null` tells the rows where it is null, None that none is."""

    start: Any
    end: Any
    null: Any = None

    def of(self, rows: Any) -> "ValueSpan":
        """Return the places of this value in some rows, chosen by mask or by number."""
        return ValueSpan(self.start[rows], self.end[rows], None if self.null is None else self.null[rows])


class TextRun:
    """Some texts, one behind the other; `starts` and `ends` are their places.

    `behind`: what may follow the closing quote of a value, a comma or a brace."""

    def __init__(self, parts: Sequence[bytes], behind: bytes) -> None:
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        self.size = int(sizes.sum())
        if self.size > TEXT_MAX:
            raise Misfit("a text whose places are no 32-bit numbers")
        self.data = b"".join((*parts, PAD))
        self.buffer = pa.py_buffer(self.data)
        self.array = np.frombuffer(self.data, np.uint8)
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes
        self.behind = behind

    def windows(self, size: int, kind: str = "V") -> Any:
        """`size` bytes from every place on, as one value each."""
        return np.ndarray((max(0, len(self.array) - size + 1),), f"{kind}{size}", self.array, strides=(1,))

    @cached_property
    def closings(self) -> Any:
        """The places of all closings, and one that no row can stand at."""
        quotes = np.concatenate([self._quotes(start) for start in range(0, len(self.array), BLOCK)])
        quotes = quotes[quotes > 0]
        closing = np.ones(len(quotes), np.bool_)
        rows, at = np.arange(len(quotes)), quotes
        for _ in range(ESCAPES_MAX):
            at = at - 1
            escaping = self.array[at] == _BACKSLASH
            if not escaping.any():
                return np.append(quotes[closing], self.size + 1)
            rows, at = rows[escaping], at[escaping]
            closing[rows] ^= True
        raise Misfit("a long run of backslashes")

    def _quotes(self, start: int) -> Any:
        """The quotes of a block with what may stand behind a closing one."""
        block = self.array[start : start + BLOCK + 1]
        nexts = block[1:]
        fits = nexts == self.behind[0]
        for other in self.behind[1:]:
            fits |= nexts == other
        fits &= block[:-1] == _QUOTE
        return np.flatnonzero(fits) + start

    @cached_property
    def braces(self) -> Any:
        """The places of all closing braces, and one behind the text."""
        array = self.array
        blocks = range(0, len(array), BLOCK)
        found = [np.flatnonzero(array[start : start + BLOCK] == _BRACE) + start for start in blocks]
        return np.append(np.concatenate(found), self.size)


@lru_cache(maxsize=1 << 14)
def _closings_in(literal: bytes, behind: bytes) -> int:
    return sum(literal.count(b'"%c' % character) for character in behind)


class Walk:
    """Some rows of a text and how far they were read; `spans` has what was found, by name."""

    def __init__(self, text: TextRun, rows: Any, at: Any, spans: dict[Any, ValueSpan]) -> None:
        self.text = text
        self.rows = rows
        self.at = at
        self.spans = spans
        self._cursor: Any = None

    def part(self, mask: Any) -> "Walk":
        """Return some of the rows, to be led another way, without what was found so far."""
        other = Walk(self.text, self.rows[mask], self.at[mask], {})
        other._cursor = None if self._cursor is None else self._cursor[mask]
        return other

    def keep(self, mask: Any) -> None:
        """Go on with those rows of which `mask` is true."""
        if mask.all():
            return
        self.rows, self.at = self.rows[mask], self.at[mask]
        self.spans = {name: span.of(mask) for name, span in self.spans.items()}
        if self._cursor is not None:
            self._cursor = self._cursor[mask]

    def literal(self, literal: bytes) -> None:
        """Pass `literal`."""
        size = len(literal)
        found = self.text.windows(size)[self.at].tobytes()
        if found != literal * len(self.at):
            same = np.frombuffer(found, np.uint8).reshape(-1, size) == np.frombuffer(literal, np.uint8)
            self.keep(same.all(axis=1))
        self._move(literal)

    def string(self, literal: bytes, name: Any) -> None:
        """Pass `literal` and then a string or null."""
        if self._all_before(literal + b'"'):
            self._move(literal)
            end = self._closing() + 1
            self._pass(name, ValueSpan(self.at, end))
            self._cursor = self._cursor + 1
            return
        self.literal(literal)
        at, closing = self.at, self._closing()
        quoted = self.text.array[at] == _QUOTE
        self._pass(name, ValueSpan(at, np.where(quoted, closing + 1, at + 4), ~quoted))
        self._cursor = self._cursor + quoted
        self._check_null(name)

    def passes(self, literal: bytes) -> bool:
        """Pass `literal` if all rows stand before it."""
        if len(literal) > LITERAL_MAX or not self._all_before(literal):
            return False
        self._move(literal)
        return True

    def _all_before(self, literal: bytes) -> bool:
        found: bytes = self.text.windows(len(literal))[self.at].tobytes()
        return found == literal * len(self.at)

    def _move(self, literal: bytes) -> None:
        self.at = self.at + len(literal)
        closings = _closings_in(literal, self.text.behind)
        if closings and self._cursor is not None:
            self._cursor = self._cursor + closings

    def _closing(self) -> Any:
        """The first closing of each row, not counting the quote that a string begins with, which may look like one."""
        closings = self.text.closings
        if self._cursor is None:
            self._cursor = np.searchsorted(closings, self.at)
        found = closings[self._cursor]
        opening = found == self.at
        if opening.any():
            self._cursor = self._cursor + opening
            found = closings[self._cursor]
        return found

    def number(self, name: Any) -> None:
        """Pass a number that a brace follows, or null; one of more than NUMBER_MAX characters is left out."""
        at = self.at
        braces = self.text.windows(NUMBER_MAX + 1)[at].view(np.uint8).reshape(-1, NUMBER_MAX + 1) == _BRACE
        null = self.text.array[at] == _N
        self._pass(name, ValueSpan(at, at + braces.argmax(axis=1), null if null.any() else None))
        self._check_null(name)

    def digits(self, name: Any) -> None:
        """Pass an integer that is not negative and that 63 bits hold."""
        at = self.at
        found = self.text.windows(DIGITS_MAX + 1)[at].view(np.uint8).reshape(-1, DIGITS_MAX + 1) - np.uint8(_ZERO)
        width = (found > 9).argmax(axis=1)
        fits = (width > 0) & ((found[:, 0] > 0) | (width == 1))
        if len(at) and width.max() == DIGITS_MAX:
            large = self.text.windows(DIGITS_MAX, "S")[at] > _LARGEST
            fits &= ~((width == DIGITS_MAX) & large)
        self._pass(name, ValueSpan(at, at + width))
        self.keep(fits)

    def object(self, name: Any, size: int) -> None:
        """Pass an object that holds neither another one nor a brace, and that most likely has `size` bytes."""
        array, end = self.text.array, np.minimum(self.at + size, len(self.text.array) - 1)
        elsewhere = (array[end - 1] != _BRACE) | (array[end] != _COMMA)
        if elsewhere.any():
            braces = self.text.braces
            end[elsewhere] = braces[np.searchsorted(braces, self.at[elsewhere])] + 1
        self._pass(name, ValueSpan(self.at, end))
        self._cursor = None

    def word(self, name: Any, size: int) -> None:
        """Pass `size` bytes, whatever they are."""
        self._pass(name, ValueSpan(self.at, self.at + size))

    def letters(self, name: Any) -> Any:
        """Return the first byte of each span called `name`."""
        return self.text.array[self.spans[name].start]

    def ahead(self, ends: Any) -> Any:
        """Return how many bytes each row still has."""
        return ends[self.rows] - self.at

    def next_is(self, character: bytes) -> Any:
        """Return which rows stand before `character`."""
        return self.text.array[self.at] == character[0]

    def meet(self, *others: "Walk") -> None:
        """Go on where parts of this walk have come to, with the rows that they still have."""
        at = np.full(len(self.at), -1)
        for other in others:
            at[np.searchsorted(self.rows, other.rows)] = other.at
        self.at, self._cursor = at, None
        self.keep(at >= 0)

    def finish(self, ends: Any) -> None:
        """Go on with those rows that are at their end."""
        self.keep(self.at == ends[self.rows])

    def _pass(self, name: Any, span: ValueSpan) -> None:
        self.spans[name] = span
        self.at = span.end

    def _check_null(self, name: Any) -> None:
        """Leave out what begins as a null and is none."""
        start, end, null = self.spans[name]
        if null is not None:
            words = self.text.windows(4)[start].view(np.uint32)
            self.keep(~null | ((words == _NULL) & (end == start + 4)))
