"""The log of a Delta table: atomic commits at a version that the caller names, and the life spans of its files.

    _delta_log/00000000000000000007.json      one JSON action per line, written only if that version is free
      commitInfo   operation, userMetadata (our JSON: feed, position, step)
      protocol     version 0, and the one that begins column mapping
      metaData     a new schema; with column mapping names map to physical columns, so rename and drop move no data
      txn          progress numbers, kept through log checkpoints
      remove, add  data files

A schema change, the rows that it rewrites and the progress are one commit, so there is nothing in between to recover.
A commit is never rebased on another one: if the version is taken (`CommitConflict`) the caller reads again and decides.
Reading goes through delta-rs.

`Lifespans` reads each commit once and says for each file the first and last version that need it:

    version        3        4        5        6        7        head
    a.parquet      add ─────────────────────► remove              VersionSpan(3, 6)
    b.parquet                        add ───────────────────►     VersionSpan(5)
    c.parquet      in the directory, in no commit                 an orphan: of a failed attempt, or a running one

Files that no needed version holds are removed here; which versions are needed is decided by the caller.  The log itself
is cut at a checkpoint: commits below it can no longer be read by anybody.

Source: the Delta protocol document, "Actions", "Column Mapping", "Checkpoints", "Metadata Cleanup".
"""

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self, cast
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidegate.model.errors import EnvironmentFault, SinkError
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import Changed, StoredFile, VersionedFile, delete, delta_options, read_file, storing

Action = dict[str, Any]
LOGGER: Final = logging.getLogger("tidegate.deltalog")
CHECKPOINT_EVERY: Final = 20
COLUMN_MAPPING: Final = "delta.columnMapping.mode"
"""The table property by which names of columns map to other names inside Parquet files."""
ENGINE: Final = "tidegate"


class CommitConflict(SinkError):
    """The version is taken: another writer, or an earlier attempt of this one, was faster."""

    code = "CDC:ErrDeltaCommitConflict"
    remedy = (
        "Nothing: the commit is tried again on the newer version. If it lasts, another program writes to the lake; "
        "stop it."
    )


@dataclass(frozen=True, slots=True)
class DataFile:
    """One active data file; bounds by physical column name where the log has them, `partition` values as text."""

    path: str
    size_bytes: int
    rows: int
    lows: Mapping[str, Any] = field(default_factory=dict)
    highs: Mapping[str, Any] = field(default_factory=dict)
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableDescription:
    """The table's columns and properties as a metaData action has them."""

    table_id: str
    fields: tuple[Mapping[str, Any], ...]
    configuration: Mapping[str, str]

    @classmethod
    def of(cls, action: Action) -> "TableDescription":
        """Return the content of a metaData action."""
        metadata = action["metaData"]
        return cls(metadata["id"], tuple(json.loads(metadata["schemaString"])["fields"]), metadata["configuration"])


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table at one version. `fields` are the schema's fields as spelled in the log."""

    uri: str
    version: int
    table_id: str
    fields: tuple[Mapping[str, Any], ...]
    configuration: Mapping[str, str]
    partition_columns: tuple[str, ...]
    table: DeltaTable

    def txns(self, *app_ids: str) -> list[int | None]:
        """Return the last version that each application committed; None for one that never did.

        The newest commit usually has them; for others, delta-rs reads the whole log again."""
        committed = [action["txn"] for action in actions(self.uri, self.version) if "txn" in action]
        newest = {transaction["appId"]: transaction["version"] for transaction in committed}
        return [newest[name] if name in newest else self.table.transaction_version(name) for name in app_ids]

    def emptied(self) -> Self:
        """Return the table as if it had no data files, for rows that concern none of them."""
        return replace(self, table=cast("DeltaTable", _NO_FILES))

    def files(self) -> tuple[DataFile, ...]:
        """Return the active data files, in the log's order."""
        batch = pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        return tuple(
            DataFile(
                path=unquote(row["path"]),
                size_bytes=row["size_bytes"],
                rows=row["num_records"] or 0,
                lows=_under("min.", row),
                highs=_under("max.", row),
                partition=_under("partition.", row),
            )
            for row in batch
        )


class _NoFiles:
    def get_add_actions(self, *, flatten: bool) -> pa.Table:  # noqa: ARG002  as a DeltaTable has it
        return pa.table({})


_NO_FILES: Final = _NoFiles()


def _under(prefix: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def load(uri: str, version: int | None = None) -> TableSnapshot | None:
    """Return the table at `version` (the newest by default); None where there is no table."""
    try:
        table = DeltaTable(uri, version=version, storage_options=delta_options(uri))
    except TableNotFoundError:
        return None
    metadata = table.metadata()
    return TableSnapshot(
        uri=uri,
        version=table.version(),
        table_id=str(metadata.id),
        fields=tuple(json.loads(table.schema().to_json())["fields"]),
        configuration=dict(metadata.configuration),
        partition_columns=tuple(metadata.partition_columns),
        table=table,
    )


def commit(uri: str, version: int, actions: Sequence[Action], *, operation: str, metadata: Mapping[str, Any]) -> None:
    """Write `actions` as `version`, all or nothing.

    Raises CommitConflict if that version exists. `metadata` becomes the commit's userMetadata.
    """
    now_ms = int(time.time() * 1000)
    info: Action = {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": operation,
            "operationParameters": {},
            "readVersion": version - 1,
            "isBlindAppend": False,
            "engineInfo": ENGINE,
            "txnId": uuid.uuid4().hex,
            "userMetadata": json.dumps(metadata, separators=(",", ":"), ensure_ascii=False),
        },
    }
    text = "\n".join(json.dumps(action, separators=(",", ":"), ensure_ascii=False) for action in [info, *actions])
    try:
        with storing(uri):
            VersionedFile(uri, f"_delta_log/{version:020d}.json").write(text.encode())
    except Changed as changed:
        raise CommitConflict(f"{uri}: version {version} is taken") from changed
    if version and version % CHECKPOINT_EVERY == 0:
        _checkpoint(uri, version)


def _checkpoint(uri: str, version: int) -> None:
    failpoint("log/before-checkpoint")
    try:
        DeltaTable(uri, version=version, storage_options=delta_options(uri)).create_checkpoint()
    except DeltaError as failed:
        LOGGER.warning("%s: no checkpoint at version %d: %s", uri, version, failed)
    failpoint("log/after-checkpoint")


def create(
    uri: str,
    fields: Sequence[Mapping[str, Any]],
    actions: Sequence[Action] = (),
    *,
    metadata: Mapping[str, Any],
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    name: str = "",
) -> None:
    """Create an empty table as version 0, with `actions` in the same commit. Raises CommitConflict if it exists."""
    described = describe(uuid.uuid4().hex, fields, partition_columns, configuration or {}, name)
    begun = [protocol(configuration or {}), described, *actions]
    commit(uri, 0, begun, operation="CREATE TABLE", metadata=metadata)


def protocol(configuration: Mapping[str, str]) -> Action:
    """Return the protocol versions and features that a table with these properties requires."""
    features = [*(["columnMapping"] if COLUMN_MAPPING in configuration else []), "timestampNtz"]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": [*features, "appendOnly", "invariants"],
        },
    }


def describe(
    table_id: str,
    fields: Sequence[Mapping[str, Any]],
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    name: str = "",
) -> Action:
    """Return the metaData action of a schema; with column mapping when the fields carry it."""
    return {
        "metaData": {
            "id": table_id,
            "name": name or None,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(fields)}, ensure_ascii=False),
            "partitionColumns": list(partition_columns),
            "configuration": dict(configuration or {}),
            "createdTime": int(time.time() * 1000),
        },
    }


def schema_field(name: str, delta_type: object, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return one nullable field of a schema."""
    return {"name": name, "type": delta_type, "nullable": True, "metadata": dict(metadata or {})}


def add(
    path: str,
    size_bytes: int,
    stats: Mapping[str, Any],
    *,
    partition: Mapping[str, str | None] | None = None,
    data_change: bool = True,
) -> Action:
    """Return the add action of a new data file; `path` is relative to the table or absolute.

    `stats` holds numRecords and, by physical column name, minValues, maxValues, nullCount.
    """
    return {
        "add": {
            "path": _written(path),
            "partitionValues": dict(partition or {}),
            "size": size_bytes,
            "modificationTime": int(time.time() * 1000),
            "dataChange": data_change,
            "stats": json.dumps(stats, separators=(",", ":"), ensure_ascii=False),
        },
    }


def _written(path: str) -> str:
    """A path as the log spells it: a URI reference, so that blanks and percent signs of a directory survive."""
    return quote(path, safe="/:=@,;+!$&'()*~")


def remove(file: DataFile, *, data_change: bool = True) -> Action:
    """Return the remove action of a data file (its bytes stay until they are swept)."""
    return {
        "remove": {
            "path": _written(file.path),
            "deletionTimestamp": int(time.time() * 1000),
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition),
            "size": file.size_bytes,
        },
    }


def txn(app_id: str, version: int) -> Action:
    """Progress of an application, readable with `TableSnapshot.txns`."""
    return {"txn": {"appId": app_id, "version": version, "lastUpdated": int(time.time() * 1000)}}


def user_metadata(uri: str, version: int) -> dict[str, Any]:
    """Return the userMetadata of one commit; {} when it has none or the log no longer holds it."""
    for action in actions(uri, version):
        info = action.get("commitInfo")
        if info is not None:
            return dict(json.loads(info.get("userMetadata") or "{}"))
    return {}


def actions(uri: str, version: int) -> list[Action]:
    """Return the actions of one commit; none when the log no longer holds it."""
    path = f"{LOG}{version:020d}.json"
    return decode_commit(read_file(uri, path) or b"", f"{uri}/{path}")


def decode_commit(body: bytes, where: str) -> list[Action]:
    """Return the actions in a commit's file. Raises EnvironmentFault for a damaged one."""
    try:
        return [json.loads(line) for line in body.splitlines() if line.strip()]
    except ValueError as broken:
        raise EnvironmentFault(f"{where} is damaged: {broken}") from broken


LOG: Final = "_delta_log/"
LOG_FILE: Final = re.compile(r"_delta_log/(\d{20})\.(json|checkpoint\.parquet|checkpoint\..*\.parquet)")


DELETIONS_MAX: Final = 10_000
"""The most deletions of one sweep or cut, so that none takes minutes; the next one continues."""


class VersionSpan(NamedTuple):
    """The versions in which a data file is part of its table: added <= version < removed."""

    added: int
    removed: int | None = None
    removed_ms: int = 0


class Swept(NamedTuple):
    """The outcome of a sweep: files deleted, and files that the next one checks again because their grace is not
    over."""

    files: int = 0
    size_bytes: int = 0
    waiting: int = 0


class Lifespans:
    """The life spans of a table's files since a version, kept up to date with its log."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.version = -1
        self.spans: dict[str, VersionSpan] = {}

    def advance(self, first: int, commits_max: int) -> bool:
        """Read new commits, from version `first` if nothing was read yet; return True at the end of the log."""
        if self.version < 0:
            snapshot = load(self.uri, first)
            if snapshot is None:
                return False
            self.spans = {file.path: VersionSpan(first) for file in snapshot.files()}
            self.version = first
        for _ in range(commits_max):
            body = read_file(self.uri, f"{LOG}{self.version + 1:020d}.json")
            if body is None:
                return True
            self.version += 1
            for action in decode_commit(body, f"{self.uri}, version {self.version}"):
                file = action.get("add") or action.get("remove")
                if file is None:
                    continue
                path = unquote(file["path"])
                since = self.spans.get(path, VersionSpan(self.version)).added
                removed = (self.version, file.get("deletionTimestamp") or 0) if "remove" in action else ()
                self.spans[path] = VersionSpan(since, *removed)
        return False


def sweep(
    lifespans: Lifespans,
    files: Sequence[StoredFile],
    needed: Callable[[VersionSpan], bool],
    *,
    removed_before_ms: int,
    orphans_before_ms: int,
    dry_run: bool = False,
) -> Swept:
    """Delete the data files that no needed version holds; `files` were listed before `lifespans` was advanced."""
    expired: list[StoredFile] = []
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
            expired.append(file)
    if not dry_run:
        waiting += len(expired[DELETIONS_MAX:])
        expired = expired[:DELETIONS_MAX]
        delete(lifespans.uri, [file.path for file in expired])
        for file in expired:
            lifespans.spans.pop(file.path, None)
    return Swept(len(expired), sum(file.size_bytes for file in expired), waiting)


def cut_log(
    uri: str, files: Sequence[StoredFile], lowest: int, *, written_before_ms: int, dry_run: bool = False
) -> int:
    """Delete the log below the last checkpoint from which version `lowest` can be read; return the number of files.

    That checkpoint was written at or before `written_before_ms`, so readers that began with an older one are done.
    """
    log_files = [(int(match[1]), file) for file in files if (match := LOG_FILE.fullmatch(file.path))]
    checkpoints = [
        version
        for version, file in log_files
        if "checkpoint" in file.path and version <= lowest and file.written_ms <= written_before_ms
    ]
    if not checkpoints:
        return 0
    below = sorted((version, file.path) for version, file in log_files if version < max(checkpoints))
    if below and not dry_run:
        failpoint("upkeep/before-cut")
        below = below[:DELETIONS_MAX]
        delete(uri, [path for _, path in below])
    return len(below)
