"""How long the package, the codec and the help page take to start, each in processes of its own.

    python benchmarks/start.py [--rounds 15] [--json]

Imports are measured inside the process, without the interpreter's own start; the command line from its start to its
end.  The fastest round counts, as other work of the machine only adds.  `tests/cli/test_cli.py` counts the modules.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Final

GOALS_MS: Final[Mapping[str, int]] = {"import tidegate": 60, "import tidegate.codec": 120, "tidegate --help": 400}
COMPILED: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
IMPORT: Final = "import time; began = time.perf_counter(); {}; print((time.perf_counter() - began) * 1000)"


def start_ms(what: str) -> float:
    """The time of one start."""
    code = ["-c", IMPORT.format(what)] if what.startswith("import ") else ["-m", *what.split()]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *code], check=True, capture_output=True, timeout=60, env=COMPILED)
    return float(done.stdout) if code[0] == "-c" else (time.perf_counter() - began) * 1000


def main() -> None:
    """Print the time and the goal of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    for what in GOALS_MS:
        start_ms(what)  # writes the bytecode
    fastest = {what: min(start_ms(what) for _ in range(words.rounds)) for what in GOALS_MS}
    if words.json:
        print(json.dumps([{"case": what, "ms": ms, "goal_ms": GOALS_MS[what]} for what, ms in fastest.items()]))
        return
    for what, ms in fastest.items():
        print(f"{what:24} {ms:6.0f} ms, goal {GOALS_MS[what]} ms")


if __name__ == "__main__":
    main()
