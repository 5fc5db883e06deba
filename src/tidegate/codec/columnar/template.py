r"""What the text of a table's rows looks like, learned from one row, and rows of that look to columns.

    row       {"u":{"id":{"t":8,"v":7},"c":{"t":254,"v":"x"}}}
    Image          {"id":{"t":8,"v":  },"c":{"t":254,"v":   }}        the text around the values
    columns                         0                     1           which column of the layout each value is

A row that the structs of a layout accept is a sample: what stands around its values names the columns, their types and
flags.  Any other row with the very same text around its values is of the same layout, so only its values are looked
at.  A row whose text differs, be it by a space, goes another way; nothing is guessed.

    Walk ──→ TemplateRows …            rows that made one kind of change, images as spans
    TemplateRows … ──→ Batch           all rows of one layout, in the order of the text
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from json import JSONDecoder
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.rows import Batch, RowTexts, StructLayout
from tidegate.codec.columnar.spans import UNREADABLE, integers_of, listed, row_texts, texts_of
from tidegate.codec.columnar.values import Misfit
from tidegate.codec.columnar.walk import LITERAL_MAX, TextRun, ValueSpan, Walk
from tidegate.codec.values import ColumnForm, Form

NUMBERS: Final = frozenset({Form.INTEGER, Form.FLOAT, Form.DOUBLE})

SAMPLE: Final = 64
"""Texts that tell whether most are equal: a small map of Go has few orders, a larger one has another each time."""

NOTHING: Final = np.empty(0, np.int64)

Member: TypeAlias = tuple[str, int, int]


class ChunkTexts(Protocol):
    """The texts of a chunk in which timestamps and values stand, and how values become columns."""

    @property
    def heads(self) -> TextRun:
        """Where timestamps stand."""

    @property
    def text(self) -> TextRun:
        """Where values stand."""

    @property
    def convert(self) -> Callable[[ColumnForm, TextRun, ValueSpan], Any]:
        """What makes an array of some values."""

    @property
    def quotes(self) -> Mapping[Form, int] | None:
        """Forms whose values may be their own texts, with the quotes around them; None if no texts are wanted."""


_value: Final = JSONDecoder().raw_decode


class Image(NamedTuple):
    """The text of an image around its values: a piece before each, and one behind the last."""

    pieces: tuple[bytes, ...]
    last: bytes
    columns: tuple[int, ...]
    numbers: tuple[bool, ...]


class SpanImages(NamedTuple):
    """Images of some rows: spans by column, in the layout's order."""

    rows: Any
    spans: tuple[ValueSpan, ...]

    def of(self, mask: Any) -> "SpanImages":
        """Return some of them."""
        return SpanImages(self.rows[mask], tuple([span.of(mask) for span in self.spans]))


class TemplateRows(NamedTuple):
    """Rows that were read together, which change each makes (a letter's code), and their images in any order."""

    rows: Any
    ops: Any
    commit_ts: ValueSpan
    partition_id: ValueSpan | None
    before: tuple[SpanImages, ...]
    after: tuple[SpanImages, ...]

    def of(self, mask: Any) -> "TemplateRows":
        """Return some of the rows."""
        rows = self.rows[mask]
        partition_id = None if self.partition_id is None else self.partition_id.of(mask)
        before, after = (
            tuple([one.of(np.isin(one.rows, rows)) for one in images]) for images in (self.before, self.after)
        )
        return TemplateRows(rows, self.ops[mask], self.commit_ts.of(mask), partition_id, before, after)


def members(text: str, at: int = 0) -> Iterator[Member]:
    """Name, start and end of each value of the object at `at`; ValueError for JSON that is not compact.

    `text` holds a byte in each character, so that places are places of bytes."""
    if text[at] != "{":
        raise ValueError("no object")
    while text[at] != "}":
        name, at = _value(text, at + 1)
        if text[at] != ":":
            raise ValueError("no compact JSON")
        start = at + 1
        _, at = _value(text, start)
        yield name.encode("latin-1").decode(), start, at
        if text[at] not in ",}":
            raise ValueError("no compact JSON")


def image_of(text: str, at: int, end: int, values: Sequence[Member], layout: StructLayout, *, bare: bool) -> Image:
    """Return the image that stands from `at` to `end`; ValueError for one that cannot be a template.

    `bare`: numbers stand without quotes."""
    names = [field.name for field in layout.fields]
    if sorted(names) != sorted(map(itemgetter(0), values)):
        raise ValueError("other columns")
    columns = tuple([names.index(name) for name, _, _ in values])
    numbers = tuple([bare and layout.columns[column].form in NUMBERS for column in columns])
    starts = [at, *(stop for _, _, stop in values)]
    pieces = tuple([literal(text, begin, start) for begin, (_, start, _) in zip(starts, values, strict=False)])
    last = literal(text, starts[-1], end)
    if any(number and not piece.startswith(b"}") for number, piece in zip(numbers, (*pieces[1:], last), strict=True)):
        raise ValueError("a number without a brace behind it")
    return Image(pieces, last, columns, numbers)


def literal(text: str, start: int, end: int) -> bytes:
    """Return bytes of a template."""
    if "\\" in text[start:end] or not start < end < start + LITERAL_MAX:
        raise ValueError("an escape in a name, or too long a text")
    return text[start:end].encode("latin-1")


def walk_image(walk: Walk, image: Image, name: str) -> None:
    """Pass an image; its spans are (name, column)."""
    for piece, column, number in zip(image.pieces, image.columns, image.numbers, strict=True):
        if number:
            walk.literal(piece)
            walk.number((name, column))
        else:
            walk.string(piece, (name, column))
    walk.literal(image.last)


def images_of(walk: Walk, name: str, layout: StructLayout) -> SpanImages:
    """Return the images that a walk has passed."""
    return SpanImages(walk.rows, tuple([walk.spans[name, column] for column in range(len(layout.columns))]))


def batch_from(layout: StructLayout, texts: ChunkTexts, parts: Sequence[TemplateRows], message: Any, seq: Any) -> Batch:
    """Return the rows of `parts` as columns, in the order of the text; Misfit for values that are none.

    `message` and `seq` tell each row's place in its chunk."""
    order = _order(parts)
    rows = _in_order([part.rows for part in parts], order)
    commit_ts = _joined([part.commit_ts for part in parts], order)
    partitions = [part.partition_id for part in parts if part.partition_id is not None]
    return Batch(
        schema=layout.schema,
        table=layout.table,
        fields=layout.fields,
        pk_names=layout.pk_names,
        message=pa.array(message[rows], pa.int32()),
        seq=pa.array(seq[rows], pa.int32()),
        commit_ts=integers_of(texts.heads, commit_ts),
        op=_letters(_in_order([part.ops for part in parts], order)),
        partition_id=integers_of(texts.heads, _joined(partitions, order))
        if partitions
        else pa.nulls(len(rows), pa.int64()),
        before=_images(layout, texts, [images for part in parts for images in part.before]),
        after=_images(layout, texts, [images for part in parts for images in part.after]),
    )


def _images(layout: StructLayout, texts: ChunkTexts, images: list[SpanImages]) -> Any:
    """The images as texts where those are wanted and plain to see, else typed."""
    some = [one for one in images if len(one.rows)]
    order = _order(some)
    spans = [_joined([one.spans[number] for one in some], order) for number in range(len(layout.columns))]
    if texts.quotes is not None:
        values = row_texts(layout.columns, texts.text, spans, texts.quotes)
        if values is not None:
            return RowTexts(values, len(spans))
    arrays = [texts.convert(column, texts.text, span) for column, span in zip(layout.columns, spans, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[one.name for one in layout.fields])


def _order(parts: Sequence[TemplateRows | SpanImages]) -> Any:
    """What puts the rows of several parts in the order of the text; nothing to do for one."""
    return np.argsort(np.concatenate([part.rows for part in parts]), kind="stable") if len(parts) > 1 else None


def _in_order(arrays: Sequence[Any], order: Any) -> Any:
    """The arrays of several parts as one."""
    return arrays[0] if order is None else np.concatenate(arrays)[order]


def _joined(spans: Sequence[ValueSpan], order: Any) -> ValueSpan:
    """The spans of several parts as one."""
    if not spans:
        return ValueSpan(NOTHING, NOTHING)
    null = None
    if any(span.null is not None for span in spans):
        null = [np.zeros(len(span.start), np.bool_) if span.null is None else span.null for span in spans]
    return ValueSpan(
        _in_order([span.start for span in spans], order),
        _in_order([span.end for span in spans], order),
        None if null is None else _in_order(null, order),
    )


def _letters(codes: Any) -> Any:
    """A string array of single ASCII characters."""
    offsets = pa.py_buffer(np.arange(len(codes) + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), len(codes), [None, offsets, pa.py_buffer(codes)])


def accepted(walk: Walk, name: str, decode: Callable[[bytes], list[Any]]) -> None:
    """Go on with the rows of which `decode` takes the text called `name`, as an entry of an array; equal texts once."""
    span = walk.spans[name]
    texts = texts_of(walk.text, span)
    if len(texts.slice(0, SAMPLE).unique()) > SAMPLE // 4:
        with suppress(Misfit):
            listed(walk.text, span, decode)
            return
    texts = texts.dictionary_encode()
    fits = np.array([_takes(decode, one) for one in texts.dictionary.to_pylist()], np.bool_)
    if not fits.all():
        walk.keep(fits[texts.indices.to_numpy()])


def _takes(decode: Callable[[bytes], list[Any]], one: bytes) -> bool:
    try:
        return len(decode(b"[%b]" % one)) == 1
    except UNREADABLE:
        return False
