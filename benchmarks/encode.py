"""Encoding on one core: typed Arrow columns to messages, the plain encoder, and `json.dumps` as the measure.

    python benchmarks/encode.py [--json] [--repeat 5] [--times 10]

Four cases: each protocol with a table of 4 columns (as sysbench has it) and one of 16 mixed columns; 25 % INSERT, 60 %
UPDATE with the old row, 15 % DELETE; the events are those of messages recorded from TiCDC, and what is made of them is
compared with the recording before anything is timed.  All three write the same events in one run, taking turns, and
the best of some rounds counts, so that the ratios mean something on a busy machine:

    json.dumps   each event's key and value (canal-json: the value) from dicts, every text dropped at once
    plain        `BatchEncoder`, event by event, to Kafka messages
    columnar     `ColumnarEncoder`, 4,000 events a batch, from what `decode_chunk` gives to the keys and values of Kafka
                 messages as Python bytes, all columns of all images, frames and batches of 16 included; every message
                 dropped at once

The process keeps to one core, and its CPU time is what counts: what runs beside it costs it caches, but no turns.
"""

import argparse
import gzip
import json
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
from decode import CASES, CHUNK_EVENTS, DATA, Message, events

from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, decode
from tidegate.codec.columnar import Batch, ColumnarEncoder, decode_chunk
from tidegate.codec.frame import read_frames
from tidegate.model.event import Delete, Insert, RowChange, Update

TIMES: Final = 10
"""A recording has 2,000 events and is written so many times in a row."""


class Work(NamedTuple):
    """The same events in three forms: dicts, rows, and batches with their row ids."""

    dicts: list[tuple[Any, ...]]
    rows: list[RowChange]
    batches: list[tuple[Batch, Any]]


def work_of(messages: list[Message], protocol: str, times: int) -> Work:
    """`times` times the events of `messages`."""
    options = DecodeOptions(protocol=protocol)
    single = list(events(messages)) * times
    dicts = [(json.loads(key), json.loads(value)) if key else (json.loads(value),) for key, value in single]
    rows = [row for key, value in messages for row in decode(key, value, options)]
    assert all(isinstance(row, Insert | Update | Delete) for row in rows)
    chunk = messages * max(1, CHUNK_EVENTS // len(rows))
    decode_chunk(messages, options)  # the first chunk teaches the layout
    (batch,) = decode_chunk(chunk, options).batches
    row_ids = [row.row_id for row in rows if isinstance(row, Insert | Update | Delete)]
    ids = pa.array(row_ids * (batch.rows // len(rows)), pa.int64())
    return Work(dicts, rows * times, [(batch, ids)] * (len(single) // batch.rows))  # type: ignore[arg-type]


def cpu_seconds(work: Callable[[], None]) -> float:
    """CPU time that `work` takes once."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def clock_of(messages: list[Message]) -> int:
    """Canal-json's clock at the first message; 0 for Open Protocol."""
    return 0 if messages[0][0] else int(json.loads(messages[0][1])["ts"])


def check(name: str, messages: list[Message], work: Work, options: EncodeOptions) -> None:
    """Columns give what rows give, and Open Protocol what was recorded (canal-json's clock went on)."""
    encoder, plain = ColumnarEncoder(options), BatchEncoder(options)
    batch, ids = work.batches[0]
    found = [*encoder.append(batch, row_ids=ids).pairs(), *encoder.flush().pairs()]
    made = [*(message for row in work.rows[: batch.rows] for message in plain.append(row)), *plain.flush()]
    assert found == [(message.key, message.value) for message in made], name
    assert not options.protocol.startswith("open") or found[: len(messages)] == messages, name


def measure(name: str, repeat: int, times: int) -> dict[str, float]:
    """Rates of one case in events a second, and their ratios."""
    messages = list(read_frames(gzip.decompress((DATA / f"{name}.bin.gz").read_bytes())))
    protocol = "open-protocol" if name.startswith("open") else "canal-json"
    work = work_of(messages, protocol, times)
    options = EncodeOptions(protocol=protocol, enable_tidb_extension=True)
    now_ms = clock_of(messages)
    check(name, messages, work, options)

    def dumps() -> None:
        for texts in work.dicts:
            for text in texts:
                json.dumps(text)

    def plain() -> None:
        encoder = BatchEncoder(options, now_ms=lambda: now_ms)
        for row in work.rows:
            encoder.append(row)
        encoder.flush()

    def columnar() -> None:
        encoder = ColumnarEncoder(options, now_ms=lambda: now_ms)
        for batch, ids in work.batches:
            deque(encoder.append(batch, row_ids=ids).pairs(), maxlen=0)
        deque(encoder.flush().pairs(), maxlen=0)

    works = {"json_dumps": dumps, "plain": plain, "columnar": columnar}
    counts = {"columnar": sum(batch.rows for batch, _ in work.batches)}
    best = dict.fromkeys(works, 0.0)
    for _ in range(repeat):
        for label, run in works.items():
            best[label] = max(best[label], counts.get(label, len(work.rows)) / cpu_seconds(run))
    return {
        "columnar_over_json_dumps": best["columnar"] / best["json_dumps"],
        "plain_over_json_dumps": best["plain"] / best["json_dumps"],
        **{f"{label}_events_per_s": rate for label, rate in best.items()},
    }


def main() -> None:
    """Print the four cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object, by case")
    parser.add_argument("--repeat", type=int, default=5, help="rounds, of which the best counts")
    parser.add_argument(
        "--times", type=int, default=TIMES, help="how often the 2,000 recorded events are written a round"
    )
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    found = {name: measure(name, arguments.repeat, arguments.times) for name in CASES}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name, rates in found.items():
        print(
            f"{name:16}  columnar {rates['columnar_over_json_dumps']:5.2f} x   plain "
            f"{rates['plain_over_json_dumps']:5.2f} x   of json.dumps at {rates['json_dumps_events_per_s']:,.0f}/s "
            f"(columnar {rates['columnar_events_per_s']:,.0f}/s, plain {rates['plain_events_per_s']:,.0f}/s)"
        )


if __name__ == "__main__":
    main()
