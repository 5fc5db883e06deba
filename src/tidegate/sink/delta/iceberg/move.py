"""The way from the newest projection of a table to a version: which files came, which went.

metadata of v3 ──commits 4, 5, 6 of the log──► files that come, files that go, the table if its columns may differ
nothing        ──the table at version 6──────► all of its files come
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from tidegate.model.errors import SinkError
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, TableSnapshot
from tidegate.sink.delta.iceberg.files import address_of, each, get_file, inside, location_of, projected, read_metadata
from tidegate.sink.delta.iceberg.manifest import decode_list, is_live
from tidegate.sink.delta.iceberg.metadata import Metadata, current, fresh

COMMITS_MAX: Final = 200
"""Commits of the log that are read one by one; beyond, the table as a whole is read sooner."""


@dataclass(slots=True)
class TableMove:
    """Leads from metadata to the files of a version: those that come by their address, with what the log tells of them,
    and those that go. `manifests` are the live ones before; `table` is there where columns may have changed."""

    metadata: Metadata
    manifests: Sequence[Mapping[str, Any]] = ()
    come: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    go: set[str] = field(default_factory=set)
    table: TableSnapshot | None = None


def move_to(uri: str, version: int, since: int | None, there: Collection[int] | None) -> TableMove:
    """Return the way to a version: from `since` if that has metadata, else from the newest below among `there`."""
    return _since(uri, version, since, there) or _whole(uri, version)


def _since(uri: str, version: int, since: int | None, there: Collection[int] | None) -> TableMove | None:
    """The way from the newest projection below; None if there is none, or the log no longer tells it."""
    at, metadata = _newest(uri, version, since, there)
    if metadata is None or version - at > COMMITS_MAX:
        return None
    snapshot = current(metadata)
    assert snapshot is not None, "what was written here has a snapshot"
    listed, *commits = each(
        uri,
        lambda number: (
            decode_list(get_file(uri, inside(uri, snapshot["manifest-list"])))
            if number == at
            else deltalog.actions(uri, number)
        ),
        range(at, version + 1),
    )
    move = TableMove(metadata, [one for one in listed if is_live(one)])
    for actions in commits:
        _take(move, uri, actions, version)
    return move if all(commits) else None


def _newest(uri: str, version: int, since: int | None, there: Collection[int] | None) -> tuple[int, Metadata | None]:
    """The newest version below that has metadata of ours, and that; `since` is tried before the directory is read."""
    if since is not None and since < version:
        metadata = read_metadata(uri, since) if since >= 0 else None
        if metadata is not None or since < 0:
            return since, metadata
    below = (one for one in (projected(uri) if there is None else there) if one < version)
    found = ((one, read_metadata(uri, one)) for one in sorted(below, reverse=True))
    return next((one for one in found if one[1] is not None), (-1, None))


def _take(move: TableMove, uri: str, actions: Sequence[Action], version: int) -> None:
    """Take up a commit of the log."""
    for action in actions:
        match action:
            case {"add": added}:
                move.come[address_of(uri, unquote(added["path"]))] = _told(added)
            case {"remove": removed}:
                path = address_of(uri, unquote(removed["path"]))
                if move.come.pop(path, None) is None:
                    move.go.add(path)
            case {"metaData": _}:
                move.table = move.table or _loaded(uri, version)


def _told(added: Mapping[str, Any]) -> dict[str, Any]:
    stats = json.loads(added.get("stats") or "{}")
    return {
        "rows": stats.get("numRecords", 0),
        "size_bytes": added["size"],
        "lows": stats.get("minValues", {}),
        "highs": stats.get("maxValues", {}),
        "nulls": stats.get("nullCount", {}),
    }


def _whole(uri: str, version: int) -> TableMove:
    """The way from nothing."""
    table = _loaded(uri, version)
    come: dict[str, Mapping[str, Any]] = {
        address_of(uri, file.path): {
            "rows": file.rows,
            "size_bytes": file.size_bytes,
            "lows": file.lows,
            "highs": file.highs,
            "nulls": {},
        }
        for file in table.files()
    }
    return TableMove(fresh(table.table_id, location_of(uri)), come=come, table=table)


def _loaded(uri: str, version: int) -> TableSnapshot:
    table = deltalog.load(uri, version)
    if table is None:
        raise SinkError(f"{uri}: there is no table to be seen as an Iceberg table")
    return table
