"""This tree against an earlier commit: five benchmarks in short form, from two work trees in turns.

    python benchmarks/pair.py BASE [--times 5] [--only decode] [--json]      make bench-pair BASE=COMMIT

BASE is checked out beside this tree, and each turn runs the benchmarks of both, the order changing from turn to turn:
a machine that gets slower meanwhile slows both.  Each tree runs its own benchmarks, with the packages of this
environment.  What counts are our own rates, which the benchmarks print with `--json`; peers and start-up are left out.

    ratio of a rate in one turn   this tree ÷ BASE
    ratio of a benchmark          the median over all of its rates and turns
    the last line                 the lowest of these, and `pass` from 0.95 on; the exit status says the same
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
LEAST: Final = 0.95
TIMES: Final = 5

Rates = dict[str, float]


class Benchmark(NamedTuple):
    """A benchmark's arguments in short form, and the members of its JSON that are our own rates."""

    arguments: tuple[str, ...]
    rates: tuple[str, ...]


BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    "decode": Benchmark(
        ("--only", "1", "--rows", "4000", "--repeat", "3"), ("columnar_events_per_s", "landing_events_per_s")
    ),
    "encode": Benchmark(("--only", "16", "--rows", "4000", "--repeat", "3"), ("columnar_events_per_s",)),
    "land": Benchmark(("--protocol", "canal-json", "--rows", "300000"), ("landing_rows_per_s",)),
    "apply": Benchmark(("--case", "insert", "--rows", "200000", "--peer-rows", "2000"), ("ours_rows_per_s",)),
    "changefeed": Benchmark(
        ("--part", "rates", "--protocol", "canal-json", "--only", "sysbench", "--rows", "500000"),
        ("feed_rows_per_s",),
    ),
}


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A work tree of a commit, gone at the end."""
    tree = ROOT / "build" / "pair"
    remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)]
    subprocess.run(remove, check=False, capture_output=True)
    subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(tree), commit], check=True)
    try:
        yield tree
    finally:
        subprocess.run(remove, check=True)


def rates_of(tree: Path, name: str) -> Rates:
    """Our own rates that one run of a tree's benchmark prints."""
    benchmark = BENCHMARKS[name]
    command = [sys.executable, str(tree / "benchmarks" / f"{name}.py"), *benchmark.arguments, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    cases = json.loads(printed)
    return {f"{case}: {rate}": cases[case][rate] for case in cases for rate in benchmark.rates}


def compare(name: str, trees: Mapping[str, Path], times: int) -> dict[str, list[float]]:
    """Return the ratios of each rate, one a turn."""
    ratios: dict[str, list[float]] = {}
    for turn in range(times):
        order = [*trees][:: -1 if turn % 2 else 1]
        measured = {label: rates_of(trees[label], name) for label in order}
        for rate in measured["here"].keys() & measured["base"].keys():
            ratios.setdefault(rate, []).append(measured["here"][rate] / measured["base"][rate])
    return ratios


def main() -> int:
    """Print a line a benchmark, and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument("--times", type=int, default=TIMES, help=f"turns (default {TIMES})")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="only this benchmark")
    parser.add_argument("--json", action="store_true", help="one JSON object with all ratios")
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    with checkout(options.base) as base:
        for name in options.only or BENCHMARKS:
            begun = time.perf_counter()
            found[name] = compare(name, {"here": ROOT, "base": base}, options.times)
            if not options.json:
                every = [ratio for ratios in found[name].values() for ratio in ratios]
                spread = f"{min(every):.2f} to {max(every):.2f}, {len(found[name])} rates, {options.times} turns"
                took_s = time.perf_counter() - begun
                print(f"{name:11} {median(every):5.2f} x   ({spread}, {took_s:.0f} s)", flush=True)
                for rate, ratios in sorted(found[name].items()):
                    print(f"    {median(ratios):5.2f} x   {rate}", flush=True)
    medians = {name: median(x for ratios in rates.values() for x in ratios) for name, rates in found.items()}
    lowest = min(medians, key=lambda name: medians[name])
    passed = medians[lowest] >= LEAST
    verdict = f"{'pass' if passed else 'fail'}: the lowest is {lowest}, {medians[lowest]:.3f} of {options.base}"
    print(json.dumps({"ratios": found, "medians": medians, "passed": passed}, indent=2) if options.json else verdict)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
