"""From which version to which a Delta table holds each of its files, and the removal of files whose time is over.

    version        3        4        5        6        7        head
    a.parquet      add ─────────────────────► remove              VersionSpan(3, 6)
    b.parquet                        add ───────────────────►     VersionSpan(5)
    c.parquet      in the directory, in no commit                 an orphan: an attempt that died, or one that runs

A `Lifespans` reads each commit once and goes on from there.  Who decides what is still needed is not here.
The log itself is cut at a checkpoint: commits below it are what nobody can read any more.

Source: the Delta protocol document, "Actions", "Checkpoints", "Metadata Cleanup".
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import obstore

from tidegate.objectstore.deltalog import load
from tidegate.objectstore.failpoint import reach
from tidegate.objectstore.stores import store

LOG: Final = "_delta_log/"
LOG_FILE: Final = re.compile(r"_delta_log/(\d{20})\.(json|checkpoint\.parquet|checkpoint\..*\.parquet)")
DELETE_AT_ONCE: Final = 500
DELETIONS_MAX: Final = 10_000
"""Of one sweep or cut; the rest comes with the next, so that none of them takes minutes."""


class VersionSpan(NamedTuple):
    """The versions in which a data file is part of its table: added <= version < removed."""

    added: int
    removed: int | None = None
    removed_ms: int = 0


class StoredFile(NamedTuple):
    """A file as the store lists it."""

    path: str
    size_bytes: int
    written_ms: int


class Swept(NamedTuple):
    """What a sweep deleted, and how many files it will look at again because their grace is not over."""

    files: int = 0
    size_bytes: int = 0
    waiting: int = 0


class Lifespans:
    """The files of one table since a version, kept up with its log."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.version = -1
        self.spans: dict[str, VersionSpan] = {}

    def advance(self, first: int, commits_max: int) -> bool:
        """Read on, from version `first` when nothing was read yet; True if that reached the end of the log."""
        if self.version < 0:
            snapshot = load(self.uri, first)
            if snapshot is None:
                return False
            self.spans = {file.path: VersionSpan(first) for file in snapshot.files()}
            self.version = first
        for _ in range(commits_max):
            try:
                body = obstore.get(store(self.uri), f"{LOG}{self.version + 1:020d}.json").bytes().to_bytes()
            except FileNotFoundError:
                return True
            self.version += 1
            for line in body.splitlines():
                self._take(json.loads(line))
        return False

    def _take(self, action: dict[str, Any]) -> None:
        match action:
            case {"add": added}:
                path = unquote(added["path"])
                self.spans[path] = VersionSpan(self.spans[path].added if path in self.spans else self.version)
            case {"remove": removed}:
                path = unquote(removed["path"])
                since = self.spans.get(path, VersionSpan(self.version)).added
                self.spans[path] = VersionSpan(since, self.version, removed.get("deletionTimestamp") or 0)


def stored_files(uri: str, prefix: str | None = None) -> list[StoredFile]:
    """Return every file below `uri`, the log included."""
    return [
        StoredFile(entry["path"], entry["size"], int(entry["last_modified"].timestamp() * 1000))
        for batch in obstore.list(store(uri), prefix)
        for entry in batch
    ]


def sweep(
    lifespans: Lifespans,
    files: Sequence[StoredFile],
    needed: Callable[[VersionSpan], bool],
    *,
    removed_before_ms: int,
    orphans_before_ms: int,
    dry_run: bool = False,
) -> Swept:
    """Delete the data files that no needed version holds; `files` were listed before `lifespans` was brought up."""
    over: list[StoredFile] = []
    waiting = 0
    for file in files:
        if file.path.startswith(LOG):
            continue
        span = lifespans.spans.get(file.path)
        if span is not None and (span.removed is None or needed(span)):
            continue
        since_ms, limit_ms = (
            (file.written_ms, orphans_before_ms) if span is None else (span.removed_ms, removed_before_ms)
        )
        if since_ms > limit_ms:
            waiting += 1
        else:
            over.append(file)
    if not dry_run:
        waiting += len(over[DELETIONS_MAX:])
        over = over[:DELETIONS_MAX]
        delete(lifespans.uri, [file.path for file in over])
        for file in over:
            lifespans.spans.pop(file.path, None)
    return Swept(len(over), sum(file.size_bytes for file in over), waiting)


def cut_log(
    uri: str, files: Sequence[StoredFile], lowest: int, *, written_before_ms: int, dry_run: bool = False
) -> int:
    """Delete the log below the last checkpoint from which version `lowest` can be read; give the number of files.

    That checkpoint was written at or before `written_before_ms`, so readers that began with an older one are done."""
    found = [(int(match[1]), file) for file in files if (match := LOG_FILE.fullmatch(file.path))]
    checkpoints = [
        version
        for version, file in found
        if "checkpoint" in file.path and version <= lowest and file.written_ms <= written_before_ms
    ]
    if not checkpoints:
        return 0
    below = sorted((version, file.path) for version, file in found if version < max(checkpoints))
    if below and not dry_run:
        reach("upkeep/before-cut")
        below = below[:DELETIONS_MAX]
        delete(uri, [path for _, path in below])
    return len(below)


def delete(uri: str, paths: Sequence[str]) -> None:
    """Delete files in order, a batch at a time; one that is gone already is as good."""
    for batch in _batches(paths):
        reach("upkeep/before-delete")
        try:
            obstore.delete(store(uri), batch)
        except FileNotFoundError:
            for path in batch:
                _delete_one(uri, path)


def _delete_one(uri: str, path: str) -> None:
    try:
        obstore.delete(store(uri), path)
    except FileNotFoundError:
        return


def _batches(paths: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(paths), DELETE_AT_ONCE):
        yield list(paths[at : at + DELETE_AT_ONCE])
