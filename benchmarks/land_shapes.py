"""Landing rows as people have them, against Flink SQL reading the same topic to nowhere.

    python benchmarks/land_shapes.py [--rows 400000] [--protocol canal-json] [--only 16] [--peer-only] [--json]

    topic (2 partitions)  ──  our landing, as a feed runs it, to the commit    ──►  changelog        landing
      canal-json          ──  Flink SQL: kafka, canal-json, two slots          ──►  blackhole        peers/flink.py

`narrow` is the mixture of traffic.py; all others are those of shapes.py, wide ones with fewer rows.  Flink's rate is
net of the start of its job, by a topic of N messages and one of 2 N; ours is that of 2 N from its start to its commit,
`net` the same as theirs.  Both have read a topic before that counts for neither, and the best of the rounds counts.

    landing_over_flink    messages a second of landing ÷ Flink's, canal-json alone           goal 1.2
    net_over_flink        the same, both net of their start
    by_cpu_over_flink     the same by seconds of CPU: holds on a machine that is busy with other things
                          A ratio is left out where the longer topic took no longer, as happens on a busy machine.
    Flink into Parquet    the ratios of `narrow` where Flink writes files as well: of new images alone, by plain JSON
    paths                 the share of rows by the path that they took
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from land import land, landed_rows
from peers.flink import flink
from rig import PARTITIONS, Rig, Topic, arguments, cpu_s, rig, send
from shapes import CASES, Shape, churn, topic_of
from traffic import PROTOCOLS, Sent, messages, mixture

from tidegate_upstream.demo.recorded import create_topic

NARROW: Final = "narrow"
COLUMNS: Final = {"id": "bigint", "k": "int", "c": "char(120)", "pad": "char(60)"}
WATERMARK: Final = b'"type":"TIDB_WATERMARK"'
ROUNDS: Final = 2


def share(name: str) -> int:
    """A case has so many times fewer rows, since its rows are so many times larger."""
    return {NARROW: 1, "40 columns": 4, "120 columns": 10, "documents": 4, "long texts": 8}.get(name, 2)


def sent_of(name: str, protocol: str, rows: int) -> Iterator[Sent]:
    """A case's messages, without watermarks."""
    if name == NARROW:
        message_list = messages(mixture(rows), protocol, partitions=PARTITIONS)
        yield from (message for message in message_list if WATERMARK not in message[2][-400:])
    else:
        yield from topic_of(churn(CASES[name], rows), CASES[name], protocol, partitions=PARTITIONS, resolved=False)


def filled(bench: Rig, name: str, protocol: str, sent: Iterable[Sent]) -> Topic:
    """A new topic that holds these messages."""
    create_topic(bench.bootstrap, name, PARTITIONS)
    count, size_bytes = send(bench.bootstrap, name, sent)
    return Topic(bench.bootstrap, name, protocol, PARTITIONS, count, size_bytes)


def landed(bench: Rig, topic: Topic, rows: int) -> tuple[float, float, dict[str, int]]:
    """Seconds of a landing, those of CPU, and its rows by path."""
    lake, begun = bench.directory("lake"), cpu_s()
    took_s, paths = land(topic, lake, bench)
    spent_s = cpu_s() - begun
    assert landed_rows(lake) == rows, (landed_rows(lake), rows)
    return took_s, spent_s, paths


def shares(paths: dict[str, int]) -> dict[str, float]:
    """Counts as parts of their sum, without those of nothing."""
    return {path: count / sum(paths.values()) for path, count in paths.items() if count}


def measure(bench: Rig, name: str, protocol: str, options: argparse.Namespace) -> dict[str, Any]:
    """One case of one protocol."""
    rows = options.rows // share(name)
    batch = list(sent_of(name, protocol, 2 * rows))
    half = list(sent_of(name, protocol, rows))
    short = filled(bench, f"{name.replace(' ', '-')}-{protocol}-n", protocol, half)
    long = filled(bench, f"{name.replace(' ', '-')}-{protocol}-2n", protocol, batch)
    result: dict[str, Any] = {"rows": 2 * rows, "messages": long.messages, "megabytes": long.bytes / 1e6}
    if not options.peer_only:
        landed(bench, short, rows)
        rounds = [(landed(bench, short, rows), landed(bench, long, 2 * rows)) for _ in range(ROUNDS)]
        long_s = min(long_one[0] for _, long_one in rounds)
        result |= {
            "landing_rows_per_s": 2 * rows / long_s,
            "net_rows_per_s": net(rows, min(landed_once[0] for landed_once, _ in rounds), long_s),
            "net_rows_per_cpu_s": net(rows, *(min(both[index][1] for both in rounds) for index in range(2))),
            "paths": shares(rounds[0][1][2]),
        }
    if protocol == "canal-json":
        result |= against_flink(bench, name, (short, long), result)
        if name == NARROW:
            result["into_parquet"] = against_flink(bench, name, (short, long), result, sink="parquet")
    return result


def against_flink(
    bench: Rig, name: str, topics: tuple[Topic, Topic], result: dict[str, Any], *, sink: str = "blackhole"
) -> dict[str, Any]:
    """The other job's rate, and the ratios where it could be had."""
    short, long = topics
    columns = COLUMNS if name == NARROW else CASES[name].types
    answer = flink(bench.bootstrap, (short.name, long.name), columns, sink=sink, rounds=ROUNDS)
    if "skipped" in answer:
        return {"flink": answer}
    count = long.messages - short.messages
    rate, by_cpu = (net(count, *(answer[which][topic.name] for topic in topics)) for which in ("seconds", "cpu_s"))
    return {
        "flink_rows_per_s": rate,
        "flink_rows_per_cpu_s": by_cpu,
        "flink_s": answer["seconds"][long.name],
        "landing_over_flink": over(result.get("landing_rows_per_s"), rate),
        "net_over_flink": over(result.get("net_rows_per_s"), rate),
        "by_cpu_over_flink": over(result.get("net_rows_per_cpu_s"), by_cpu),
    }


def net(count: int, short_s: float, long_s: float) -> float | None:
    """What the longer run did more, a second; None where it took no longer, as happens on a busy machine."""
    return count / (long_s - short_s) if long_s > short_s else None


def over(rate: float | None, other: float | None) -> float | None:
    """A ratio, where both could be had."""
    return rate / other if rate and other else None


def line(name: str, rates: dict[str, Any]) -> str:
    """One case as a line."""
    paths = (f"{part:.0%} {path}" for path, part in rates.get("paths", {}).items())
    keys = ("landing_over_flink", "net_over_flink", "by_cpu_over_flink")
    ratios = (f"{key} {rates[key]:.2f}" for key in keys if rates.get(key))
    numbers = (f"{key} {rates[key]:,.0f}" for key in ("landing_rows_per_s", "flink_rows_per_s") if rates.get(key))
    skipped = rates.get("flink", {}).get("skipped", "")
    return f"{name:26} {'   '.join([*ratios, *numbers, skipped])}   ({', '.join(paths)})"


def main() -> None:
    """Print each case when it is done."""
    parser = arguments(__doc__, 400_000)
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="only this one")
    parser.add_argument("--only", default="", help="the cases with this in their names")
    parser.add_argument("--peer-only", action="store_true", help="Flink alone")
    options = parser.parse_args()
    shapes: dict[str, Shape | None] = {NARROW: None, **{name: one for name, one in CASES.items() if one.whole}}
    results: dict[str, dict[str, Any]] = {}
    with rig() as bench:
        for name, shape in shapes.items():
            for protocol in options.protocol or PROTOCOLS:
                case = f"{protocol.partition('-')[0]}, {name}"
                if options.only not in case or (shape is not None and protocol not in shape.protocols):
                    continue
                measured = measure(bench, name, protocol, options)
                into_parquet = measured.pop("into_parquet", {})
                new = {case: measured, **({"canal, Flink into Parquet": into_parquet} if into_parquet else {})}
                results |= new
                if not options.json:
                    print("\n".join(line(key, rates) for key, rates in new.items()), flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
