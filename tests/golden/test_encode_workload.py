"""The messages of a real changefeed are made again of what they decode to."""

import gzip
import json

import pytest

from tests.golden.codec_cases import DATA
from tests.golden.encode_kit import build_time, masked
from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, decode
from tidegate.codec.stream import read_frames

MANIFEST = json.loads((DATA / "workload" / "manifest.json").read_text("utf-8"))["recordings"]


@pytest.mark.parametrize("name", ["open_table", pytest.param("open", marks=pytest.mark.slow)])
def test_open_protocol(name: str) -> None:
    """Rows of one message make that message, DDLs and resolved timestamps theirs."""
    encoder = BatchEncoder(EncodeOptions(protocol="open-protocol"))
    reading = DecodeOptions(protocol="open-protocol")
    for number in range(len(MANIFEST[name]["partitions"])):
        for key, value in frames(name, number):
            made = [message for event in decode(key, value, reading) for message in encoder.append(event)]
            assert [(message.key, message.value) for message in (*made, *encoder.flush())] == [(key, value)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["canal", "canal_table"])
def test_canal_json(name: str) -> None:
    """So do those of canal-json, with their clock, though they tell no flags."""
    clock = [0]
    encoder = BatchEncoder(EncodeOptions(protocol="canal-json", enable_tidb_extension=True), now_ms=lambda: clock[0])
    reading = DecodeOptions(protocol="canal-json")
    for number in range(len(MANIFEST[name]["partitions"])):
        for key, value in frames(name, number):
            clock[0] = build_time([value])
            made = [message for event in decode(key, value, reading) for message in encoder.append(event)]
            assert [masked(message.value) for message in made] == [masked(value)]


def frames(name: str, number: int) -> list[tuple[bytes, bytes]]:
    """The messages of a partition."""
    with gzip.open(DATA / "workload" / name / f"p{number}.bin.gz") as file:
        return list(read_frames(file.read()))
