"""Merging rows as people have them: our feed against the hand-written from_json + foreachBatch + MERGE job.

    python benchmarks/apply_shapes.py [--rows 200000] [--peer-rows 20000] [--base 500000] [--only 16] [--case insert]
                                      [--json]

    topic (2 partitions) ──  Changefeed: landing and merging, until the last ts      ──►  lake          ours
      canal-json         ──  raw source → from_json → one change a key → MERGE       ──►  Delta tables  peer.py

    insert    new rows in tables without rows                                                      goal 10
    mixed     60 % UPDATE, 25 % INSERT, 15 % DELETE of tables that have rows (`--base`), all over  goal 50

Tables are those of shapes.py.  Rows that tables have at first come by the topic too, before the clock starts.  The
other job reads fewer changes (`--peer-rows`), which ours reads too, and then the tables must be equal in all columns
that have the same type on both sides; ours goes on with more.  Both have read a topic before that counts for neither.
Ratios are of row changes a second, and of those a second of CPU, the broker's left out.  Spark's own AUTO CDC flow is
named with the reason where it cannot be had.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from apply import ends, feed
from peer import PeerTables, digest, layout_of, rows_of
from rig import PARTITIONS, Rig, Topic, arguments, cpu_s, raw, rig, send
from shapes import CASES, SCHEMA, TS, Shape, churn, topic_of

from tidegate import lake
from tidegate.engine.progress import Progress
from tidegate.model.event import RowChange
from tidegate_upstream.demo.recorded import create_topic

PROTOCOL: Final = "canal-json"
SHAPES: Final = ("16 columns", "40 columns", "documents", "half NULL", "20 tables", "small transactions")
"""Those whose values `from_json` can read."""
KINDS: Final = {"insert": (0.0, 0.0, 10.0), "mixed": (0.60, 0.15, 50.0)}
"""The share of UPDATEs and of DELETEs, and the goal."""
WARM_ROWS: Final = 5_000
WIDER: Final = {"40 columns": 4, "documents": 4}
"""So many times fewer rows are there at first."""


def auto_cdc() -> str | None:
    """Why Spark's AUTO CDC flow cannot be the other job; None where it can."""
    import pyspark
    from pyspark import pipelines

    if not any("auto_cdc" in name for name in dir(pipelines)):
        return f"pyspark {pyspark.__version__} has no AUTO CDC flow in pyspark.pipelines"
    return None


@dataclass
class GrowingTopic:
    """A topic that is filled piece by piece, and the last commit_ts in it."""

    bench: Rig
    topic: Topic
    shape: Shape
    changes: Iterator[RowChange]
    rows: int = 0
    until: int = TS

    def send(self, rows: int) -> None:
        """Append so many changes and a resolved ts."""
        messages_sent = topic_of(
            islice(self.changes, rows), self.shape, PROTOCOL, partitions=PARTITIONS, tables=not self.rows
        )
        send(self.bench.bootstrap, self.topic.name, messages_sent)
        self.rows += rows
        self.until = TS + ((self.rows - 1) // self.shape.together << 18)


def begun(bench: Rig, name: str, shape: Shape, changes: Iterator[RowChange]) -> GrowingTopic:
    """A new topic without messages."""
    create_topic(bench.bootstrap, name, PARTITIONS)
    return GrowingTopic(bench, Topic(bench.bootstrap, name, PROTOCOL, PARTITIONS, 0, 0), shape, changes)


def run_tidegate(bench: Rig, traffic: GrowingTopic, home: Path) -> tuple[float, float, Progress]:
    """Seconds of our feed, those of CPU, and what it reports."""
    begun_s = cpu_s()
    took_s, progress = feed(bench, traffic.topic, home, traffic.until)
    return took_s, cpu_s() - begun_s, progress


def run_peer(topic: Topic, tables: PeerTables, start: Mapping[int, int]) -> tuple[float, float]:
    """Seconds of the other job, and those of CPU."""
    begun_s = cpu_s()
    return tables.follow(topic, start), cpu_s() - begun_s


def same(bench: Rig, home: Path, tables: PeerTables, shape: Shape) -> int:
    """Both have the same rows, in so many columns; of an ENUM the other job has the number that messages have."""
    now, compared = lake(str(home)).at("latest"), 0
    for name in shape.names:
        tidegate, other = now.table(f"{SCHEMA}.{name}", bench.spark), tables.frame(name)
        types = {column: kind for column, kind in other.dtypes if not shape.types[column].startswith("enum")}
        columns = [column for column, kind in tidegate.dtypes if types.get(column) == kind]
        if digest(tidegate, columns) != digest(other, columns):
            odd = [column for column in columns if digest(tidegate, [column]) != digest(other, [column])]
            raise AssertionError(f"{name}: {[shape.types[column] for column in odd]} differ")
        compared = len(columns)
    return compared


def measured(bench: Rig, label: str, shape: Shape, kind: str, counts: tuple[int, int, int]) -> dict[str, Any]:
    """Rates over a topic of rows that are there at first, changes for both, and changes for ours alone."""
    (base, peer_rows, rows), (updates, deletes, goal) = counts, KINDS[kind]
    changes = churn(shape, sum(counts), updates=updates, deletes=deletes, base=base)
    traffic, home = begun(bench, label, shape, changes), bench.directory("lake")
    tables = PeerTables(bench.spark, bench.directory("peer"), shape.names, layout_of(shape.types))
    start = dict.fromkeys(range(PARTITIONS), 0)
    if base:
        traffic.send(base)
        run_tidegate(bench, traffic, home)
        start, found = ends(bench, traffic.topic), rows_of(raw(bench.spark, traffic.topic), PROTOCOL, tables.layout)
        for name in shape.names:
            tables.load(found, name)
    traffic.send(peer_rows)
    run_tidegate(bench, traffic, home)
    peer_s, peer_cpu_s = run_peer(traffic.topic, tables, start)
    compared = same(bench, home, tables, shape)
    if not base:
        changes = churn(shape, rows, updates=updates, deletes=deletes)
        traffic, home = begun(bench, f"{label}-long", shape, changes), bench.directory("lake")
    traffic.send(rows)
    ours_s, ours_cpu_s, progress = run_tidegate(bench, traffic, home)
    return {
        "ours_over_peer": rows / ours_s / (peer_rows / peer_s),
        "goal": goal,
        "ours_over_peer_by_cpu": rows / ours_cpu_s / (peer_rows / peer_cpu_s),
        "ours_rows_per_s": rows / ours_s,
        "peer_rows_per_s": peer_rows / peer_s,
        "ours_rows": rows,
        "peer_rows": peer_rows,
        "rows_at_first": base,
        "paths": {path: count / rows for path, count in progress.roads.items()},
        "compared_columns": compared,
    }


def measure(bench: Rig, name: str, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """One shape, one kind of changes."""
    shape, label = CASES[name], f"{name}-{kind}".replace(" ", "-")
    rows, peer_rows = options.rows, options.peer_rows or options.rows // 10
    base = options.base // WIDER.get(name, 1) if kind == "mixed" else 0
    few = min(WARM_ROWS, peer_rows)
    measured(bench, f"{label}-warm", shape, kind, (min(base, few), few, few))
    return measured(bench, label, shape, kind, (base, peer_rows, rows))


def main() -> None:
    """Print each case when it is done."""
    parser = arguments(__doc__, 200_000)
    parser.add_argument("--peer-rows", type=int, help="row changes that the other job reads (default: a tenth)")
    parser.add_argument("--base", type=int, default=500_000, help="rows that tables have before `mixed` (wider: fewer)")
    parser.add_argument("--only", default="", help="the shapes with this in their names")
    parser.add_argument("--case", choices=KINDS, action="append", help="only this one")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {"auto cdc": {"skipped": auto_cdc() or "its job is not written yet"}}
    with rig() as bench:
        for name in SHAPES:
            for kind in options.case or KINDS if options.only in name else ():
                results[f"{kind}, {name}"] = result = measure(bench, name, kind, options)
                paths = ", ".join(f"{share:.0%} {path}" for path, share in result["paths"].items())
                if not options.json:
                    print(
                        f"{kind}, {name:20} {result['ours_over_peer']:6.1f} x (goal {result['goal']:.0f}; "
                        f"{result['ours_over_peer_by_cpu']:.1f} x by CPU): ours {result['ours_rows_per_s']:,.0f} "
                        f"rows/s, "
                        f"peer {result['peer_rows_per_s']:,.0f} ({paths})",
                        flush=True,
                    )
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
