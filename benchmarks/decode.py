"""Decoding on one core: bytes to typed Arrow columns, the plain decoder, and bare `json.loads` as the measure.

    python benchmarks/decode.py [--json] [--repeat 5]

Four cases: each protocol with a table of 4 columns (as sysbench has it) and one of 16 mixed columns; INSERT, UPDATE
with the old row, DELETE; recorded from TiCDC.  All three read the same events in one run, taking turns, and the best
of some rounds counts, so that the ratios mean something on a busy machine:

    json.loads   each event's key and value, cut out beforehand, every result dropped at once, collector on
    plain        `tidegate.codec.decode`, message by message, from the bytes of the Kafka message
    columnar     `decode_chunk`, the function that landing calls, from the same bytes, all columns of all images
"""

import argparse
import gzip
import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tidegate.codec import DecodeOptions, decode
from tidegate.codec.columnar import decode_chunk
from tidegate.codec.frame import read_frames

DATA = Path(__file__).parent.parent / "tests" / "data" / "speed"
CASES = ("open_sysbench", "open_wide", "canal_sysbench", "canal_wide")
CHUNK_EVENTS = 4_000
"""Landing takes 4,000 messages at once, which are more events where a message has several."""

TIMES = 10
"""A recording has 2,000 events and is read so many times in a row."""

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


def seconds(work: Callable[[], None]) -> float:
    """How long `work` takes once."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure(name: str, repeat: int) -> dict[str, float]:
    """Rates of one case in events a second, and their ratios."""
    messages = list(read_frames(gzip.decompress((DATA / f"{name}.bin.gz").read_bytes()))) * TIMES
    options = DecodeOptions(protocol="open-protocol" if name.startswith("open") else "canal-json")
    single = list(events(messages))
    size = max(1, CHUNK_EVENTS * len(messages) // len(single))
    chunks = [messages[at : at + size] for at in range(0, len(messages), size)]

    def bare() -> None:
        for key, value in single:
            if key:
                json.loads(key)
            json.loads(value)

    def plain() -> None:
        for key, value in messages:
            decode(key, value, options)

    def columnar() -> None:
        for chunk in chunks:
            decode_chunk(chunk, options)

    works = {"json_loads": bare, "plain": plain, "columnar": columnar}
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeat):
        for label, work in works.items():
            best[label] = min(best[label], seconds(work))
    rates = {f"{label}_events_per_s": len(single) / took for label, took in best.items()}
    return {
        "columnar_over_json_loads": best["json_loads"] / best["columnar"],
        "plain_over_json_loads": best["json_loads"] / best["plain"],
        **rates,
    }


def main() -> None:
    """Print the four cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object, by case")
    parser.add_argument("--repeat", type=int, default=5, help="rounds, of which the best counts")
    arguments = parser.parse_args()
    found = {name: measure(name, arguments.repeat) for name in CASES}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name, rates in found.items():
        print(
            f"{name:16}  columnar {rates['columnar_over_json_loads']:5.2f} x   plain "
            f"{rates['plain_over_json_loads']:5.2f} x   of json.loads at {rates['json_loads_events_per_s']:,.0f}/s "
            f"(columnar {rates['columnar_events_per_s']:,.0f}/s, plain {rates['plain_events_per_s']:,.0f}/s)"
        )


if __name__ == "__main__":
    main()
