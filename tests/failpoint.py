"""The places where a process may be made to die, and how a test arms them.

    tidegate.objectstore.failpoint   failpoint(name), in the code of source and sink; the environment variable
    this module                     every place by name, and `armed` for tests in one process

A place stands where the state on disk differs from the one before it, or where only memory does: a crash at each of
them, and a start right after, must end in the same lake.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tidegate.objectstore import failpoint

__all__ = [
    "ALL",
    "CAPTURE_FAILPOINTS",
    "DDL_FAILPOINTS",
    "FEED_FAILPOINTS",
    "FILES_FAILPOINTS",
    "LOAD_FAILPOINTS",
    "METRICS_FAILPOINTS",
    "POINT_FAILPOINTS",
    "REDIS_FAILPOINTS",
    "REFRESH_FAILPOINTS",
    "RELOAD_FAILPOINTS",
    "SEARCH_FAILPOINTS",
    "SERVER_FAILPOINTS",
    "SQL_FAILPOINTS",
    "STORAGE_FAILPOINTS",
    "TOPIC_FAILPOINTS",
    "VALUE_FAILPOINTS",
    "armed",
]

CAPTURE_FAILPOINTS: Final[Mapping[str, str]] = {
    "capture/held": "PD holds garbage collection for a new log, nothing is read",
    "capture/origin": "the directory of a new log tells its cluster, and has no base",
    "capture/base": "the definitions at the begin lie there, no rows",
    "capture/before-segment": "rows are complete, their segment is not written",
    "capture/after-segment": "a segment is written, the hold on garbage collection is below it",
    "capture/moved": "the hold on garbage collection has moved, the log is not trimmed",
}
FEED_FAILPOINTS: Final[Mapping[str, str]] = {
    "start/recovered": "the lake's newest snapshot is read",
    "landing/before-claim": "the changelog exists, the new epoch does not",
    "landing/after-claim": "the epoch is raised, nothing is landed under it",
    "landing/before-file": "messages are decoded, their file is not written",
    "landing/after-file": "a file lies in the changelog, no commit names it",
    "landing/before-commit": "all files of a batch are there, the driver has not committed",
    "landing/after-commit": "the batch is durable, nobody was told",
    "log/before-checkpoint": "a commit is done whose log is to be folded",
    "log/after-checkpoint": "the log is folded",
    "round/planned": "a round is planned, no worker has it",
    "round/applied": "all tables are ahead of the published snapshot",
    "apply/before-create": "a table is not there yet",
    "apply/after-create": "it is there, empty",
    "apply/rows-read": "changes are in memory",
    "apply/rows-written": "data files of a merge lie there, no commit names them",
    "apply/rows-committed": "a table is ahead by its rows",
    "apply/before-alter": "rows before a DDL are in, its change of columns is not",
    "apply/before-trim": "rows before a DDL are in, partitions not yet dropped",
    "apply/exchange-half": "one of two tables has its partner's rows, the other does not",
    "apply/ddl-written": "rewritten files of a DDL lie there, no commit names them",
    "apply/ddl-committed": "a table is ahead by a DDL",
    "iceberg/before-manifests": "a table is ahead, its Iceberg metadata is not",
    "iceberg/before-metadata": "manifests lie there, no metadata names them",
    "iceberg/after-metadata": "a version has its Iceberg metadata before it is published",
    "iceberg/before-names": "a round is published, the catalog names the one before",
    "publish/before-schema": "all is applied, nothing is published",
    "publish/before-snapshot": "the schema is written, no snapshot names it",
    "publish/after-snapshot": "the round is published, nobody was told",
    "trim/before-commit": "landed rows are over, or folded into a file that no commit names",
    "trim/after-commit": "the changelog is shorter, its old files still lie there",
    "compact/before-commit": "a table's small files are one that no commit names",
    "compact/after-commit": "a table is ahead by a compaction, nobody was told",
    "upkeep/snapshot-copied": "a snapshot is on both shelves, the published and the forgotten",
    "upkeep/before-delete": "a batch of files is over, some before it are gone",
    "upkeep/before-cut": "files of no snapshot are gone, the log that named them is not",
    "upkeep/table-half": "a dropped table has no log any more, its rows still lie there",
    "upkeep/before-adopt": "a pass of upkeep is over, the feed goes by what was before",
}
"""Place of a feed into a lake -> what is true there."""

LOAD_FAILPOINTS: Final[Mapping[str, str]] = {
    "load/planned": "S and the chunks are known, nothing is written down",
    "load/plan-kept": "they are written down, no row is read",
    "load/rows-read": "rows of a load's chunks are in memory",
    "load/files-written": "files with rows of a load lie there, no commit names them",
}
"""The places of a feed that begins with a full load, beside those of its sink."""

RELOAD_FAILPOINTS: Final[Mapping[str, str]] = {
    "reload/planned": "S' and the chunks of a reload are known, nothing is written down",
    "reload/plan-kept": "they are written down, the feed goes on up to S'",
    "reload/parked": "its tables are published as parked ones without a name",
    "reload/loaded": "all chunks are in, nobody was told",
    "reload/caught-up": "they are at the checkpoint, the tables of before have the names",
    "reload/swapped": "they have the names, the outcome is not noted",
}
"""Place of a reload into a lake -> what is true there."""

REFRESH_FAILPOINTS: Final[Mapping[str, str]] = {
    "refresh/planned": "R and the chunks of a slice are known, nothing is written down",
    "refresh/plan-kept": "they are written down, the feed goes on up to B",
    "refresh/slice-done": "the checkpoint is at R, the chunks are not noted",
    "refresh/swept": "the keys of a table that the upstream lacks are known, and not noted",
}
"""Place of rows that come again through a running feed -> what is true there."""

TOPIC_FAILPOINTS: Final[Mapping[str, str]] = {
    "topic/rows-queued": "a task's rows are with its producer, perhaps with the broker",
    "topic/rows-written": "all rows of a stretch are acknowledged, its DDL is not sent",
    "topic/ddl-sent": "a DDL is acknowledged, its resolved ts is not sent",
    "topic/resolved-sent": "a stretch is resolved in every partition, the checkpoint is the one before",
    "topic/advanced": "the checkpoint is saved, nobody was told",
}
"""The places of a feed from a change log into topics."""

SERVER_FAILPOINTS: Final[Mapping[str, str]] = {
    "server/create": "a changefeed is checked, nothing is kept of it",
    "server/created": "it is kept, and does not run",
    "server/pause": "somebody wants a pause, the record says that it runs",
    "server/resume": "somebody wants it to go on, the record says that it is stopped",
    "server/remove": "somebody wants it removed, the record says that it runs",
    "server/forgot-checkpoint": "its checkpoint is gone, its record says that it is removed",
    "server/took-record": "a new owner has written some records anew, and others not yet",
}
"""The places of a server amid its verbs."""
SQL_FAILPOINTS: Final[Mapping[str, str]] = {
    "sql/before-statements": "a transaction of rows is not begun, or is without some of its statements",
    "sql/before-commit": "all of its statements are done, none is committed",
    "sql/after-commit": "it is committed, its task does not know",
    "sql/raised": "the epoch of all shards is raised, nobody was told",
    "sql/laid-out": "shards are numbered anew, nobody was told",
    "sql/before-advance": "all of a round is committed, the checkpoint is the one before",
    "sql/advanced": "the checkpoint is saved, nobody was told",
}
"""The places of a feed into a database."""
POINT_FAILPOINTS: Final[Mapping[str, str]] = {
    "sql/point-written": "a sync point and its checkpoint are written, neither is committed",
}
"""Those of one that has sync points."""
DDL_FAILPOINTS: Final[Mapping[str, str]] = {
    "ddl/before-plan": "the tables are looked at, the ledger of a database has nothing of a DDL",
    "ddl/noted": "it has a DDL as skipped or refused, nobody was told",
    "ddl/planned": "the ledger of a database has a DDL as planned, with the shape of its tables",
    "ddl/running": "it has it as running, the statement is not sent",
    "ddl/executed": "the statement is done, the ledger has it as running",
    "ddl/done": "the ledger has it as done, nobody was told",
}
"""The places of a DDL on its way into a database."""
VALUE_FAILPOINTS: Final[Mapping[str, str]] = {
    "ddl/kept": "old values of a table are kept beside it, the statement is not sent",
    "ddl/values-written": "some new values are written behind the statement, they are not committed",
    "ddl/amid-values": "some are committed, others are not",
}
"""Those of one whose values the database would compute otherwise."""
REDIS_FAILPOINTS: Final[Mapping[str, str]] = {
    "redis/before-write": "a batch of rows is read, Redis has none of it",
    "redis/after-write": "Redis has it, its task does not know",
    "redis/amid-ddl": "some keys of a table are moved, others are not",
    "redis/ddl-done": "all keys are moved, the checkpoint is the one before",
    "redis/before-advance": "all of a round is in Redis, the checkpoint is the one before",
}
"""The places of a feed into a Redis."""
SEARCH_FAILPOINTS: Final[Mapping[str, str]] = {
    "search/before-write": "a batch of rows is read, its index has none of it",
    "search/after-write": "the index has it, its task does not know",
    "search/amid-fill": "a new index has some of the rows that it begins with",
    "search/ddl-done": "it has all of them, and nobody reads it",
    "search/before-advance": "all of a round is in its indexes, the checkpoint is the one before",
    "search/published": "the checkpoint names the new indexes, aliases name the old ones",
}
"""The places of a feed into search indexes."""
STORAGE_FAILPOINTS: Final[Mapping[str, str]] = {
    "storage/file-written": "a data file lies there, no index names it",
    "storage/before-save": "all files of a round lie there, the checkpoint is the one before",
    "storage/saved": "the checkpoint is saved, no index names the files of its round",
    "storage/index-written": "an index names a file of a round, others of it perhaps not",
    "storage/schema-written": "a schema file tells a DDL of a round, others of it perhaps not",
    "storage/published": "the round is published, nobody was told",
}
"""The places of a feed into files."""
FILES_FAILPOINTS: Final[Mapping[str, str]] = {
    "files/listed": "a checkpoint and the list behind it are known, nothing is read",
    "files/read": "the rows of a file are in memory, its stream's other files are not",
}
"""The places of a feed from files, beside those of every landing."""
METRICS_FAILPOINTS: Final[Mapping[str, str]] = {
    "metrics/counted": "a task has counted the rows of a table, nobody knows",
    "metrics/before-save": "numbers and checkpoint of a round are made, those before it are saved",
    "metrics/saved": "they are saved, what is shown is the round before",
    "metrics/alert-sent": "a receiver has an alert that the checkpoint says is to be sent",
}
"""The places of a feed into numbers."""
ALL: Final = {
    **CAPTURE_FAILPOINTS,
    **FEED_FAILPOINTS,
    **LOAD_FAILPOINTS,
    **RELOAD_FAILPOINTS,
    **REFRESH_FAILPOINTS,
    **TOPIC_FAILPOINTS,
    **SERVER_FAILPOINTS,
    **SQL_FAILPOINTS,
    **POINT_FAILPOINTS,
    **DDL_FAILPOINTS,
    **VALUE_FAILPOINTS,
    **REDIS_FAILPOINTS,
    **SEARCH_FAILPOINTS,
    **STORAGE_FAILPOINTS,
    **FILES_FAILPOINTS,
    **METRICS_FAILPOINTS,
}


@contextmanager
def armed(deeds: Mapping[str, Callable[[], None]]) -> Iterator[None]:
    """`failpoint(name)` calls what `deeds` has for it, in this process, until the block ends."""
    unknown = sorted(deeds.keys() - ALL.keys())
    assert not unknown, unknown
    before = failpoint.arm(deeds)
    try:
        yield
    finally:
        failpoint.arm(before)
