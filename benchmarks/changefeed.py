"""The producing changefeed: rows from a change log into Kafka, against the raw rate of the same messages.

    python benchmarks/changefeed.py [--rows 400000] [--part rates] [--json]

    change log (segments)  ──  the feed, as the command line runs it  ──►  topic, 2 partitions      feed
    the topic's messages in memory  ──  the same client, settings, broker  ──►  another topic       raw

    part      what                                                                            goal
    rates     rows a second of the feed ÷ those of the raw producer, both protocols, 4        0.25 at least;
              columns and the shapes of shapes.py (`--only 16` names some); the feed is timed 16 columns 0.35,
              from its start to the checkpoint of the last row; paths: the share of rows     40 columns 0.3
              that were mounted and encoded by columns, and row by row
    latency   2,000 rows/s by SQL on the embedded TiDB: commit_ts to the message in a         p50 1.5 s, p95 4 s
              consumer's hands
    topics    rows/s from a topic to one of the other protocol, 4 columns, and its ratio to   100,000 rows/s
              the feed from the change log that writes the same rows in the same protocol     at least
    cores     the rate of broker and feed on two cores ÷ that on one                          1.6 at least
    memory    peak of the worker processes with a backlog of 4 N rows ÷ that with N           flat: 1.1 at most

The two take turns, behind a first feed that counts for neither: a broker becomes quicker with the first gigabyte.
Rows: 60 % UPDATE with the old row, 25 % INSERT, 15 % DELETE, in four tables (backlog.py).  The raw producer is one
process with nothing else to do; the feed's tasks and the broker share the same cores as the raw producer and it.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, Final

import psutil
from backlog import SCHEMA, Backlog, write_backlog
from confluent_kafka import Consumer, TopicPartition
from rig import PARTITIONS, Rig, arguments, rig, seconds
from shapes import CASES
from traffic import PROTOCOLS
from upstream_rows import run_upstream

from tidegate.codec import DecodeOptions, decode
from tidegate.config.changefeed import Changefeed
from tidegate.config.entry import Document
from tidegate.config.kafka import parse_target
from tidegate.config.load import document_of, load
from tidegate.engine.progress import Progress
from tidegate.model.event import Delete, Insert, Update
from tidegate.model.tso import physical_ms
from tidegate_upstream.demo.recorded import create_topic

PARTS: Final = ("rates", "topics", "latency", "cores", "memory")
KINDS: Final = ("sysbench", "wide", *(name for name, shape in CASES.items() if shape.whole and shape.batched == 1))
SHARES: Final = {"sysbench": 1, "16 columns": 1, "40 columns": 2, "120 columns": 20, "documents": 8, "long texts": 16}
WIDE_SHARE: Final = 4
"""Wide rows are so many times fewer, save those that have goals: a start of 0.3 s counts among few."""
ROUNDS: Final = 3
LATENCY_RATE: Final = 2_000
LATENCY_S: Final = 20.0
WARM_UP_S: Final = 8.0
PATIENCE_S: Final = 120.0
PIECE: Final = 1_000
MIB: Final = 1 << 20
Message = tuple[int, bytes | None, bytes]


def uri_of(bench: Rig, topic: str, protocol: str, *parameters: str) -> str:
    """The address of a topic, as source or as sink."""
    extension = ["enable-tidb-extension=true"] if protocol == "canal-json" else []
    return f"kafka://{bench.bootstrap}/{topic}?" + "&".join([f"protocol={protocol}", *extension, *parameters])


def sink_of(bench: Rig, topic: str, protocol: str) -> str:
    """The address of a topic that is written."""
    return uri_of(bench, topic, protocol, f"partition-num={PARTITIONS}")


def file_of(kind: str) -> Document:
    """What a shape tells the encoder, as a configuration file has it; batches of Open Protocol have 16 rows anyway."""
    encode = CASES[kind].encode if kind in CASES else {}
    return document_of({"sink": {name.replace("_", "-"): value for name, value in encode.items()}})


def feed_of(bench: Rig, source: str, sink: str, file: Document | None = None) -> Changefeed:
    """A feed as the command line makes it, without a past."""
    rules = (f"{SCHEMA}.*",)
    return Changefeed(load(file, source_uri=source, sink_uri=sink, rules=rules, state_dir=bench.directory("state")))


def run_feed(
    bench: Rig, source: str, backlog: Backlog, topic: str, protocol: str, *, file: Document | None = None
) -> tuple[float, Progress]:
    """Seconds of a feed from the source's begin to its last row, and what it reports."""
    create_topic(bench.bootstrap, topic, PARTITIONS)
    feed = feed_of(bench, source, sink_of(bench, topic, protocol), file)
    begun = time.perf_counter()
    progress = feed.run(bench.spark, until=backlog.high)
    took_s = time.perf_counter() - begun
    assert progress.rows == backlog.rows, (progress.rows, backlog.rows)
    return took_s, progress


def consumed(bench: Rig, topic: str) -> list[Message]:
    """All messages of a topic, in the order in which they came."""
    settings = {"bootstrap.servers": bench.bootstrap, "group.id": "bench", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    messages: list[Message] = []
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                ended += 1
            else:
                messages.append((message.partition(), message.key(), message.value()))
    consumer.close()
    return messages


def raw_seconds(bench: Rig, messages: Sequence[Message], topic: str, protocol: str) -> float:
    """Seconds to produce these messages, from the first to the last acknowledgement."""
    create_topic(bench.bootstrap, topic, PARTITIONS)
    writer = parse_target(sink_of(bench, topic, protocol)).writer()
    writer.partitions(topic)
    partitions = [[(key, value) for at, key, value in messages if at == number] for number in range(PARTITIONS)]
    longest = max(map(len, partitions))
    pieces = [
        (number, each[at : at + PIECE]) for at in range(0, longest, PIECE) for number, each in enumerate(partitions)
    ]

    def produce() -> None:
        for partition, piece in pieces:
            writer.send_all(topic, partition, piece)
        writer.flush()

    return seconds(produce)


def rates(bench: Rig, protocol: str, kind: str, rows: int) -> dict[str, Any]:
    """One protocol, one kind of table."""
    rows, file = rows // SHARES.get(kind, WIDE_SHARE), file_of(kind)
    name = f"{protocol}-{kind}".replace(" ", "-")
    tenth, log = bench.directory("tenth"), bench.directory("log")
    run_feed(bench, f"tidb://{tenth}", write_backlog(tenth, kind, rows // 10), f"warm-{name}", protocol, file=file)
    backlog = write_backlog(log, kind, rows)
    _, progress = run_feed(bench, f"tidb://{log}", backlog, f"first-{name}", protocol, file=file)
    messages = consumed(bench, f"first-{name}")
    feed_s = raw_s = float("inf")
    for n in range(ROUNDS):
        raw_s = min(raw_s, raw_seconds(bench, messages, f"raw-{name}-{n}", protocol))
        feed_s = min(feed_s, run_feed(bench, f"tidb://{log}", backlog, f"feed-{name}-{n}", protocol, file=file)[0])
    size_bytes = sum(len(key or b"") + len(value) for _, key, value in messages)
    return {
        "feed_over_raw": raw_s / feed_s,
        "feed_rows_per_s": backlog.rows / feed_s,
        "raw_rows_per_s": backlog.rows / raw_s,
        "rows": backlog.rows,
        "messages": len(messages),
        "megabytes": size_bytes / 1e6,
        "feed_s": feed_s,
        "raw_s": raw_s,
        "paths": {path: count / backlog.rows for path, count in progress.roads.items()},
    }


def topics(bench: Rig, rows: int) -> dict[str, dict[str, float]]:
    """Both ways from topic to topic, in turns with the feeds from the change log that write what those read."""
    tenth, log = bench.directory("tenth"), bench.directory("log")
    small, backlog = write_backlog(tenth, "sysbench", rows // 10), write_backlog(log, "sysbench", rows)
    made_s, passed_s = dict.fromkeys(PROTOCOLS, float("inf")), dict.fromkeys(PROTOCOLS, float("inf"))
    for n, (directory, backlog_of) in enumerate([(tenth, small), *[(log, backlog)] * (ROUNDS + 1)]):
        for protocol in PROTOCOLS:
            took_s, _ = run_feed(bench, f"tidb://{directory}", backlog_of, f"made-{protocol}-{n}", protocol)
            made_s[protocol] = min(made_s[protocol], took_s if n > 1 else float("inf"))
        for other, protocol in (PROTOCOLS, PROTOCOLS[::-1]):
            source = uri_of(bench, f"made-{other}-{n}", other)
            took_s, _ = run_feed(bench, source, backlog_of, f"passed-{protocol}-{n}", protocol)
            passed_s[protocol] = min(passed_s[protocol], took_s if n > 1 else float("inf"))
    return {
        f"{other} to {protocol}": {
            "rows_per_s": backlog.rows / passed_s[protocol],
            "over_change_log": made_s[protocol] / passed_s[protocol],
            "change_log_rows_per_s": backlog.rows / made_s[protocol],
            "rows": backlog.rows,
        }
        for other, protocol in (PROTOCOLS, PROTOCOLS[::-1])
    }


def latency(bench: Rig, protocol: str) -> dict[str, float]:
    """Seconds from commit_ts to a consumer, at 2,000 rows a second."""
    log, topic, stop = bench.directory("log"), f"latency-{protocol}", threading.Event()
    create_topic(bench.bootstrap, topic, PARTITIONS)
    ended = multiprocessing.get_context("spawn").Event()
    upstream = multiprocessing.get_context("spawn").Process(
        target=run_upstream, args=(log, LATENCY_RATE, WARM_UP_S + LATENCY_S, ended), daemon=True
    )
    upstream.start()
    feed = feed_of(bench, f"tidb://{log}", sink_of(bench, topic, protocol))
    running = threading.Thread(target=feed.run, args=(bench.spark,), kwargs={"stop": stop}, daemon=True)
    running.start()
    ages = list(_ages(bench, topic, protocol, ended))
    stop.set()
    running.join()
    upstream.join()
    first_ms = min(commit_ms for commit_ms, _ in ages)
    lags = sorted(age for commit_ms, age in ages if commit_ms >= first_ms + WARM_UP_S * 1000)
    return {
        "latency_p50_s": lags[len(lags) // 2],
        "latency_p95_s": lags[len(lags) * 95 // 100],
        "latency_max_s": lags[-1],
        "rows_per_s": len(lags) / LATENCY_S,
    }


def _ages(bench: Rig, topic: str, protocol: str, ended: Any) -> Iterator[tuple[int, float]]:
    """When each row was committed, in ms, and its age in seconds when its message came."""
    options = DecodeOptions(protocol=protocol)
    consumer = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": "latency", "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    came_s = time.monotonic()
    while not (ended.is_set() and time.monotonic() - came_s > 3.0):
        assert time.monotonic() - came_s < PATIENCE_S, "nothing comes"
        messages = consumer.consume(1_000, 0.05)
        now_ms = time.time_ns() / 1e6
        for message in messages:
            assert message.error() is None, message.error()
            for event in decode(message.key() or b"", message.value(), options):
                if isinstance(event, Insert | Update | Delete) and event.commit_ts is not None:
                    came_s = time.monotonic()
                    commit_ms = physical_ms(event.commit_ts)
                    yield commit_ms, (now_ms - commit_ms) / 1000
    consumer.close()


def cores(rows: int) -> dict[str, float]:
    """The same feed on one core and on two, each in a process of its own with its own broker."""
    rates: dict[str, float] = {}
    for count in (1, 2):
        arguments = ["--part", "one", "--rows", str(rows), "--cores", str(count)]
        done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
        rates[f"rows_per_s_on_{count}"] = json.loads(done.stdout)["feed_rows_per_s"]
    return {"two_cores_over_one": rates["rows_per_s_on_2"] / rates["rows_per_s_on_1"], **rates}


def rate_of_canal(rows: int) -> dict[str, float]:
    """The rate of canal-json and 4 columns alone."""
    with rig() as bench:
        tenth, log = bench.directory("tenth"), bench.directory("log")
        run_feed(bench, f"tidb://{tenth}", write_backlog(tenth, "sysbench", rows // 10), "warm", "canal-json")
        backlog = write_backlog(log, "sysbench", rows)
        took_s = min(run_feed(bench, f"tidb://{log}", backlog, f"feed-{n}", "canal-json")[0] for n in range(ROUNDS))
        return {"feed_rows_per_s": backlog.rows / took_s}


def memory(bench: Rig, rows: int) -> dict[str, float]:
    """The largest worker process with a backlog, and with one four times as long."""
    peaks: dict[str, float] = {}
    for label, count in (("warm", rows // 4), ("n", rows), ("4n", 4 * rows)):
        log = bench.directory("log")
        backlog = write_backlog(log, "sysbench", count)
        with peak_worker() as peak:
            run_feed(bench, f"tidb://{log}", backlog, f"memory-{label}", "canal-json")
        peaks[f"worker_mib_{label}"] = peak[0] / MIB
    return {"peak_of_4n_over_n": peaks["worker_mib_4n"] / peaks["worker_mib_n"], **peaks}


@contextmanager
def peak_worker() -> Iterator[list[int]]:
    """The most bytes that one worker has resident, in the list when the block ends."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            for child in psutil.Process().children(recursive=True):
                try:
                    if "python" in child.name():
                        peak[0] = max(peak[0], child.memory_info().rss)
                except psutil.Error:
                    continue

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def main() -> None:
    """Print the parts that are asked for."""
    parser = arguments(__doc__, 400_000)
    parser.add_argument("--part", choices=(*PARTS, "one"), action="append", help="only this one")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="only this one")
    parser.add_argument("--only", default="", help="of `rates`, the cases with this in their names")
    parser.add_argument("--cores", type=int, help="keep to so many cores")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    parts, protocols = options.part or PARTS, options.protocol or PROTOCOLS
    if parts == ["one"]:
        print(json.dumps(rate_of_canal(options.rows)))
        return
    results: dict[str, dict[str, Any]] = {}
    with rig() as bench:
        if "rates" in parts:
            for protocol, kind in product(protocols, KINDS):
                if options.only in f"{protocol}, {kind}" and protocol in _protocols(kind):
                    results[f"{protocol}, {kind}"] = rates(bench, protocol, kind, options.rows)
        if "topics" in parts:
            results |= topics(bench, options.rows)
        if "latency" in parts:
            results |= {f"{protocol} latency": latency(bench, protocol) for protocol in protocols}
        if "memory" in parts:
            results["memory"] = memory(bench, options.rows // 2)
    if "cores" in parts:
        results["cores"] = cores(options.rows)
    print(json.dumps(results, indent=2) if options.json else "\n".join(map(_line, results.items())))


def _protocols(kind: str) -> tuple[str, ...]:
    return CASES[kind].protocols if kind in CASES else PROTOCOLS


def _line(case: tuple[str, dict[str, Any]]) -> str:
    name, figures = case
    paths = ", ".join(f"{share:.0%} {path}" for path, share in figures.get("paths", {}).items())
    numbers = (f"{label} {value:,.2f}" for label, value in figures.items() if label != "paths")
    return f"{name:34} " + "   ".join(numbers) + (f"   ({paths})" if paths else "")


if __name__ == "__main__":
    main()
