"""A stored table continued elsewhere: a Delta log of its own whose files are the origin's.

    origin  tables/7f-1/   _delta_log   part-a  part-b                      stays as it is
                                          ▲       ▲
    clone   tmp/tables/7f-1/ _delta_log ──┴───────┘   add {"path": "/srv/lake/tables/7f-1/part-a"}
                             part-c                   what was written since

No row is copied.  A clone stands at the position of the version that it was made of, so a unit of steps runs on it as
it would on the origin (`sink/delta/apply.py`).  Source: the Delta protocol document, "Add File" (absolute paths).
"""

import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import obstore

from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import DataFile, TableSnapshot
from tidegate.sink.delta.position import position, progress

__all__ = ["Scratch", "clone"]


class Scratch:
    """Directories for clones, made when they are asked for: below `home`, or temporary ones of this machine."""

    def __init__(self, home: str | None = None) -> None:
        self._home = home
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._places: list[str] = []

    def place(self) -> str:
        """Return a new, empty place."""
        if self._home is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="tidegate-live-", ignore_cleanup_errors=True)
        home = self._temporary.name if self._temporary else str(self._home).rstrip("/")
        self._places.append(f"{home}/{uuid.uuid4().hex}")
        return self._places[-1]

    def close(self) -> None:
        """Remove every place."""
        for place in self._places:
            if "://" in place:
                where = deltalog.store(place)
                for batch in obstore.list(where):
                    obstore.delete(where, [entry["path"] for entry in batch])
            else:
                shutil.rmtree(place, ignore_errors=True)
        self._places = []
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


def clone(origin: TableSnapshot, uri: str, feed: str) -> None:
    """Make a table at `uri` that holds the rows of `origin` and stands at its position."""
    base = origin.uri if "://" in origin.uri else str(Path(origin.uri).resolve())
    adds = [
        deltalog.add(f"{base}/{file.path}", file.size_bytes, _stats(file), partition=file.partition)
        for file in origin.files()
    ]
    deltalog.create(
        uri,
        origin.fields,
        [*progress(feed, position(origin, feed)), *adds],
        metadata={"feed": feed, "clone": origin.uri, "version": origin.version},
        partition_columns=origin.partition_columns,
        configuration=origin.configuration,
    )


def _stats(file: DataFile) -> Mapping[str, Any]:
    """The bounds that JSON holds as they are; the others only spare reading."""
    both = {
        name for name, low in file.lows.items() if type(low) in (int, str) and type(file.highs.get(name)) is type(low)
    }
    lows, highs = ({name: bounds[name] for name in both} for bounds in (file.lows, file.highs))
    return {"numRecords": file.rows, "minValues": lows, "maxValues": highs}
