"""What a million rows take on disk, by their shape.

    python benchmarks/disk.py [--rows 100000] [--only "16 columns"] [--json]

    change log     segments as a capture writes them, with old values
    changelog      landed rows of a lake, which it keeps for `changelog-retention`
    lake           data files of the tables' last version, of INSERTs alone
    csv, canal-json    files of the storage sink, with old values where the protocol has them

Changes are 60 % UPDATE with the old row, 25 % INSERT, 15 % DELETE, and no two contents of rows are the same, so that
compression finds what it finds in rows of people.  One process, no Spark; MB are of 10^6 bytes.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from backlog import SCHEMA, TABLES, write_backlog
from deltalake import DeltaTable
from rig import arguments

from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.ports import LocalTasks

KINDS: Final = ("sysbench", "16 columns", "40 columns", "120 columns", "documents", "long texts", "binaries")
SHARES: Final = {"120 columns": 5, "long texts": 2, "documents": 2}
"""Wide rows are so many times fewer."""
PARTS: Final = ("change log", "changelog", "lake", "csv", "canal-json")


def size_of(directory: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def run(home: Path, log: Path, sink: str, until: int) -> None:
    """Let a feed write all that a log has."""
    config = load(source_uri=f"tidb://{log}", sink_uri=sink, rules=(f"{SCHEMA}.*",), state_dir=home / "state")
    Changefeed(config).run(tasks=LocalTasks(), until=until)


def measure(home: Path, kind: str, rows: int) -> dict[str, float]:
    """MB of a million rows by part."""
    mixed, inserted = home / "mixed", home / "inserted"
    backlog = write_backlog(mixed, kind, rows, contents=4 * rows // len(TABLES))
    only = write_backlog(inserted, kind, rows, contents=4 * rows // len(TABLES), inserts=1.0)
    lake = f"delta://{home}/{{}}?upkeep=off"
    run(home, mixed, lake.format("changes"), backlog.high)
    run(home, inserted, lake.format("tables"), only.high)
    for protocol in ("csv", "canal-json"):
        run(home, mixed, f"file://{home}/{protocol}?protocol={protocol}", backlog.high)
    tables = [DeltaTable(str(path.parent)) for path in (home / "tables" / "tables").rglob("_delta_log")]
    actions = [pa.table(table.get_add_actions(flatten=True)) for table in tables]
    stored = sum(sum(each["size_bytes"].to_pylist()) for each in actions)
    whole = {
        "change log": size_of(mixed) / backlog.rows,
        "changelog": size_of(home / "changes" / "_tidegate" / "changelog") / backlog.rows,
        "lake": stored / only.rows,
        "csv": size_of(home / "csv") / backlog.rows,
        "canal-json": size_of(home / "canal-json") / backlog.rows,
    }
    return {name: round(whole[name], 1) for name in PARTS}


def main(words: Sequence[str] | None = None) -> None:
    """Print a line for each shape."""
    options = arguments(__doc__, 100_000)
    options.add_argument("--only", default="", help="shapes whose names contain this")
    chosen = options.parse_args(words)
    for kind in (kind for kind in KINDS if chosen.only in kind):
        with tempfile.TemporaryDirectory(prefix="tidegate-disk-") as home:
            sizes = measure(Path(home), kind, chosen.rows // SHARES.get(kind, 1))
        line = (
            json.dumps({"shape": kind, **sizes})
            if chosen.json
            else f"{kind:<14}" + "".join(f"  {name} {size:,.0f}" for name, size in sizes.items())
        )
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
