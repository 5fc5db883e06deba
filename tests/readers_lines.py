"""How a process of readers is asked: one JSON line in, one JSON line out.

    {"read": READER, "place": …}                        ► {"arrow": FILE}           a table by its place
    {"read": READER, "catalog": {…}, "tables": […]}     ► {"arrow": FILES}          tables of one session of a catalog
    {"list": READER, "catalog": {…}}                    ► {"names": ["shop.orders", …]}
    anything that fails                                 ► {"error": "Type: message"}

Each table comes as an Arrow IPC file, which the caller deletes.
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
Request = dict[str, Any]


def written(table: pa.Table, home: Path) -> str:
    """A file with the rows of a table."""
    path = home / f"{next(NUMBERS)}.arrow"
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return str(path)


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
