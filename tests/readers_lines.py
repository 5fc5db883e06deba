"""How a process of readers is asked: one JSON line in, one JSON line out.

    {"read": READER, "place": …}                        ► {"arrow": FILE}           a table by its place
    {"read": READER, "catalog": {…}, "tables": […]}     ► {"arrow": FILES}          tables of one session of a catalog
    {"list": READER, "catalog": {…}}                    ► {"names": ["shop.orders", …]}
    {"run": READER, "blocks": […]}                      ► {"arrow": [{NAME: FILE}, …]}   the variables NAMED of each
    anything that fails                                 ► {"error": "Type: message"}

Each table comes as an Arrow IPC file, which the caller deletes.  Blocks are Python, run one after the other.
"""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import ipc

NUMBERS: Final = itertools.count()
NAMED: Final = ("orders", "customers")
"""Tables that a block may leave behind."""
Request = dict[str, Any]


def written(table: pa.Table, home: Path) -> str:
    """A file with the rows of a table."""
    path = home / f"{next(NUMBERS)}.arrow"
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return str(path)


def _arrow(found: Any) -> pa.Table:
    """The rows of a frame of Arrow, Spark, Polars or pandas."""
    if isinstance(found, pa.Table):
        return found
    found = found.collect() if type(found).__name__ == "LazyFrame" else found
    ways = (getattr(found, name, None) for name in ("toArrow", "to_arrow"))
    way = next(filter(None, ways), lambda: pa.Table.from_pandas(found, preserve_index=False))
    return way()


def ran(blocks: list[str], names: dict[str, Any], home: Path) -> dict[str, Any]:
    """What blocks leave behind that know `names` and each other."""
    told = []
    for block in blocks:
        for name in NAMED:
            names.pop(name, None)
        exec(block, names)
        told.append({name: written(_arrow(names[name]), home) for name in NAMED if name in names})
    return {"arrow": told}


def serve(answer: Callable[[Request, Path], dict[str, Any]]) -> None:
    """Answer until there are no more lines; files lie in the directory that the first word of the command names."""
    told, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            found = answer(json.loads(line), Path(sys.argv[1]))
        except Exception as error:  # noqa: BLE001
            found = {"error": f"{type(error).__name__}: {error}"}
        told.write(json.dumps(found) + "\n")
        told.flush()
