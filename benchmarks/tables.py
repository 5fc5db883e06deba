"""Many tables: what their number costs at each stage, and their DDLs.

    python benchmarks/tables.py [--part stages] [--tables 300 --tables 2000] [--rows 100000] [--delay 20] [--json]

    stages    the same rows (16 columns, shapes.py) over more and more tables: µs a row, and seconds by phase
                  decode, encode    one core, messages to columns and back, beside json.loads and json.dumps
                  land              a topic with its CREATE TABLEs and rows, to the commit of the changelog
                  apply             a feed of it into a lake, then ten rows in ten of the tables
    ddls      a CREATE TABLE of each table, then an ALTER: seconds from the start of a feed over a topic or a change log
              that has them, and nothing else, to the checkpoint of the last.  `store` is a lake on S3 behind a proxy
              that waits `--delay` ms before each request (object_store.py), `topic` another topic
              Goals: 300 CREATE TABLEs 10 s, 1,000 ALTERs 60 s, on S3 three times as long

Feeds run behind one of few tables that counts for nothing.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice, product
from typing import Any, Final, NamedTuple

import decode
import encode
import psutil
from apply import feed
from backlog import SCHEMA, write_ddls
from land import land
from object_store import BUCKET, running_store
from rig import PARTITIONS, Rig, Topic, arguments, rig, send
from shapes import CASES, TS, churn, topic_of

from tidegate.codec import BatchEncoder, EncodeOptions
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.model.event import Ddl, Resolved
from tidegate_upstream.demo.recorded import create_topic

PARTS: Final = ("stages", "ddls")
PROTOCOL: Final = "open-protocol"
CANAL: Final = "canal-json"
CREATE: Final = "CREATE TABLE `{}` (id BIGINT PRIMARY KEY, k INT NOT NULL, c CHAR(120), at DATETIME(3))"
ALTER: Final = "ALTER TABLE `{}` ADD COLUMN note VARCHAR(40)"


class Ddls(NamedTuple):
    """A source of DDLs: its address, and the ts of its last CREATE and of its last ALTER."""

    uri: str
    created: int
    altered: int


def in_topic(bench: Rig, tables: Sequence[str]) -> Ddls:
    """A topic with the DDLs of these tables, as TiCDC sends them."""
    topic = bench.directory("ddls").name
    create_topic(bench.bootstrap, topic, PARTITIONS)
    texts = [(name, text.format(name), kind) for text, kind in ((CREATE, 3), (ALTER, 5)) for name in tables]
    encoders = [BatchEncoder(EncodeOptions(protocol=PROTOCOL)) for _ in range(PARTITIONS)]

    def messages() -> Iterator[tuple[int, bytes | None, bytes]]:
        for ts, (name, query, kind) in enumerate(texts, TS):
            for event in (Ddl(schema=SCHEMA, table=name, query=query, commit_ts=ts, type=kind), Resolved(ts)):
                for partition, encoder in enumerate(encoders):
                    yield from ((partition, each.key, each.value or b"") for each in encoder.append(event))

    send(bench.bootstrap, topic, messages())
    uri = f"kafka://{bench.bootstrap}/{topic}?protocol={PROTOCOL}"
    return Ddls(uri, TS + len(tables) - 1, TS + len(texts) - 1)


def in_log(bench: Rig, tables: Sequence[str]) -> Ddls:
    """A change log with them."""
    directory = bench.directory("log")
    created, altered = write_ddls(directory, [[text.format(name) for name in tables] for text in (CREATE, ALTER)])
    return Ddls(f"tidb://{directory}", created, altered)


def fed(bench: Rig, source: Ddls, sink: str) -> dict[str, float]:
    """Seconds of a feed over the CREATE TABLEs, and of one over the ALTERs."""
    times, state = {}, bench.directory("state")
    for label, until in (("create_s", source.created), ("alter_s", source.altered)):
        feed = Changefeed(load(source_uri=source.uri, sink_uri=sink, rules=(f"{SCHEMA}.*",), state_dir=state))
        begun = time.perf_counter()
        progress = feed.run(bench.spark, until=until)
        times[label] = time.perf_counter() - begun
        times[label.replace("_s", "_rounds")] = progress.watermarks
    return times


def ddls(bench: Rig, count: int, only: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Each source into each sink, behind a feed of few tables that counts for nothing."""
    few, tables = ([f"t{number:05}" for number in range(n)] for n in (3, count))
    for source_of in (in_topic, in_log):
        sources = source_of(bench, few), source_of(bench, tables)
        for sink in ("lake", "store", "topic"):
            name = f"{source_of.__name__.removeprefix('in_')} to {sink}, {count} tables"
            if only not in name:
                continue
            for source in sources:
                target = bench.directory("lake")
                uri = {
                    "lake": f"delta://{target}",
                    "store": f"delta+s3://{BUCKET}/{target.name}",
                    "topic": f"kafka://{bench.bootstrap}/{target.name}?protocol={PROTOCOL}&partition-num={PARTITIONS}",
                }[sink]
                times = fed(bench, source, uri)
            yield name, times


def stages(bench: Rig, count: int, rows: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Each stage of rows over so many tables."""
    shape = replace(CASES["16 columns"], tables=count)
    for stage, measured, yardstick in (
        ("decode", decode.measure(*decode.messages_of(shape, CANAL, rows), 1), "json_loads"),
        ("encode", encode.measure(**encode.measure_shape(shape, CANAL, rows), repeat=1), "json_dumps"),
    ):
        figures = {"us_a_row": 1e6 / measured["columnar_events_per_s"], **measured["paths"]}
        yield f"{stage}, {count} tables", {f"over_{yardstick}": measured[f"columnar_over_{yardstick}"], **figures}
    topic = Topic(bench.bootstrap, bench.directory("topic").name, CANAL, PARTITIONS, 0, 0)
    create_topic(bench.bootstrap, topic.name, PARTITIONS)
    changes = churn(shape, rows + 10)
    sent, _ = send(bench.bootstrap, topic.name, topic_of(islice(changes, rows), shape, CANAL))
    took_s, paths = land(replace(topic, messages=sent), bench.directory("lake"), bench)
    yield f"land, {count} tables", {"us_a_row": took_s * 1e6 / rows, "land_s": took_s, **paths}
    home = bench.directory("lake")
    for stage, more in (("apply", rows), ("ten rows more", 10)):
        if stage != "apply":
            send(bench.bootstrap, topic.name, topic_of(changes, shape, CANAL, tables=False))
        took_s, progress = feed(bench, topic, home, TS + (((rows if stage == "apply" else rows + 10) - 1) // 10 << 18))
        phases = {f"{phase}_s": spent for phase, spent in progress.spent_s.items()}
        driver = {"driver_mib": psutil.Process().memory_info().rss / (1 << 20)}
        yield f"{stage}, {count} tables", {"us_a_row": took_s * 1e6 / more, "feed_s": took_s, **phases, **driver}


def main() -> None:
    """Print each case when it is done."""
    parser = arguments(__doc__, 100_000)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    parser.add_argument("--tables", type=int, action="append", help="so many tables (default: 300)")
    parser.add_argument("--only", default="", help="of `ddls`, the cases with this in their names")
    parser.add_argument("--delay", type=float, default=20.0, help="milliseconds a request of S3 (default 20)")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        stack.enter_context(running_store(options.delay, moto=False))
        bench = stack.enter_context(rig())
        if "stages" in (options.part or PARTS):
            list(stages(bench, 3, 5_000))
        for part, count in product(options.part or PARTS, options.tables or (300,)):
            cases = ddls(bench, count, options.only) if part == "ddls" else stages(bench, count, options.rows)
            for name, figures in cases:
                results[name] = figures
                if not options.json:
                    print(f"{name:34}", "  ".join(f"{key} {value:,.2f}" for key, value in figures.items()), flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
