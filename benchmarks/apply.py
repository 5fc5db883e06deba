"""From a topic to merged tables: our feed against a hand-written from_json + foreachBatch + MERGE job.

    python benchmarks/apply.py [--rows 1000000] [--peer-rows 200000] [--case insert|update|mixed|big] [--json]

    topic (2 partitions) ──  Changefeed: landing and merging, until the last ts      ──►  lake          ours
      one event a message ─  raw source → from_json → one change a key → MERGE       ──►  Delta tables  peer.py

    insert    new rows of one table                                                                 goal 10
    update    90 % UPDATE, 5 % INSERT, 5 % DELETE all over a table of 1,000,000 rows                goal  8
    mixed     60 % UPDATE, 25 % INSERT, 15 % DELETE over 20 tables, 20 of ADD COLUMN on the way     goal  8
    big       100,000 random UPDATEs of a table of 5,000,000 rows, no topic: our merge ÷ Spark's MERGE

Both read the same topic in one run, from the start of the stream to the last commit, after a run of both on few rows.
The other job is slow, so its topic is a shorter one of the same kind (`--peer-rows`; its tables stay smaller, which
is to its favour): our feed reads that one too, and all tables must be equal.  Then ours reads the long one, and its
rows are compared with what the traffic has made.  Rates are row changes a second; the ratio is ours ÷ theirs.  The
same by seconds of CPU, all processes but the broker's, holds on a machine that is busy with other things too.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from bigtable import big
from peer import PeerTables, digest, rows_of
from rig import PARTITIONS, Rig, Topic, arguments, cpu_s, raw, rig, send
from traffic import (
    LOGICAL_BITS,
    PROTOCOLS,
    ROWS_PER_TRANSACTION,
    SCHEMA,
    TS_START,
    Change,
    insert_only,
    many_tables,
    messages,
    update_heavy,
)

from tidegate import Changefeed, lake
from tidegate.engine.progress import Progress

Rates = dict[str, float]

BASE_ROWS: Final = 1_000_000
BIG_ROWS: Final = 5_000_000
TABLES: Final = 20
WARM_ROWS: Final = 20_000


@dataclass
class Traffic:
    """Changes as they pass, and what they leave: id → version of every table."""

    changes: Iterator[Change]
    tables: dict[str, dict[int, int]] = field(default_factory=dict)
    rows: int = 0
    ts: int = TS_START
    """Where the next change stands, as `messages` counts."""

    def __iter__(self) -> Iterator[Change]:
        for change in self.changes:
            self.note(change)
            yield change

    def note(self, change: Change) -> None:
        """Count one change."""
        rows = self.tables.setdefault(change.table, {})
        match change.op:
            case "C" | "A":
                self.ts += 2 << LOGICAL_BITS
                return
            case "D":
                del rows[change.id]
            case _:
                rows[change.id] = change.version
        self.rows += 1
        if not self.rows % ROWS_PER_TRANSACTION:
            self.ts += 1 << LOGICAL_BITS


@dataclass(frozen=True)
class Case:
    """A kind of traffic: its first `base` rows are there before the clock starts."""

    changes: Callable[[int], Iterator[Change]]
    goal: float
    share: int
    """Which part of the rows the other job reads by default: so that a case takes two minutes or three."""
    base: int = 0


def cases(base: int) -> Mapping[str, Case]:
    """The cases that read a topic."""
    return {
        "insert": Case(insert_only, 10.0, 5),
        "update": Case(lambda rows: update_heavy(base, rows), 8.0, 10, base),
        "mixed": Case(lambda rows: many_tables(rows, TABLES, TABLES), 8.0, 20),
    }


def measured(bench: Rig, name: str, case: Case, protocol: str, rows: int, *, peer: bool) -> Rates:
    """Seconds of our feed over `rows` changes, and of the other job too where `peer` says so."""
    traffic = Traffic(case.changes(rows))
    home, started = bench.directory(f"lake-{name}"), dict.fromkeys(range(PARTITIONS), 0)
    topic = bench.topic(home.name, islice(traffic, case.base + 1) if case.base else traffic, protocol)
    theirs = PeerTables(bench.spark, bench.directory(f"peer-{name}"), sorted(traffic.tables)) if peer else None
    if case.base:
        feed(bench, topic, home, traffic.ts)
        started = ends(bench, topic)
        if theirs is not None:
            theirs.load(rows_of(raw(bench.spark, topic), protocol), "t01")
        traffic.ts += 1 << LOGICAL_BITS
        more = messages(traffic, protocol, partitions=PARTITIONS, ts_start=traffic.ts)
        send(bench.bootstrap, topic.name, more)
    begun = cpu_s()
    figures = {"ours_s": feed(bench, topic, home, traffic.ts)[0], "ours_cpu_s": cpu_s() - begun}
    check(home, traffic)
    if theirs is not None:
        begun = cpu_s()
        figures |= {"peer_s": theirs.follow(topic, started), "peer_cpu_s": cpu_s() - begun}
        same(bench, home, theirs, traffic.tables)
    return figures


def feed(bench: Rig, topic: Topic, home: Path, until: int) -> tuple[float, Progress]:
    """Seconds that our feed takes from its start to the published snapshot of `until`, and what it reports."""
    begun = time.perf_counter()
    done = Changefeed(topic.uri(), f"delta://{home}").run(bench.spark, until=until)
    assert (done.checkpoint_ts or 0) >= until, (done, until)
    return time.perf_counter() - begun, done


def ends(bench: Rig, topic: Topic) -> dict[int, int]:
    """Where each partition ends now."""
    ends_of = raw(bench.spark, topic).groupBy("partition").max("offset").collect()
    return {row[0]: row[1] + 1 for row in ends_of}


def check(home: Path, traffic: Traffic) -> None:
    """Our tables hold the ids and versions that the traffic made (traffic.py: k follows from both)."""
    now = lake(str(home)).at("latest")
    for name, rows in traffic.tables.items():
        stored = now.arrow(f"{SCHEMA}.{name}", ["id", "k"]).sort_by("id")
        ids = np.array(sorted(rows), np.int64)
        versions = np.array([rows[number] for number in ids.tolist()], np.int64)
        assert np.array_equal(stored.column("id").to_numpy(), ids), name
        assert np.array_equal(stored.column("k").to_numpy(), (ids * 31 + versions) % 10_000_000), name


def same(bench: Rig, home: Path, peer: PeerTables, names: Iterable[str]) -> None:
    """Both have the same rows, told by their number and the sum of their hashes."""
    now = lake(str(home)).at("latest")
    for name in names:
        frame = now.table(f"{SCHEMA}.{name}", bench.spark)
        assert digest(frame, peer.columns[name]) == digest(peer.frame(name), peer.columns[name]), name


def compared(bench: Rig, name: str, options: argparse.Namespace) -> Rates:
    """One case: few rows to warm up, the short topic with both, the long one with ours."""
    if name == "big":
        return big(bench, options.big_rows, options.big_rows // 50)
    case, protocol, rows = cases(options.base)[name], options.protocol, options.rows
    peer_rows = options.peer_rows or rows // case.share
    measured(bench, name, cases(min(options.base, WARM_ROWS))[name], protocol, WARM_ROWS, peer=True)
    short = measured(bench, name, case, protocol, peer_rows, peer=True)
    long = measured(bench, name, case, protocol, rows, peer=False)
    rate, peer = rows / long["ours_s"], peer_rows / short["peer_s"]
    return {
        "ours_over_peer": rate / peer,
        "goal": case.goal,
        "ours_over_peer_by_cpu": rows / long["ours_cpu_s"] / (peer_rows / short["peer_cpu_s"]),
        "ours_rows_per_s": rate,
        "peer_rows_per_s": peer,
        "ours_rows": rows,
        "peer_rows": peer_rows,
        "ours_s": long["ours_s"],
        "ours_on_peer_rows_s": short["ours_s"],
        "peer_s": short["peer_s"],
    }


def line(name: str, rates: Rates) -> str:
    """One case as a line."""
    if name == "big":
        return (
            f"big      {rates['peer_over_ours']:6.2f} x: ours {rates['ours_s']:.1f} s, "
            f"{rates['ours_mb_before']:.0f} MB of memory before and {rates['ours_mb_peak']:.0f} at most; "
            f"Spark's MERGE {rates['peer_s']:.1f} s "
            f"({rates['changes']:,.0f} changes of {rates['rows']:,.0f} rows)"
        )
    return (
        f"{name:8} {rates['ours_over_peer']:6.2f} x (goal {rates['goal']:.0f}; "
        f"{rates['ours_over_peer_by_cpu']:.2f} x by seconds of CPU): "
        f"ours {rates['ours_rows_per_s']:,.0f} rows/s ({rates['ours_rows']:,.0f} in {rates['ours_s']:.1f} s), "
        f"peer {rates['peer_rows_per_s']:,.0f} ({rates['peer_rows']:,.0f} in {rates['peer_s']:.1f} s; "
        f"ours {rates['ours_on_peer_rows_s']:.1f} s on those)"
    )


def main() -> None:
    """Print each case when it is done."""
    names = [*cases(0), "big"]
    parser = arguments(__doc__, 1_000_000)
    parser.add_argument(
        "--peer-rows", type=int, help="row changes that the other job reads (default: a fifth, a tenth, a 20th)"
    )
    parser.add_argument("--base", type=int, default=BASE_ROWS, help="rows of the table that `update` starts from")
    parser.add_argument("--big-rows", type=int, default=BIG_ROWS, help="rows of the table of `big`")
    parser.add_argument("--case", choices=names, action="append", help="only this one")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="canal-json")
    options = parser.parse_args()
    results: dict[str, Rates] = {}
    with rig() as bench:
        for name in options.case or names:
            results[name] = compared(bench, name, options)
            if not options.json:
                print(line(name, results[name]), flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
