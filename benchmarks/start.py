"""How long the package, the codec and the help page take to start, each in processes of its own.

    python benchmarks/start.py [--rounds 15] [--json]

The median of imports is measured inside the process, without the interpreter's own start; that of the command line from
its start to its end.  `tests/cli/test_cli.py` counts the modules of each.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Final

GOALS_MS: Final[Mapping[str, int]] = {"import tidegate": 60, "import tidegate.codec": 120, "tidegate --help": 400}
IMPORT: Final = "import time; began = time.perf_counter(); {}; print((time.perf_counter() - began) * 1000)"


def start_ms(what: str) -> float:
    """The time of one start."""
    if not what.startswith("import "):
        command = [sys.executable, "-m", *what.split()]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
        return (time.perf_counter() - began) * 1000
    done = subprocess.run([sys.executable, "-c", IMPORT.format(what)], check=True, capture_output=True, timeout=60)
    return float(done.stdout)


def main() -> None:
    """Print the median and the goal of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    medians = {what: statistics.median(start_ms(what) for _ in range(words.rounds)) for what in GOALS_MS}
    if words.json:
        print(json.dumps([{"case": what, "ms": ms, "goal_ms": GOALS_MS[what]} for what, ms in medians.items()]))
        return
    for what, ms in medians.items():
        print(f"{what:24} {ms:6.0f} ms, goal {GOALS_MS[what]} ms")


if __name__ == "__main__":
    main()
