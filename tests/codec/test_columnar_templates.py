"""Rows that are read by template say what the plain decoder says; rows that only look like it are left to others."""

import gzip
import random
from functools import cache
from pathlib import Path

import pytest

from tests.codec.columnar_kit import (
    CANAL,
    ODD_CELLS,
    ODD_MESSAGES,
    ODD_TEXTS,
    OPEN,
    by_chunk,
    by_decoder,
    canal,
    compact,
    pairs,
    wide,
)
from tests.golden.codec_cases import cases, sampled
from tests.golden.test_totality import reframed
from tests.source.kit import ddl, delete, insert, recording, resolved
from tidegate.codec.columnar import RowTexts, as_texts, decode_chunk, row_texts, sweep, swept
from tidegate.codec.columnar.chunk import TEMPLATES
from tidegate.codec.stream import read_frames

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent.parent / "data"
SPEED = ("open_sysbench", "open_wide", "canal_sysbench", "canal_wide")
BYTES = b'"\\{}[]:,0-9.eEnu \x00\x1f\x7f\x80\xc3\xff'


@pytest.fixture
def _all_templates(monkeypatch):
    """Templates are used for a single row, too."""
    monkeypatch.setattr(swept, "ROWS_MIN", 1)
    monkeypatch.setattr(swept, "ROWS_TO_LEARN", 1)


@cache
def speed(name):
    return list(read_frames(gzip.decompress((DATA / "speed" / f"{name}.bin.gz").read_bytes())))


def options_of(name):
    return OPEN if name.startswith("open") else CANAL


def by_template(messages, options):
    """Which messages are read by template."""
    keys, values = ([text or b"" for text in texts] for texts in zip(*messages, strict=True))
    whole = TEMPLATES[options.protocol](keys, values, legacy=options.legacy, as_texts=False).whole
    return [int(number) for number in whole.nonzero()[0]]


def agree(messages, options):
    """Both ways, twice: the first chunk may teach what the second uses."""
    expected = by_decoder(messages, options)
    for _ in range(2):
        assert by_chunk(messages, options) == expected


@pytest.mark.parametrize("name", SPEED)
def test_whole_recordings_are_read_by_template(name):
    """Once its layout is known, every row of a busy table is read by template."""
    messages = speed(name)
    agree(messages, options_of(name))

    assert by_template(messages, options_of(name)) == list(range(len(messages)))


@pytest.mark.usefixtures("_all_templates")
@pytest.mark.parametrize("path", sampled(2), ids=lambda path: "-".join(path.parts[-3:]).removesuffix(".jsonl.gz"))
def test_recordings_of_every_configuration(path):
    """Every recorded message gives the same events, whatever its neighbours taught."""
    grouped = {}
    for case in cases(path):
        grouped.setdefault(case.options, []).extend(case.messages)
    for options, messages in grouped.items():
        agree(messages, options)


@pytest.mark.usefixtures("_all_templates")
@pytest.mark.parametrize(
    "name", ["canal", *(pytest.param(name, marks=pytest.mark.slow) for name in ("open", "open_table", "canal_table"))]
)
def test_workloads(name):
    """A real topic of many tables, whose columns change on the way, gives the same events."""
    messages = pairs(*recording(name, 1))

    for at in range(0, len(messages), 500):
        part = messages[at : at + 500]
        assert by_chunk(part, options_of(name)) == by_decoder(part, options_of(name))


@pytest.mark.usefixtures("_all_templates")
@pytest.mark.parametrize("cells", ODD_CELLS)
def test_odd_values_of_open_protocol(cells):
    """A value at or beyond the edge of its type is read or refused as the plain decoder does, its neighbours, too."""
    usual, odd = wide(), wide(**cells)

    agree([compact(usual)] * 20 + [compact(odd), compact(usual)], OPEN)
    agree([compact(usual, odd)] * 3 + [compact(odd)], OPEN)


@pytest.mark.usefixtures("_all_templates")
@pytest.mark.parametrize(("column", "text"), ODD_TEXTS)
def test_odd_values_of_canal_json(column, text):
    """The same for texts that stand for numbers and bytes."""
    usual = {"id": "1", "f": "0.5", "d": "1e-7", "b": "\u00ff", "n": None}

    agree([canal()] * 20 + [canal(data=[{**usual, column: text}]), canal()], CANAL)


@pytest.mark.usefixtures("_all_templates")
@pytest.mark.parametrize("changed", ODD_MESSAGES)
def test_odd_messages_of_canal_json(changed):
    """A message that is of another kind than it looks is read as the plain decoder does."""
    agree([canal(), canal(), canal(**changed), canal()], CANAL)


@pytest.mark.usefixtures("_all_templates")
def test_strings_that_look_like_the_end_of_one():
    """Quotes, commas and braces within a string, escaped or at its very beginning, end nothing."""
    texts = ["}", ",", '"', '"}', '",', '\\"}', '\\\\"}', "}}", '},"p":{', '","x":"', "\\", "\\\\", "null", "", '"' * 9]
    usual = {"id": "1", "f": "0.5", "d": "1e-7", "b": "\u00ff"}
    rows = [compact(wide(note={"t": 15, "f": 64, "v": text})) for text in texts]

    agree(rows, OPEN)
    agree([canal(data=[{**usual, "n": text}]) for text in texts], CANAL)
    assert by_template(rows, OPEN) == list(range(len(texts)))
    assert by_template([canal(data=[{**usual, "n": text}]) for text in texts], CANAL) == list(range(len(texts)))


@pytest.mark.usefixtures("_all_templates")
def test_long_runs_of_backslashes():
    """However many backslashes stand before a quote, it ends a string where they are paired."""
    rows = [compact(wide(note={"t": 15, "f": 64, "v": "\\" * count})) for count in (1, 64, 9999)]

    agree(rows, OPEN)
    assert by_template(rows, OPEN) == [0, 1, 2]


@pytest.mark.parametrize("name", SPEED)
def test_texts_are_those_of_typed_values(name):
    """Rows that are read as texts have the texts of the values that they have as columns."""
    decode_chunk(speed(name), options_of(name))
    typed, texts = (decode_chunk(speed(name), options_of(name), as_texts=wanted).batches for wanted in (False, True))

    for columns, rows in zip(typed, texts, strict=True):
        for image, found in ((columns.before, rows.before), (columns.after, rows.after)):
            assert isinstance(found, RowTexts)
            assert found.values.equals(row_texts([as_texts(column) for column in image.columns]).values)


@pytest.mark.parametrize("name", SPEED)
def test_without_compiled_loops(name, monkeypatch):
    """Where there is no numba, the plain decoder reads the same events."""
    monkeypatch.setattr(swept, "AVAILABLE", False)

    agree(speed(name)[:300], options_of(name))
    assert by_template(speed(name)[:300], options_of(name)) == []


@pytest.mark.usefixtures("_all_templates")
def test_a_message_goes_one_way():
    """A message that holds more than rows of known looks is left to others whole, its rows too."""
    rows = [compact(insert(5, 1), insert(5, 2))] * 3
    mixed = [compact(insert(7, 3), resolved(7)), compact(ddl(6, "create table x (id int)"))]
    rest = [compact(insert(8, 4), insert(8, 4, "other")), compact(delete(9, 6))]
    messages = [*rows, *mixed, *rest, (b"junk", b"\x00"), (None, None)]
    agree(messages, OPEN)

    assert by_template(messages, OPEN) == [0, 1, 2, 5, 6]


@pytest.mark.usefixtures("_all_templates")
def test_a_chunk_begins_with_the_look_that_most_of_the_last_one_had(monkeypatch):
    """Rows of an older look are tried with the newer one once, not chunk after chunk."""
    tries = []
    scanned = sweep.scan.scan
    monkeypatch.setattr(sweep.scan, "scan", lambda *given: (tries.append(len(given[2])), scanned(*given))[1])
    old, new = (
        [canal(mysqlType=dict.fromkeys(names, "int"), data=[dict.fromkeys(names, str(row))]) for row in range(5)]
        for names in (("id", "a"), ("id", "a", "b"))
    )

    def tried(*messages):
        tries.clear()
        agree(list(messages), CANAL)
        tries.clear()
        assert by_template(messages, CANAL) == list(range(len(messages)))
        return list(tries)

    assert tried(*old) == [5]
    assert tried(*new) == [5]
    assert tried(*old) == [5]
    assert tried(*old, *new[:2]) == [7, 2]
    assert tried(*old[:2], *new) == [7, 2]
    assert tried(*new) == [5]


@pytest.mark.usefixtures("_all_templates")
def test_large_row_ids():
    """A row id of 19 digits is read as long as 63 bits hold it, with a minus too."""
    ids = [0, 9, 10, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 10**18, 10**19, -1]
    rows = []
    for rid in ids:
        head, value = wide()
        rows.append(compact(({**head, "rid": rid}, value)))

    agree(rows, OPEN)
    assert by_template(rows, OPEN) == [0, 1, 2, 3, 6, 8]


def changed(text, chance):
    """`text` with one byte replaced, left out or put in, at every place."""
    for at in range(len(text)):
        other = bytes([chance.choice(BYTES)])
        yield text[:at] + other + text[at + 1 :]
        yield text[:at] + text[at + 1 :]
        yield text[:at] + other + text[at:]


@pytest.mark.usefixtures("_all_templates")
@pytest.mark.parametrize("name", ["open_sysbench", "canal_sysbench"])
def test_a_text_that_ends_early(name):
    """Whatever the last text of a chunk lacks, nothing is read beyond it."""
    key, value = next(pair for pair in speed(name) if pair[0] or b"UPDATE" in pair[1])
    decode_chunk(speed(name), options_of(name))
    if key:
        head, body = (text[at + 8 : at + 8 + int.from_bytes(text[at : at + 8])] for text, at in ((key, 8), (value, 0)))
        cut = [(key[:8] + reframed(head[:size]), reframed(body)) for size in range(len(head))]
        cut += [(key[:8] + reframed(head), reframed(body[:size])) for size in range(len(body))]
        cut += [(key, value[:size]) for size in range(0, len(value), 7)]
    else:
        cut = [(None, value[:size]) for size in range(len(value))]

    for one in cut:
        assert by_chunk([one], options_of(name)) == by_decoder([one], options_of(name))
    assert by_chunk([], options_of(name)) == []


def every_byte(name, step, seed):
    """Both ways agree about rows that differ from one of a template in any one byte."""
    chance = random.Random(seed)
    key, value = next(pair for pair in speed(name)[seed:] if b'"p":' in pair[1] or b"UPDATE" in pair[1])
    if key:
        head, body = (text[at + 8 : at + 8 + int.from_bytes(text[at : at + 8])] for text, at in ((key, 8), (value, 0)))
        messages = [(key[:8] + reframed(one), reframed(body)) for one in changed(head, chance)]
        messages += [(key[:8] + reframed(head), reframed(one)) for one in changed(body, chance)]
    else:
        messages = [(None, one) for one in changed(value, chance)]
    usual = speed(name)[: 8 if key else 128]
    decode_chunk(speed(name), options_of(name))

    for at in range(seed % step, len(messages), 200 * step):
        part = [*usual, *messages[at : at + 200 * step : step]]
        assert by_chunk(part, options_of(name)) == by_decoder(part, options_of(name))


@pytest.mark.parametrize("name", SPEED)
def test_every_byte_counts(name):
    """A row that differs in one byte from those of a template is read or refused as the plain decoder does."""
    every_byte(name, 11 if name.endswith("wide") else 3, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", SPEED)
def test_every_byte_counts_soak(name, seed):
    """The same with every byte of ten rows."""
    every_byte(name, 1, seed)
