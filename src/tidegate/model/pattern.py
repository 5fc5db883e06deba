r"""Patterns of users and clients, matched without backtracking, so that no pattern takes exponential time.

    expression('^(a+)+$')   RE2 syntax, that of Go, and so of TiDB and TiCDC             google-re2
                            no lookaround, no back references
    like('a%b_c')           LIKE: % any text, _ one character, \ escapes the next one

    a%b_c%d    head a  ├──── first match of b_c, leftmost ────────┤  tail d

Python's `re` backtracks, which takes 2^n steps for some texts of n characters, in one call that blocks all threads.
RE2 takes time linear in the text, and bounds the memory of a pattern.

Source: https://github.com/google/re2/wiki/Syntax, which is that of Go's regexp.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tidegate.model.errors import InputError

__all__ = ["Like", "RegularExpression", "expression", "like"]

TRIES: Final = 64
"""Positions at which a piece of LIKE is tried before all of its characters are searched at once."""
KEPT: Final = 256
"""Compiled expressions to cache; one may take 8 MiB, most take some KiB."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """A regular expression, made by `expression`."""

    text: str
    flags: str
    compiled: Any = field(repr=False, compare=False)

    def is_in(self, text: str) -> bool:
        """Return whether it matches anywhere in `text`."""
        return self.compiled.search(_utf8(text)) is not None

    def is_all(self, text: str) -> bool:
        """Return whether it matches the whole of `text`."""
        return self.compiled.fullmatch(_utf8(text)) is not None


@lru_cache(maxsize=KEPT)
def expression(text: str, flags: str = "") -> RegularExpression:
    """Return an expression; `flags` are some of i (without case), s (. takes line breaks), m (^ and $ at lines).

    Raises InputError, with the reason, for an invalid one."""
    import re2

    options = re2.Options()
    options.log_errors, options.case_sensitive, options.dot_nl = False, "i" not in flags, "s" in flags
    try:
        return RegularExpression(text, flags, re2.compile(_utf8(f"(?m){text}" if "m" in flags else text), options))
    except re2.error as error:
        reason = error.args[0]
        raise InputError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None


def _utf8(text: str) -> bytes:
    """The bytes of a text; invalid characters become U+FFFD, as in Go."""
    return (text if text.isascii() else _SURROGATES.sub("\ufffd", text)).encode()


class _Piece(NamedTuple):
    """The text between two %: literals with their offsets, the longest first, and its length in characters."""

    length: int
    literals: tuple[tuple[int, str], ...]

    def fits(self, text: str, position: int) -> bool:
        return all(text.startswith(literal, position + offset) for offset, literal in self.literals)

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first position in text[start:end]; -1 if there is none."""
        if not self.literals:
            return start if start + self.length <= end else -1
        offset, literal = self.literals[0]
        last = end - self.length + offset + len(literal)
        position = text.find(literal, start + offset, last)
        for _ in range(TRIES):
            if position < 0 or self.fits(text, position - offset):
                return position - offset if position >= 0 else -1
            position = text.find(literal, position + 1, last)
        return self._walked(text, position - offset, end) if position >= 0 else -1

    def _walked(self, text: str, start: int, end: int) -> int:
        """`find` where the literal stands in many places and the piece in none of them: bit n of `open_` says that the
        first n + 1 characters of the piece stand before here (Baeza-Yates and Gonnet, "Shift-And")."""
        wild, own = (1 << self.length) - 1, dict[str, int]()
        for offset, literal in self.literals:
            wild ^= ((1 << len(literal)) - 1) << offset
            for index, sign in enumerate(literal, offset):
                own[sign] = own.get(sign, 0) | 1 << index
        open_, whole = 0, 1 << (self.length - 1)
        for position in range(start, end):
            open_ = (open_ << 1 | 1) & (wild | own.get(text[position], 0))
            if open_ & whole:
                return position + 1 - self.length
        return -1


@dataclass(frozen=True, slots=True)
class Like:
    """A pattern of LIKE."""

    pieces: tuple[_Piece, ...]

    def matches(self, text: str) -> bool:
        """Return whether it matches the whole of `text`."""
        head, *middle = self.pieces
        if not middle:
            return len(text) == head.length and head.fits(text, 0)
        tail = middle.pop()
        position, end = head.length, len(text) - tail.length
        if position > end or not head.fits(text, 0) or not tail.fits(text, end):
            return False
        for piece in middle:
            position = piece.find(text, position, end)
            if position < 0:
                return False
            position += piece.length
        return True


@lru_cache(maxsize=1024)
def like(pattern: str, escape: str = "\\") -> Like:
    """Return the pattern; `escape` is the character that escapes the next one, "" for none."""
    pieces: list[list[str]] = [[]]
    signs = iter(pattern)
    for sign in signs:
        if sign == "%":
            pieces.append([])
        elif sign == "_":
            pieces[-1].append("")
        else:
            pieces[-1].append(next(signs, sign) if sign == escape else sign)
    return Like(
        tuple(
            _Piece(len(signs), tuple(sorted(_literals(signs), key=lambda literal: -len(literal[1]))))
            for signs in (pieces[0], *filter(None, pieces[1:-1]), *pieces[1:][-1:])
        )
    )


def _literals(signs: list[str]) -> Iterator[tuple[int, str]]:
    start = 0
    for index, sign in enumerate([*signs, ""]):
        if not sign:
            if index > start:
                yield start, "".join(signs[start:index])
            start = index + 1
