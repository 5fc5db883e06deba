"""The fast path says what the plain decoder says, message by message."""

import gzip
import os
import random
from dataclasses import replace
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
from tests.golden.test_totality import mutated, reframed
from tests.source.kit import ddl, delete, insert, open_message, recording, resolved
from tidegate.codec import DecodeOptions
from tidegate.codec.columnar import decode_chunk, swept
from tidegate.codec.stream import read_frames

DATA = Path(__file__).parent.parent / "data"
SEEN = ("open", "canal_table")
"""Topics that the fast tests look at."""
SPEED = ("open_sysbench", "open_wide", "canal_sysbench", "canal_wide")
FUZZ = int(os.environ.get("TIDEGATE_FUZZ", "20000"))


@cache
def speed(name):
    return list(read_frames(gzip.decompress((DATA / "speed" / f"{name}.bin.gz").read_bytes())))


def options_of(name):
    return OPEN if name.startswith("open") else CANAL


@pytest.mark.parametrize("path", sampled(0), ids=lambda path: "-".join(path.parts[-3:]).removesuffix(".jsonl.gz"))
def test_recordings_of_every_configuration(path):
    """Every recorded message, one case after the other in one chunk, gives the same events on both ways."""
    grouped = {}
    for case in cases(path):
        grouped.setdefault(case.options, []).extend(case.messages)
    for options, messages in grouped.items():
        assert by_chunk(messages, options) == by_decoder(messages, options)


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        (name, partition) if name in SEEN and partition == 2 else pytest.param(name, partition, marks=pytest.mark.slow)
        for name in ("open", "open_table", "canal", "canal_table")
        for partition in (0, 1, 2)
    ],
)
def test_workloads(name, partition):
    """A real topic gives the same events on both ways, and the fast path takes nearly every row of it."""
    messages = pairs(*recording(name, partition))
    options = options_of(name)

    for at in range(0, len(messages), 1000):
        part = messages[at : at + 1000]
        assert by_chunk(part, options) == by_decoder(part, options)

    chunk = decode_chunk(messages, options)
    slow = sum(hasattr(event, "fields") for one in chunk.rest for event in one.events)
    assert slow < sum(batch.rows for batch in chunk.batches) / 20


@pytest.mark.parametrize("name", SPEED)
def test_speed_recordings_take_the_fast_path(name):
    """No message of a busy table needs the plain decoder, in either protocol."""
    chunk = decode_chunk(speed(name), options_of(name))

    assert chunk.rest == ()
    assert sum(batch.rows for batch in chunk.batches) == 2000
    assert by_chunk(speed(name), options_of(name)) == by_decoder(speed(name), options_of(name))


def test_what_is_no_row_stands_beside():
    """DDLs, watermarks and damage keep their place among the rows of a chunk."""
    messages = pairs(
        open_message(0, insert(5, 1), insert(5, 2)),
        open_message(1, ddl(6, "create table x (id int)")),
        open_message(2, insert(7, 3), resolved(7)),
        open_message(3, insert(8, 4, ohk=True)),
    )
    messages += [(b"junk", b"\x00"), (None, None), *pairs(open_message(4, insert(9, 5), delete(9, 6)))]

    assert by_chunk(messages, OPEN) == by_decoder(messages, OPEN)


def test_a_message_goes_one_way(monkeypatch):
    """One row that does not fit takes its whole message to the plain decoder, so that it lands whole or not at all."""
    messages = [compact(insert(5, 1)), compact(insert(6, 2), insert(6, 3, "other", ccl="s3://x"))]
    monkeypatch.setattr(swept, "ROWS_MIN", 1)
    monkeypatch.setattr(swept, "ROWS_TO_LEARN", 1)

    chunk = decode_chunk(messages, OPEN)

    assert [one.message for one in chunk.rest] == [1]
    assert [batch.message.to_pylist() for batch in chunk.batches] == [[0]]


@pytest.mark.parametrize("cells", ODD_CELLS)
def test_odd_values_of_open_protocol(cells):
    """A value at or beyond the edge of its type is read or refused as the plain decoder does, its neighbours, too."""
    usual, odd = wide(), wide(**cells)
    messages = pairs(*(open_message(at, usual) for at in range(20)), open_message(20, odd), open_message(21, usual))

    assert by_chunk(messages, OPEN) == by_decoder(messages, OPEN)
    assert by_chunk(messages, OPEN) == by_decoder(messages, OPEN)


@pytest.mark.parametrize(("column", "text"), ODD_TEXTS)
def test_odd_values_of_canal_json(column, text):
    """The same for texts that stand for numbers and bytes."""
    usual = {"id": "1", "f": "0.5", "d": "1e-7", "b": "\u00ff", "n": None}
    messages = [canal()] * 20 + [canal(data=[{**usual, column: text}]), canal()]

    assert by_chunk(messages, CANAL) == by_decoder(messages, CANAL)
    assert by_chunk(messages, CANAL) == by_decoder(messages, CANAL)


@pytest.mark.parametrize("changed", ODD_MESSAGES)
def test_odd_messages_of_canal_json(changed):
    """A message whose hint lies, or which is of another kind than it looks, is read as the plain decoder does."""
    messages = [canal(), canal(), canal(**changed), canal()]

    assert by_chunk(messages, CANAL) == by_decoder(messages, CANAL)
    assert by_chunk(messages, CANAL) == by_decoder(messages, CANAL)


def test_partial_old_images():
    """Old images that hold only what changed are filled from the new one, and are read by template."""
    before = {"id": "1", "f": "0.5", "d": "1e-7", "b": "\u00ff", "n": "x"}
    updates = [canal(type="UPDATE", old=[{name: before[name]}]) for name in before] * 5
    by_chunk(updates, CANAL)

    assert decode_chunk(updates, CANAL).rest == ()
    assert by_chunk(updates, CANAL) == by_decoder(updates, CANAL)


def test_legacy_and_compression():
    """Options that change how bytes are read change both ways alike."""
    messages = [canal(mysqlType={"id": "enum('a','b')", "f": "float", "d": "double", "b": "blob", "n": "set('x')"})]
    for options in (CANAL, DecodeOptions(protocol="canal-json", legacy=True)):
        assert by_chunk(messages * 3, options) == by_decoder(messages * 3, options)
    squeezed = DecodeOptions(protocol="canal-json", compression="lz4")
    assert by_chunk(messages, squeezed) == by_decoder(messages, squeezed)


def test_batches_do_not_change():
    """A chunk is a value: its parts cannot be exchanged."""
    chunk = decode_chunk(speed("open_sysbench")[:2], OPEN)

    with pytest.raises(AttributeError):
        chunk.batches = ()
    assert replace(chunk, rest=()).batches is chunk.batches


def damaged(name, rounds, seed):
    """Chunks of recorded messages, one in four damaged."""
    chance = random.Random(seed)
    for _ in range(rounds // 50):
        yield [
            damaged_pair(key, value, chance) if chance.random() < 0.25 else (key, value)
            for key, value in chance.choices(speed(name), k=50)
        ]


def damaged_pair(key, value, chance):
    """A message with its key or its value changed."""
    if key and chance.random() < 0.3:
        return key[:8] + reframed(mutated(key[16:], chance)), value
    return key, mutated(value, chance)


@pytest.mark.parametrize("name", SPEED)
def test_some_damage(name):
    """Damaged messages among whole ones have the same outcome on both ways."""
    for chunk in damaged(name, 150, seed=20_260_101):
        assert by_chunk(chunk, options_of(name)) == by_decoder(chunk, options_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", SPEED)
def test_damage(name):
    """The same with a thousand messages of each recording."""
    for chunk in damaged(name, min(FUZZ, 20_000) // 20, seed=20_260_102):
        assert by_chunk(chunk, options_of(name)) == by_decoder(chunk, options_of(name))


@pytest.mark.soak
@pytest.mark.parametrize("name", SPEED)
def test_damage_soak(name):
    """The same with TIDEGATE_FUZZ messages."""
    for chunk in damaged(name, FUZZ, seed=1):
        assert by_chunk(chunk, options_of(name)) == by_decoder(chunk, options_of(name))
