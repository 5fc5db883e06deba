"""Encoding on one core: typed Arrow columns to messages, the plain encoder, and `json.dumps` as the measure.

    python benchmarks/encode.py [--json] [--repeat 5] [--times 10] [--rows 8000] [--only 16]

Recorded from TiCDC: each protocol with a table of 4 columns (as sysbench has it) and one of 16 mixed columns; 25 %
INSERT, 60 % UPDATE with the old row, 15 % DELETE; what is made of the events is compared with the recording before
anything is timed.  Made here (shapes.py): rows as people have them; what columns give is compared with what rows give.
All three write the same events in one run, taking turns, and the best of some rounds counts, so that the ratios mean
something on a busy machine.  Rows of a batch that the columnar encoder does not take go one by one, as they do in a
feed: `paths` is the share of each.

    json.dumps   each event's key and value (canal-json: the value) from dicts, every text dropped at once
    plain        `BatchEncoder`, event by event, to Kafka messages
    columnar     `ColumnarEncoder`, 4,000 events a batch, from what `decode_chunk` gives to the keys and values of Kafka
                 messages as Python bytes, all columns of all images, frames and batches of 16 included; every message
                 dropped at once; a batch of another table every so many rows where there are several

The process keeps to one core, and its CPU time is what counts: what runs beside it costs it caches, but no turns.
"""

import argparse
import gzip
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from decode import CASES, DATA, Message, events
from shapes import CASES as SHAPES
from shapes import Shape, chunks

from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, decode
from tidegate.codec.columnar import Batch, ColumnarEncoder, decode_chunk
from tidegate.codec.columnar.values import MISMATCHES
from tidegate.codec.stream import read_frames
from tidegate.model.event import Delete, Insert, Update

TIMES: Final = 10
"""A recording has 2,000 events and is written so many times in a row."""
CHUNK_EVENTS: Final = 4_000
MADE_ROWS: Final = 8_000
"""Rows of a case that is made here."""

Rows: TypeAlias = list[Insert | Update | Delete]


class Work(NamedTuple):
    """The same events in three forms: dicts, rows, and batches with their row ids and rows.

    `singly` are those of `rows` that no batch has."""

    dicts: list[tuple[Any, ...]]
    rows: Rows
    batches: list[tuple[Batch, Any, Rows]]
    singly: Rows


def work_of(messages: list[Message], protocol: str, times: int) -> Work:
    """`times` times the events of `messages`."""
    options = DecodeOptions(protocol=protocol)
    single = list(events(messages)) * times
    rows = _rows(messages, options)
    chunk = messages * max(1, CHUNK_EVENTS // len(rows))
    decode_chunk(messages, options)  # the first chunk teaches the layout
    (batch,) = decode_chunk(chunk, options).batches
    row_ids = [row.row_id for row in rows]
    ids = pa.array(row_ids * (batch.rows // len(rows)), pa.int64())
    work = batch, ids, rows * (batch.rows // len(rows))
    return Work(_dicts(single), rows * times, [work] * (len(single) // batch.rows), [])


def work_of_shape(shape: Shape, protocol: str, count: int) -> Work:
    """The rows of a shape: as typed columns by chunks, and those that have none."""
    options, pieces = DecodeOptions(protocol=protocol), chunks(shape, protocol, count, CHUNK_EVENTS)
    messages = [message for piece in pieces for message in piece]
    decode_chunk(pieces[0], options)  # the first chunk teaches the layout
    rows, batches, singly = _rows(messages, options), [], []
    for number, piece in enumerate(pieces):
        chunk_rows = rows[number * CHUNK_EVENTS :]  # one a message
        chunk = decode_chunk(piece, options)
        batches += [
            (batch, None, [chunk_rows[index] for index in np.asarray(batch.message).tolist()])
            for batch in chunk.batches
        ]
        singly += [chunk_rows[message.message] for message in chunk.rest]
    return Work(_dicts(list(events(messages))), rows, batches, singly)


def _dicts(single: list[Message]) -> list[tuple[Any, ...]]:
    return [(json.loads(key), json.loads(value)) if key else (json.loads(value),) for key, value in single]


def _rows(messages: list[Message], options: DecodeOptions) -> Rows:
    events = [event for key, value in messages for event in decode(key, value, options)]
    rows = [event for event in events if isinstance(event, Insert | Update | Delete)]
    assert len(rows) == len(events)
    return rows


def cpu_seconds(work: Callable[[], object]) -> float:
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
    batch, ids, _ = work.batches[0]
    encoded = [*encoder.append(batch, row_ids=ids).pairs(), *encoder.flush().pairs()]
    expected = [*(message for row in work.rows[: batch.rows] for message in plain.append(row)), *plain.flush()]
    assert encoded == [(message.key, message.value) for message in expected], name
    assert not options.protocol.startswith("open") or encoded[: len(messages)] == messages, name


def recorded(name: str, times: int) -> dict[str, Any]:
    """The best seconds of CPU of one recording by work, and its rows by path."""
    messages = list(read_frames(gzip.decompress((DATA / f"{name}.bin.gz").read_bytes())))
    protocol = "open-protocol" if name.startswith("open") else "canal-json"
    work = work_of(messages, protocol, times)
    options = EncodeOptions(protocol=protocol, enable_tidb_extension=True)
    check(name, messages, work, options)
    return {"work": work, "options": options, "now_ms": clock_of(messages)}


def measure_shape(shape: Shape, protocol: str, count: int) -> dict[str, Any]:
    """The same of a shape."""
    options = EncodeOptions(protocol=protocol, enable_tidb_extension=True, **shape.encode)
    return {"work": work_of_shape(shape, protocol, count), "options": options, "now_ms": 1_700_000_000_123}


def cases(times: int, count: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """All cases by name."""
    for name in CASES:
        yield name, partial(recorded, name, times)
    for name, shape in SHAPES.items():
        for protocol in shape.protocols if shape.whole and shape.batched == 1 else ():
            yield f"{protocol.partition('-')[0]}, {name}", partial(measure_shape, shape, protocol, count)


def by_columns(work: Work, options: EncodeOptions, now_ms: int) -> Counter[str]:
    """Write the batches, one by one the rows of those that cannot be; return the rows by path."""
    encoder = ColumnarEncoder(options, now_ms=lambda: now_ms)
    single = BatchEncoder(options, now_ms=lambda: now_ms)
    paths: Counter[str] = Counter()
    remaining = [work.singly]
    for batch, ids, rows in work.batches:
        try:
            deque(encoder.append(batch, row_ids=ids).pairs(), maxlen=0)
        except MISMATCHES:
            remaining.append(rows)
    deque(encoder.flush().pairs(), maxlen=0)
    paths.update({path.partition("/")[2]: rows for path, rows in encoder.take_path_counts().by_path().items()})
    for rows in remaining:
        for row in rows:
            single.append(row)
        paths["rows"] += len(rows)
    single.flush()
    return paths


def measure(work: Work, options: EncodeOptions, now_ms: int, repeat: int) -> dict[str, Any]:
    """Rates of one case in events a second, their ratios, and the share of rows by path."""

    def dumps() -> None:
        for texts in work.dicts:
            for text in texts:
                json.dumps(text)

    def plain() -> None:
        encoder = BatchEncoder(options, now_ms=lambda: now_ms)
        for row in work.rows:
            encoder.append(row)
        encoder.flush()

    works = {"json_dumps": dumps, "plain": plain, "columnar": lambda: by_columns(work, options, now_ms)}
    paths = by_columns(work, options, now_ms)
    counts = {"columnar": paths.total()}
    best = dict.fromkeys(works, 0.0)
    for _ in range(repeat):
        for label, run in works.items():
            best[label] = max(best[label], counts.get(label, len(work.rows)) / cpu_seconds(run))
    return {
        "columnar_over_json_dumps": best["columnar"] / best["json_dumps"],
        "plain_over_json_dumps": best["plain"] / best["json_dumps"],
        "paths": {path: count / paths.total() for path, count in paths.items() if count},
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
    parser.add_argument("--rows", type=int, default=MADE_ROWS, help="rows of a case that is made here")
    parser.add_argument("--only", default="", help="the cases with this in their names")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    results: dict[str, dict[str, Any]] = {}
    for name, make in cases(arguments.times, arguments.rows):
        if arguments.only not in name:
            continue
        results[name] = rates = measure(**make(), repeat=arguments.repeat)
        paths = ", ".join(f"{share:.0%} {path}" for path, share in rates["paths"].items())
        if not arguments.json:
            print(
                f"{name:26}  columnar {rates['columnar_over_json_dumps']:5.2f} x   plain "
                f"{rates['plain_over_json_dumps']:5.2f} x   of json.dumps at {rates['json_dumps_events_per_s']:,.0f}/s "
                f"(columnar {rates['columnar_events_per_s']:,.0f}/s, plain {rates['plain_events_per_s']:,.0f}/s; "
                f"{paths})",
                flush=True,
            )
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
