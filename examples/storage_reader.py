"""Read the files of a changefeed into file:///DIR?protocol=csv, each DDL and row once, in commit order.

    python examples/storage_reader.py DIR

It needs include-commit-ts = true and output-old-value = true under [sink.csv], and tables without virtual generated
columns, which schema files tell and rows lack.  Call it again for what has come since: its position is in DIR.position.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Told = tuple[int, int, str, Any]
"""commit_ts; 0 for a row, 1 for a DDL, which comes behind the rows of its ts; the table; what happened."""


def read(directory: Path, after: int, upto: int) -> list[Told]:
    """Return what happened behind `after`, up to the checkpoint `upto`."""
    events: list[Told] = []
    for path in directory.glob("**/meta/schema_*.json"):
        schema = json.loads(path.read_text())
        name, version = f"{schema['Schema']}.{schema['Table']}", schema["TableVersion"]
        if schema["Query"] and after < version <= upto:
            events.append((version, 1, name, schema["Query"]))
        if schema["Table"]:
            names = [column["ColumnName"] for column in schema["TableColumns"]]
            rows = rows_of(path.parents[1] / str(version))
            events += [
                (ts, 0, name, (op, dict(zip(names, values, strict=True))))
                for op, ts, values in rows
                if after < ts <= upto
            ]
    return sorted(events, key=lambda event: event[:2])


def rows_of(version: Path) -> Iterator[tuple[str, int, list[str]]]:
    """Return the rows that index files name, below the directory of a table's version."""
    for index in sorted(version.glob("**/meta/CDC.index")):
        newest = index.read_text().strip()
        for file in sorted(index.parents[1].glob("CDC*.csv")):
            if file.name <= newest:
                with file.open(newline="") as lines:
                    for op, _, _, ts, _, *values in csv.reader(lines):
                        yield op, int(ts), values


def main(directory: Path) -> None:
    """Print what has come since the last call."""
    upto = json.loads((directory / "metadata").read_text())["checkpoint-ts"]  # first of all: what follows is complete
    position = directory.with_name(f"{directory.name}.position")
    after = int(position.read_text()) if position.exists() else 0
    for ts, _, name, what in read(directory, after, upto):
        print(ts, name, what)
    position.write_text(str(upto))  # keep it where your results are, in the same transaction


if __name__ == "__main__":
    main(Path(sys.argv[1]))
