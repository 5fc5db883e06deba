"""Open Protocol by template: all events of a chunk are cut from their messages at once, all tables to columns.

    key     | 1 (8) | n (8) | head | n (8) | head …        heads    {"ts":digits,"scm":…,"tbl":…,"rid":digits,"t":1}
    value           | n (8) | body | n (8) | body …        bodies   {"u":IMAGE}  {"u":IMAGE,"p":IMAGE}  {"d":IMAGE}

Lengths are found without following them: a length begins with zeros, JSON has none and ends in a brace, so a length is
at the beginning of a message and wherever zeros follow a brace.  Then each is verified against the offset of the
next; a message with one that fails takes the plain path.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from tidegate.codec.columnar import scan
from tidegate.codec.columnar.program import ScanStep, Template, digits, image_of, layout_of, literal, members
from tidegate.codec.columnar.rows import RowLayout
from tidegate.codec.columnar.sweep import NOT_WHOLE, Events, PackedTexts, RowsText, sweep
from tidegate.codec.columnar.swept import SweptChunk, nothing_swept, too_few
from tidegate.codec.kept import LayoutMemory
from tidegate.codec.open import CODEC, decode_open, form_of
from tidegate.codec.options import DecodeOptions
from tidegate.model.compiled import compiled, windows

_VERSION: Final = (1).to_bytes(8, "big")
_DIGITS: Final = {"ts": 0, "ptn": 1, "rid": scan.SIGNED}
"""Members of a head whose values vary, with the index of their number in a row."""

_templates: Final = LayoutMemory[int, tuple[Template, ...]]()
"""A cache of templates by key, which includes the options of decoding."""


def by_template(keys: Sequence[bytes], values: Sequence[bytes], *, legacy: bool, as_texts: bool) -> SweptChunk:
    """Return batches of the messages whose rows fit a known template, and a mask of these messages."""
    heads = _Frames(keys, len(_VERSION))
    bodies = _Frames(values, 0)
    fits = heads.fits & bodies.fits & (heads.counts == bodies.counts)
    versions = windows(heads.text.array)[heads.text.starts[fits]]
    fits[np.flatnonzero(fits)[versions != np.frombuffer(_VERSION, np.uint64)]] = False
    counts = np.where(fits, heads.counts, 0)
    message = np.repeat(np.arange(len(values)), counts)
    if too_few(len(message)):
        return nothing_swept(len(values))
    seq = np.arange(len(message)) - (np.cumsum(counts) - counts)[message]
    counts[~fits] = NOT_WHOLE
    shape = _OpenShape(heads.of(fits), bodies.of(fits), legacy=legacy)
    return sweep(Events(message, seq, counts), shape, as_texts=as_texts)


class _Frames:
    """The texts of length-prefixed messages: a mask of well-formed messages, the number of texts of each, and the
    positions of the texts."""

    def __init__(self, parts: Sequence[bytes], skip: int) -> None:
        self.text = text = PackedTexts.of(parts)
        firsts = text.starts + skip
        offsets = np.concatenate((firsts[text.ends >= firsts + 8], _marks(text.array)))
        offsets.sort(kind="stable")
        offsets = offsets[np.append(offsets[1:] != offsets[:-1], True)] if len(offsets) else offsets
        message = np.searchsorted(text.ends, offsets, "right")
        inside = (offsets + 8 <= np.append(text.ends, 0)[message]) & (offsets >= np.append(firsts, 0)[message])
        offsets, message = offsets[inside], message[inside]
        ends = offsets + 8 + windows(text.array, ">u8")[offsets].astype(np.int64)
        nexts, last = np.append(offsets, 0)[1:], np.append(message, -1)[1:] != message
        nexts[last] = text.ends[message[last]]
        self.counts = np.bincount(message, minlength=len(parts))
        self.fits = self.counts > 0
        self.fits[message[ends != nexts]] = False
        self.starts, self.ends, self._message = offsets + 8, ends, message

    def of(self, fits: Any) -> "_Frames":
        mask = fits[self._message]
        if not mask.all():
            self.starts, self.ends, self._message = self.starts[mask], self.ends[mask], self._message[mask]
        return self

    def __getitem__(self, number: int) -> bytes:
        return bytes(self.text.array[self.starts[number] : self.ends[number]])


def _marks(array: Any) -> Any:
    """Positions of zeros that follow a brace.

    A length below 2^24 begins with five zeros or more, so some are an even word; half as many words are searched."""
    words = np.flatnonzero(array[: len(array) & ~1].view(np.uint16) == 0)
    offsets = 2 * words[np.append(-1, words[:-1]) != words - 1]
    offsets = offsets[offsets > 1]
    offsets -= array[offsets - 1] == 0
    return offsets[array[offsets - 1] == ord("}")]


class _OpenShape:
    quotes = 0

    def __init__(self, heads: _Frames, bodies: _Frames, *, legacy: bool) -> None:
        self._heads, self._bodies, self._legacy = heads, bodies, legacy
        self.templates = _templates
        self.texts = tuple([RowsText(part.text.array, part.starts, part.ends) for part in (heads, bodies)])

    @cached_property
    def keys(self) -> Any:
        """A hash of the head without its numbers."""
        heads = self.texts[0]
        hashes = np.empty(len(heads.starts), np.int64)
        _keys_without_numbers(heads.array, heads.starts, heads.ends, hashes)
        return hashes ^ np.int64(self._legacy)

    def learn(self, row: int) -> Template | None:
        head, body = self._heads[row], self._bodies[row]
        options = DecodeOptions(protocol=CODEC, legacy=self._legacy)
        key, value = (len(text).to_bytes(8, "big") + text for text in (head, body))
        events = decode_open(_VERSION + key, value, options)
        layout = layout_of(events, partial(form_of, legacy=self._legacy))
        if layout is None:
            return None
        text, steps, offset = head.decode("latin-1"), list[ScanStep](), 0
        for member in members(text):
            if member.name in _DIGITS:
                steps += [
                    ScanStep(scan.LITERAL, literal(text, offset, member.start)),
                    digits(text, member, _DIGITS[member.name]),
                ]
                offset = member.end
        steps += [ScanStep(scan.LITERAL, literal(text, offset, len(text))), ScanStep(scan.END)]
        partitioned = any(step.slot == _DIGITS["ptn"] for step in steps)
        return Template(layout, (tuple(steps), _body_steps(body.decode("latin-1"), layout)), partitioned=partitioned)


@compiled
def _keys_without_numbers(text: Any, starts: Any, ends: Any, hashes: Any) -> None:
    """Hash each head without its numbers (digits and minus behind colons), except that of `t`."""
    for row in range(len(starts)):
        value, number = scan.HASH, False
        for offset in range(starts[row], ends[row]):
            byte = text[offset]
            if number and (48 <= byte <= 57 or byte == 45):
                continue
            number = byte == 58 and text[offset - 2] != 116
            value = scan.hashed(value, byte)
        hashes[row] = np.int64(value)


def _body_steps(text: str, layout: RowLayout) -> tuple[ScanStep, ...]:
    first = next(members(text))
    if first.name not in {"u", "d"}:
        raise ValueError("no row")
    image = image_of(text, first.start, layout, _values(text, first.start), bare=True)
    steps = [ScanStep(scan.LITERAL, b'{"'), ScanStep(scan.KIND), ScanStep(scan.LITERAL, b'":')]
    steps += image.steps(0, len(steps), partial=False)
    old = image.steps(len(layout.columns), len(steps) + 1, partial=True)
    steps += [ScanStep(scan.ALONE, b',"p":', jump=len(steps) + 1 + len(old)), *old]
    return (*steps, ScanStep(scan.LITERAL, b"}"), ScanStep(scan.END))


def _values(text: str, offset: int) -> dict[str, tuple[int, int]]:
    """Start and end of the value of each cell of an image."""
    spans = {}
    for cell in members(text, offset):
        values = [(member.start, member.end) for member in members(text, cell.start) if member.name == "v"]
        if len(values) != 1:
            raise ValueError("no value, or several")
        spans[cell.name] = values[0]
    return spans
