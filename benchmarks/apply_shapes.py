"""Merging rows as people have them: our feed against the hand-written from_json + foreachBatch + MERGE job.

    python benchmarks/apply_shapes.py [--rows 200000] [--peer-rows 20000] [--only 16] [--case insert] [--json]

    topic (2 partitions) ──  Changefeed: landing and merging, until the last ts      ──►  lake          ours
      canal-json         ──  raw source → from_json → one change a key → MERGE       ──►  Delta tables  peer.py

    insert    new rows                                                                             goal 10
    mixed     60 % UPDATE, 25 % INSERT, 15 % DELETE of rows that come again                        goal 50

Tables are those of shapes.py.  The other job reads a shorter topic (`--peer-rows`), which ours reads too, and the
tables must be equal in all columns that have the same type on both sides.  Both have read a topic before that counts
for neither.  Ratios are of row changes a second, and of those a second of CPU, the broker's left out.  Spark's own AUTO
CDC flow is named with the reason where it cannot be had.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

from apply import feed
from peer import PeerTables, digest, layout_of
from rig import PARTITIONS, Rig, Topic, arguments, cpu_s, rig, send
from shapes import CASES, SCHEMA, TS, Shape, churn, topic_of

from tidegate import lake
from tidegate.app.demo.recorded import create_topic
from tidegate.app.progress import Progress

PROTOCOL: Final = "canal-json"
SHAPES: Final = ("16 columns", "40 columns", "documents", "half NULL", "20 tables", "small transactions")
"""Those whose values `from_json` can read."""
KINDS: Final = {"insert": (0.0, 0.0, 10.0), "mixed": (0.60, 0.15, 50.0)}
"""The share of UPDATEs and of DELETEs, and the goal."""
WARM_ROWS: Final = 5_000


def auto_cdc() -> str | None:
    """Why Spark's AUTO CDC flow cannot be the other job; None where it can."""
    import pyspark
    from pyspark import pipelines

    if not any("auto_cdc" in name for name in dir(pipelines)):
        return f"pyspark {pyspark.__version__} has no AUTO CDC flow in pyspark.pipelines"
    return None


def filled(bench: Rig, name: str, shape: Shape, kind: str, rows: int) -> tuple[Topic, int]:
    """A new topic of so many changes, and its last commit_ts."""
    create_topic(bench.bootstrap, name, PARTITIONS)
    updates, deletes, _ = KINDS[kind]
    sent = topic_of(churn(shape, rows, updates=updates, deletes=deletes), shape, PROTOCOL, partitions=PARTITIONS)
    topic = Topic(bench.bootstrap, name, PROTOCOL, PARTITIONS, *send(bench.bootstrap, name, sent))
    return topic, TS + ((rows - 1) // shape.together << 18)


def ours(bench: Rig, topic: Topic, until: int, home: Path) -> tuple[float, float, Progress]:
    """Seconds of our feed, those of CPU, and what it reports."""
    begun = cpu_s()
    took_s, progress = feed(bench, topic, home, until)
    return took_s, cpu_s() - begun, progress


def theirs(topic: Topic, tables: PeerTables) -> tuple[float, float]:
    """Seconds of the other job, and those of CPU."""
    begun = cpu_s()
    return tables.follow(topic, dict.fromkeys(range(PARTITIONS), 0)), cpu_s() - begun


def same(bench: Rig, home: Path, tables: PeerTables, shape: Shape) -> int:
    """Both have the same rows, in so many columns; of an ENUM the other job has the number that messages have."""
    now, compared = lake(str(home)).at("latest"), 0
    for name in shape.names:
        mine, other = now.table(f"{SCHEMA}.{name}", bench.spark), tables.frame(name)
        types = {column: kind for column, kind in other.dtypes if not shape.types[column].startswith("enum")}
        columns = [column for column, kind in mine.dtypes if types.get(column) == kind]
        if digest(mine, columns) != digest(other, columns):
            odd = [column for column in columns if digest(mine, [column]) != digest(other, [column])]
            raise AssertionError(f"{name}: {[shape.types[column] for column in odd]} differ")
        compared = len(columns)
    return compared


def measure(bench: Rig, name: str, kind: str, given: argparse.Namespace) -> dict[str, Any]:
    """One shape, one kind of changes."""
    shape, label = CASES[name], f"{name}-{kind}".replace(" ", "-")
    rows, peer_rows = given.rows, given.peer_rows or given.rows // 10
    found: dict[str, Any] = {}
    for at, count in (("warm", min(WARM_ROWS, peer_rows)), ("short", peer_rows)):
        topic, until = filled(bench, f"{label}-{at}", shape, kind, count)
        home = bench.directory("lake")
        ours(bench, topic, until, home)
        tables = PeerTables(bench.spark, bench.directory("peer"), shape.names, layout_of(shape.types))
        peer_s, peer_cpu_s = theirs(topic, tables)
        found["compared_columns"] = same(bench, home, tables, shape)
    topic, until = filled(bench, f"{label}-long", shape, kind, rows)
    ours_s, ours_cpu_s, progress = ours(bench, topic, until, bench.directory("lake"))
    return {
        "ours_over_peer": rows / ours_s / (peer_rows / peer_s),
        "goal": KINDS[kind][2],
        "ours_over_peer_by_cpu": rows / ours_cpu_s / (peer_rows / peer_cpu_s),
        "ours_rows_per_s": rows / ours_s,
        "peer_rows_per_s": peer_rows / peer_s,
        "ours_rows": rows,
        "peer_rows": peer_rows,
        "roads": {road: count / rows for road, count in progress.roads.items()},
        **found,
    }


def main() -> None:
    """Print each case when it is done."""
    parser = arguments(__doc__, 200_000)
    parser.add_argument("--peer-rows", type=int, help="row changes that the other job reads (default: a tenth)")
    parser.add_argument("--only", default="", help="the shapes with this in their names")
    parser.add_argument("--case", choices=KINDS, action="append", help="only this one")
    given = parser.parse_args()
    found: dict[str, dict[str, Any]] = {"auto cdc": {"skipped": auto_cdc() or "its job is not written yet"}}
    with rig() as bench:
        for name in SHAPES:
            for kind in given.case or KINDS if given.only in name else ():
                found[f"{kind}, {name}"] = one = measure(bench, name, kind, given)
                roads = ", ".join(f"{share:.0%} {road}" for road, share in one["roads"].items())
                if not given.json:
                    print(
                        f"{kind}, {name:20} {one['ours_over_peer']:6.1f} x (goal {one['goal']:.0f}; "
                        f"{one['ours_over_peer_by_cpu']:.1f} x by CPU): ours {one['ours_rows_per_s']:,.0f} rows/s, "
                        f"peer {one['peer_rows_per_s']:,.0f} ({roads})",
                        flush=True,
                    )
    if given.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
