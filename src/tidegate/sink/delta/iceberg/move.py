"""The way from the newest projection of a table to a version: which files came, which went.

metadata of v3 ──commits 4, 5, 6 of the log──► files that come, files that go, the table if its columns may differ
nothing        ──the table at version 6──────► all of its files come
"""

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

from tidegate.model.errors import SinkError
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, TableDescription, TableSnapshot
from tidegate.objectstore.storing import STORE_ERRORS
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
    table: TableSnapshot | TableDescription | None = None


def read_ahead(uri: str, version: int) -> None:
    """Begin to read what a projection from that version needs, while rows are merged; only where requests take time."""
    if "://" in uri:
        threading.Thread(target=_read_ahead, args=(uri, version), daemon=True).start()


def _read_ahead(uri: str, version: int) -> None:
    with suppress(*STORE_ERRORS):  # whoever needs it meets the error again
        metadata = read_metadata(uri, version)
        manifests = [] if metadata is None else _listed(uri, metadata)
        if len(manifests) == 1:
            get_file(uri, inside(uri, manifests[0]["manifest_path"]))


def move_to(uri: str, version: int, since: int | None, there: Collection[int] | None) -> TableMove:
    """Return the way to a version: from `since` (-1: from the beginning) if it can be gone, else from the newest
    projection among `there`, else from nothing to the table as a whole."""
    if since is not None and since < version and (move := _from(uri, since, version)) is not None:
        return move
    below = (one for one in (projected(uri) if there is None else there) if one < version)
    found = (_from(uri, one, version) for one in sorted(below, reverse=True))
    return next((move for move in found if move is not None), None) or _whole(uri, version)


def _from(uri: str, at: int, version: int) -> TableMove | None:
    """The way from an earlier version; None if it has no metadata of ours, or the log between is long or gone."""
    metadata = read_metadata(uri, at) if at >= 0 else None
    if version - at > COMMITS_MAX or (metadata is None and at >= 0):
        return None
    reads: list[Callable[[], Any]] = [partial(deltalog.actions, uri, number) for number in range(at + 1, version + 1)]
    if metadata is not None:
        reads.append(partial(_listed, uri, metadata))
    found = each(uri, lambda read: read(), reads)
    commits, listed = found[: version - at], found[version - at :]
    if not all(commits):
        return None
    described = [TableDescription.of(one) for actions in commits for one in actions if "metaData" in one]
    move = TableMove(
        metadata or fresh(described[0].table_id, location_of(uri)), table=described[-1] if described else None
    )
    move.manifests = [one for manifests in listed for one in manifests if is_live(one)]
    for action in chain.from_iterable(commits):
        _take(move, uri, action)
    return move


def _listed(uri: str, metadata: Metadata) -> list[dict[str, Any]]:
    """The manifests of the snapshot that the metadata shows."""
    snapshot = current(metadata)
    assert snapshot is not None, "what was written here has a snapshot"
    return decode_list(get_file(uri, inside(uri, snapshot["manifest-list"])))


def _take(move: TableMove, uri: str, action: Action) -> None:
    """Take up what a commit adds or removes."""
    match action:
        case {"add": added}:
            move.come[address_of(uri, unquote(added["path"]))] = _told(added)
        case {"remove": removed}:
            path = address_of(uri, unquote(removed["path"]))
            if move.come.pop(path, None) is None:
                move.go.add(path)


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
    table = deltalog.load(uri, version)
    if table is None:
        raise SinkError(f"{uri}: there is no table to be seen as an Iceberg table")
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
