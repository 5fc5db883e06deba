"""Decoding on one core: bytes to typed Arrow columns, the plain decoder, and bare `json.loads` as the measure.

    python benchmarks/decode.py [--json] [--repeat 5] [--rows 12000] [--only canal]

Recorded from TiCDC: each protocol with a table of 4 columns (as sysbench has it) and one of 16 mixed columns; INSERT,
UPDATE with the old row, DELETE.  Made here (shapes.py): rows as people have them, with the ways that they go.  All
three read the same events in one run, taking turns, and the best of some rounds counts; what counts is CPU time, so
that what runs beside it costs caches, but no turns:

    json.loads   each event's key and value, cut out beforehand, every result dropped at once, collector on
    plain        `tidegate.codec.decode`, message by message, from the bytes of the Kafka message
    columnar     `decode_chunk`, the function that landing calls, from the same bytes, all columns of all images, by
                 landing's chunks: at most 4,000 messages and about 4 MiB
    landing      the same as landing calls it: values as texts

The process keeps the memory that it frees, as workers do that land (spark/daemon.py).
"""

import argparse
import gzip
import json
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from shapes import CASES as SHAPES
from shapes import Shape, chunks

from tidegate.codec import DecodeOptions, decode
from tidegate.codec.columnar import decode_chunk
from tidegate.codec.stream import read_frames
from tidegate.source.kafka_fetch import CHUNK, CHUNK_BYTES
from tidegate.spark.daemon import keep_freed

DATA = Path(__file__).parent.parent / "tests" / "data" / "speed"
CASES = ("open_sysbench", "open_wide", "canal_sysbench", "canal_wide")
TIMES = 10
"""A recording has 2,000 events and is read so many times in a row."""

MADE_ROWS = 12_000
"""Rows of a case that is made here."""

Message = tuple[bytes, bytes]


def events(messages: list[Message]) -> Iterator[Message]:
    """Key and value JSON of each event; canal-json's keys are empty."""
    for key, value in messages:
        if not key:
            yield key, value
            continue
        key_at, value_at = 8, 0
        while key_at < len(key):
            (size,) = struct.unpack_from(">Q", key, key_at)
            head, key_at = key[key_at + 8 : key_at + 8 + size], key_at + 8 + size
            (size,) = struct.unpack_from(">Q", value, value_at)
            yield head, value[value_at + 8 : value_at + 8 + size]
            value_at += 8 + size


def cuts(messages: list[Message]) -> list[list[Message]]:
    """The chunks in which landing takes them (source/kafka_fetch.py): each is cut by the size of those before it."""
    size_bytes = sum(len(key) + len(value) for key, value in messages)
    size = max(1, min(CHUNK, CHUNK_BYTES * len(messages) // max(1, size_bytes)))
    return [messages[start : start + size] for start in range(0, len(messages), size)]


def seconds(work: Callable[[], None]) -> float:
    """CPU time that `work` takes once."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def recorded(name: str) -> tuple[list[Message], DecodeOptions]:
    """The messages of a recording, and how they are read."""
    messages = list(read_frames(gzip.decompress((DATA / f"{name}.bin.gz").read_bytes()))) * TIMES
    return messages, DecodeOptions(protocol="open-protocol" if name.startswith("open") else "canal-json")


def messages_of(shape: Shape, protocol: str, rows: int) -> tuple[list[Message], DecodeOptions]:
    """The messages of a shape, and how they are read."""
    return [message for chunk in chunks(shape, protocol, rows) for message in chunk], DecodeOptions(protocol=protocol)


def cases(rows: int) -> Iterator[tuple[str, Callable[[], tuple[list[Message], DecodeOptions]]]]:
    """All cases by name."""
    for name in CASES:
        yield name, partial(recorded, name)
    for name, shape in SHAPES.items():
        for protocol in shape.protocols:
            yield f"{protocol.partition('-')[0]}, {name}", partial(messages_of, shape, protocol, rows)


def measure(messages: list[Message], options: DecodeOptions, repeat: int) -> dict[str, Any]:
    """Rates of one case in events a second, their ratios, and the share of rows by way."""
    single = list(events(messages))
    pieces = cuts(messages)

    def bare() -> None:
        for key, value in single:
            if key:
                json.loads(key)
            json.loads(value)

    def plain() -> None:
        for key, value in messages:
            decode(key, value, options)

    def columnar() -> None:
        for piece in pieces:
            decode_chunk(piece, options)

    def landing() -> None:
        for piece in pieces:
            decode_chunk(piece, options, as_texts=True)

    works = {"json_loads": bare, "plain": plain, "columnar": columnar, "landing": landing}
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeat):
        for label, work in works.items():
            best[label] = min(best[label], seconds(work))
    rates = {f"{label}_events_per_s": len(single) / took for label, took in best.items()}
    paths = sum((Counter(decode_chunk(piece, options, as_texts=True).by_path) for piece in pieces), Counter[str]())
    return {
        "columnar_over_json_loads": best["json_loads"] / best["columnar"],
        "landing_over_json_loads": best["json_loads"] / best["landing"],
        "plain_over_json_loads": best["json_loads"] / best["plain"],
        "paths": {path: count / paths.total() for path, count in paths.items()},
        **rates,
    }


def main() -> None:
    """Print the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object, by case")
    parser.add_argument("--repeat", type=int, default=5, help="rounds, of which the best counts")
    parser.add_argument("--only", default="", help="the cases with this in their names")
    parser.add_argument("--rows", type=int, default=MADE_ROWS, help="rows of a case that is made here")
    arguments = parser.parse_args()
    keep_freed()
    results = {
        name: measure(*make(), arguments.repeat) for name, make in cases(arguments.rows) if arguments.only in name
    }
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    for name, rates in results.items():
        paths = ", ".join(f"{share:.0%} {path}" for path, share in rates["paths"].items())
        print(
            f"{name:26}  columnar {rates['columnar_over_json_loads']:5.2f} x   "
            f"landing {rates['landing_over_json_loads']:5.2f} x   plain "
            f"{rates['plain_over_json_loads']:5.2f} x   of json.loads at {rates['json_loads_events_per_s']:,.0f}/s "
            f"(columnar {rates['columnar_events_per_s']:,.0f}/s, plain {rates['plain_events_per_s']:,.0f}/s; {paths})"
        )


if __name__ == "__main__":
    main()
