"""The table of docs/performance.md: goals beside what is measured here, as Markdown.

    python benchmarks/table.py [--quick] [--part decode] [--only 16] [--json]

Runs each part as a process of its own with `--json` and picks the ratios that have goals.  `--quick` takes few rows:
to see that all of it works, not to be quoted.  A part that fails, or a peer that cannot be had, is named with its
reason.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).parent


class Part(NamedTuple):
    """A benchmark: its words, those of a quick run, and goals by case: the first whose text is in the name counts."""

    file: str
    words: tuple[str, ...]
    quick: tuple[str, ...]
    ratio: str
    what: str
    goals: Mapping[str, float]


PARTS: Final[Mapping[str, Part]] = {
    "decode": Part(
        "decode.py",
        (),
        ("--repeat", "2", "--rows", "4000"),
        "columnar_over_json_loads",
        "decode by columns ÷ `json.loads`",
        {
            "open_wide": 3.2,
            "canal_wide": 2.8,
            "open, 16 columns": 3.2,
            "canal, 16 columns": 2.8,
            "open, 40": 2.5,
            "canal, 40": 2.2,
            "300 tables": 1.5,
            "": 0.9,
        },
    ),
    "landing": Part(
        "decode.py",
        (),
        ("--repeat", "2", "--rows", "4000"),
        "landing_over_json_loads",
        "the same as texts, in landing's chunks",
        {"": 0.9},
    ),
    "encode": Part(
        "encode.py",
        (),
        ("--repeat", "1", "--times", "2", "--rows", "2000"),
        "columnar_over_json_dumps",
        "encode by columns ÷ `json.dumps`",
        {},
    ),
    "mount": Part(
        "mount.py",
        (),
        ("--repeat", "1", "--rows", "8000"),
        "columns_over_rows",
        "mount by columns ÷ row by row",
        {},
    ),
    "land": Part(
        "land_shapes.py",
        (),
        ("--rows", "20000"),
        "landing_over_flink",
        "land and commit ÷ Flink SQL to nowhere",
        {"narrow": 1.2, "16 columns": 1.2},
    ),
    "merge": Part(
        "apply_shapes.py",
        (),
        ("--rows", "20000", "--peer-rows", "2000"),
        "ours_over_peer",
        "merge ÷ a foreachBatch MERGE job",
        {"insert": 10, "mixed": 50},
    ),
    "produce": Part(
        "changefeed.py",
        ("--part", "rates"),
        ("--rows", "20000"),
        "feed_over_raw",
        "log → Kafka ÷ raw producer",
        {"wide": 0.35, "16 columns": 0.35, "40 columns": 0.3, "sysbench": 0.25},
    ),
}


def measured(part: Part, *, quick: bool, only: str, cache: dict[str, Any]) -> dict[str, Any]:
    """What a benchmark prints, or why it prints nothing; parts of one file share a run."""
    if part.file not in cache:
        words = [*part.words, *(part.quick if quick else ()), "--only", only, "--json"]
        command = [sys.executable, str(HERE / part.file), *words]
        print(part.file, file=sys.stderr)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        cache[part.file] = (
            json.loads(done.stdout)
            if done.returncode == 0
            else {part.file: {"skipped": f"it ended with {done.returncode}"}}
        )
    return dict(cache[part.file])


def lines(part: Part, results: Mapping[str, Any]) -> Iterator[str]:
    """The rows of the table that a part fills."""
    for name, rates in results.items():
        skipped = rates.get("skipped") or rates.get("flink", {}).get("skipped")
        if rates.get(part.ratio) is None and not skipped:
            continue
        goal = next((f"{least:g}" for text, least in part.goals.items() if text in name), "")
        value = skipped if rates.get(part.ratio) is None else f"{rates[part.ratio]:.2f}"
        paths = ", ".join(f"{share:.0%} {path}" for path, share in rates.get("paths", {}).items())
        yield f"| {part.what} | {name} | {goal} | {value} | {paths} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    parser.add_argument("--only", default="", help="the cases with this in their names")
    parser.add_argument("--json", action="store_true", help="all that the parts print, as one JSON object")
    options = parser.parse_args()
    cache: dict[str, Any] = {}
    if not options.json:
        print("| what | case | goal | measured | rows by path |\n| --- | --- | ---: | ---: | --- |", flush=True)
    results = {}
    for name in options.part or PARTS:
        results[name] = measured(PARTS[name], quick=options.quick, only=options.only, cache=cache)
        for line in lines(PARTS[name], results[name]) if not options.json else ():
            print(line, flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
