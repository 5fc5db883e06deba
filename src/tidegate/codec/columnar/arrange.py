"""Cells of many tables to columns: values of one form are converted as one array and sliced per column.

    cells     by table, column and row        start and end in the text            (scan.py)
    offsets   by form, table, image, column   where each range begins
    arrays    one per form                    converted at once                    (convert.py)
    Batch     slices of them                  or, if texts are requested, rows of texts

An Arrow call costs as much as a hundred small values, so a chunk of three hundred tables is converted in as many calls
as a chunk of one.  `before` has the only image of a DELETE and the old image of an UPDATE; columns absent from an old
image are filled from the new one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.convert import BAD, Values, array_of, bytes_of, fill, way_of, with_numbers_as_texts
from tidegate.codec.columnar.program import Template
from tidegate.codec.columnar.rows import Batch, RowTexts
from tidegate.codec.columnar.scan import DELETE, INSERT
from tidegate.codec.values import ColumnForm, Form
from tidegate.model.compiled import windows
from tidegate.model.event import Field

FLOATS: Final = frozenset({Form.FLOAT, Form.DOUBLE})


class ChunkRows(NamedTuple):
    """Per row: operation, commit_ts, message index, index within the message."""

    ops: Any
    numbers: Any
    message: Any
    seq: Any


class ReadRows(NamedTuple):
    """Rows that templates read, and the cells of their values. `scan.scan` describes the arrays; `room` is an upper
    bound of the bytes of the values of both images."""

    templates: tuple[Template, ...]
    program: Any
    rows: Any
    text: Any
    cells: Any
    start: Any
    end: Any
    marks: Any
    room: int


class ColumnSlices(NamedTuple):
    """The positions of columns among all cells: the first slice of each program, position and form of each slice, the
    forms, the start of each form's cells, and the programs of tables with equal columns."""

    first: Any
    starts: Any
    form: Any
    forms: list[ColumnForm]
    bounds: Any
    alike: list[list[int]]


class ImageCounts(NamedTuple):
    """The number of old and new images of each program."""

    before: Any
    after: Any


def batches_from(
    parts_read: Sequence[ReadRows], selected: Any, chunk: ChunkRows, quotes: int, *, as_texts: bool
) -> tuple[list[Batch], Any]:
    """Return the selected rows as batches, or no batches and the rows with values that do not convert.

    `quotes` surround numbers."""
    parts = [part._replace(rows=part.rows[selected[part.rows]]) for part in parts_read]
    parts = [part for part in parts if len(part.rows)]
    if not parts:
        return [], ()
    templates = [template for part in parts for template in part.templates]
    firsts = np.cumsum([0, *(len(part.templates) for part in parts)])
    rows = np.concatenate([part.rows for part in parts])
    program = np.concatenate([part.program[part.rows] + first for part, first in zip(parts, firsts, strict=False)])
    images = ImageCounts(
        np.bincount(program[chunk.ops[rows] != INSERT], minlength=len(templates)),
        np.bincount(program[chunk.ops[rows] != DELETE], minlength=len(templates)),
    )
    work = _Work(parts, firsts, templates, images, chunk.ops, quotes)
    shown, bad = _texts(work) if as_texts else _typed(work)
    if len(bad):
        return [], bad
    order = np.lexsort((rows, program))
    return list(_batches(templates, rows[order], program[order], shown, chunk)), ()


class _Work(NamedTuple):
    """Parts of a chunk, the number of the first template of each, and what all rows share."""

    parts: Sequence[ReadRows]
    firsts: Any
    templates: Sequence[Template]
    images: ImageCounts
    ops: Any
    quotes: int


def _typed(work: _Work) -> tuple[list[Any], Any]:
    """Both images of each program as record batches, or the rows with values that do not convert."""
    slices = _column_slices(work.templates, work.images)
    values, row_of = _filled(work, slices, np.ones(len(work.templates), np.int64), written=False)
    arrays = [
        array_of(form, values.of(begun, stop))
        for form, begun, stop in zip(slices.forms, slices.bounds[:-1], slices.bounds[1:], strict=True)
    ]
    bad = row_of[(values.marks & BAD) != 0]
    return [] if len(bad) else _shown(slices, work, arrays), bad


def _texts(work: _Work) -> tuple[list[Any], Any]:
    """Both images of each program as texts, row by row, or the rows with values that do not convert."""
    slices = _column_slices(work.templates, work.images)
    widths = np.array([len(template.layout.columns) for template in work.templates])
    images = np.column_stack(work.images)
    sizes = (images * widths[:, None]).ravel()
    begun = np.cumsum(sizes) - sizes
    step = np.repeat(widths, 2 * widths)
    column = (np.arange(len(step)) - np.repeat(slices.first, 2 * widths)) % step
    slices = slices._replace(starts=np.repeat(begun, np.repeat(widths, 2)) + column)
    values, row_of = _filled(work, slices, widths, written=True)
    counts = np.repeat(images.ravel(), np.repeat(widths, 2))
    for number, form in enumerate(slices.forms):
        if form.form in FLOATS:
            some = slices.form == number
            runs = zip(slices.starts[some].tolist(), counts[some].tolist(), step[some].tolist(), strict=True)
            indexes = np.concatenate([np.arange(start, start + count * by, by) for start, count, by in runs])
            values = with_numbers_as_texts(form, values, indexes)
    bad = row_of[(values.marks & BAD) != 0]
    if len(bad):
        return [], bad
    texts = bytes_of(values, pa.binary())
    runs = zip(begun.tolist(), sizes.tolist(), np.repeat(widths, 2).tolist(), strict=True)
    return [RowTexts(texts.slice(start, size), width) for start, size, width in runs], bad


def _column_slices(templates: Sequence[Template], images: ImageCounts) -> ColumnSlices:
    """Positions of the columns of both images of each program. Cells of one form are neighbours, and among them those
    of one column of tables with equal columns."""
    forms, groups = dict[ColumnForm, int](), dict[tuple[Field, ...], list[int]]()
    for number, template in enumerate(templates):
        groups.setdefault(template.layout.fields, []).append(number)
    number_of = [[forms.setdefault(column, len(forms)) for column in template.layout.columns] for template in templates]
    columns = np.array([len(form_numbers) for form_numbers in number_of])
    form = np.array([number for form_numbers in number_of for _ in range(2) for number in form_numbers])
    group = np.empty(len(templates), np.int64)
    for number, members in enumerate(groups.values()):
        group[members] = number
    first = np.cumsum(2 * columns) - 2 * columns
    program = np.repeat(np.arange(len(templates)), 2 * columns)
    column = np.arange(len(form)) - first[program]  # of both images, one behind the other
    sizes = np.repeat(np.column_stack((images.before, images.after)).ravel(), np.repeat(columns, 2))
    order = np.lexsort((program, column, group[program], form))
    starts = np.empty(len(form), np.int64)
    starts[order] = np.cumsum(sizes[order]) - sizes[order]
    bounds = np.cumsum([0, *np.bincount(form, sizes, len(forms)).astype(np.int64)])
    return ColumnSlices(first, starts, form, list(forms), bounds, list(groups.values()))


def _filled(work: _Work, slices: ColumnSlices, steps: Any, *, written: bool) -> tuple[Values, Any]:
    """The values in the order of their slices, and the row of each."""
    room = int(slices.bounds[-1])
    start, size, row_of = (np.empty(room, np.int32) for _ in range(3))
    numbers, marks = np.empty(room, np.int64), np.empty(room, np.uint8)
    data = np.empty(sum(part.room for part in work.parts) + 8, np.uint8)
    ways = np.array([way_of(form) for form in slices.forms], np.int64)[slices.form]
    to = 0
    for part, first in zip(work.parts, work.firsts, strict=False):
        columns = np.array([len(template.layout.columns) for template in part.templates])
        done, part_slices = np.zeros((len(part.templates), 2), np.int64), slice(first, first + len(part.templates))
        to = fill(
            part.text, windows(part.text), part.rows, part.program, work.ops, part.cells, part.start, part.end,
            part.marks, columns, slices.first[part_slices], slices.starts, ways, done, steps[part_slices], work.quotes,
            numbers, start, size, marks, row_of, data, windows(data), to, written,
        )  # fmt: skip
    return Values(numbers, start, size, marks, data, to), row_of


def _shown(slices: ColumnSlices, work: _Work, arrays: list[Any]) -> list[Any]:
    """Both images of each program as record batches; programs with equal columns share one record batch, sliced."""
    images_shown: list[Any] = [None] * (2 * len(work.templates))
    for members in slices.alike:
        first = work.templates[members[0]].layout
        names, width = [field.name for field in first.fields], len(first.fields)
        for image, counts in enumerate(work.images):
            image_slices = slice(
                slices.first[members[0]] + image * width, slices.first[members[0]] + (image + 1) * width
            )
            forms = slices.form[image_slices]
            begun, total = (slices.starts[image_slices] - slices.bounds[forms]).tolist(), int(counts[members].sum())
            columns = [arrays[form].slice(start, total) for form, start in zip(forms.tolist(), begun, strict=True)]
            whole, start = pa.RecordBatch.from_arrays(columns, names=names), 0
            for member, count in zip(members, counts[members].tolist(), strict=True):
                images_shown[2 * member + image] = whole.slice(start, count)
                start += count
    return images_shown


def _batches(
    templates: Sequence[Template], rows: Any, program: Any, shown: list[Any], chunk: ChunkRows
) -> Iterator[Batch]:
    """The rows as batches, one per program."""
    bounds = np.searchsorted(program, np.arange(len(templates) + 1)).tolist()
    messages, numbers = pa.array(chunk.message[rows], pa.int32()), pa.array(chunk.seq[rows], pa.int32())
    commit_ts, partition_id = pa.array(chunk.numbers[rows, 0]), pa.array(chunk.numbers[rows, 1])
    letters, nothing = _letters(chunk.ops[rows]), pa.nulls(len(rows), pa.int64())
    for number, template in enumerate(templates):
        begun, size = bounds[number], bounds[number + 1] - bounds[number]
        if not size:
            continue
        yield Batch(
            schema=template.layout.schema,
            table=template.layout.table,
            fields=template.layout.fields,
            pk_names=template.layout.pk_names,
            message=messages.slice(begun, size),
            seq=numbers.slice(begun, size),
            commit_ts=commit_ts.slice(begun, size),
            op=letters.slice(begun, size),
            partition_id=(partition_id if template.partitioned else nothing).slice(begun, size),
            before=shown[2 * number],
            after=shown[2 * number + 1],
        )


def _letters(codes: Any) -> Any:
    offsets = pa.py_buffer(np.arange(len(codes) + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), len(codes), [None, offsets, pa.py_buffer(codes)])
