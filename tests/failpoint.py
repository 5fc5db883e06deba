"""The places where a process may be made to die, and how a test arms them.

    tidegate.objectstore.failpoint   reach(place), in the code of source and sink; the environment variable
    this module                     every place by name, and `armed` for tests in one process

A place stands where the state on disk differs from the one before it, or where only memory does: a crash at each of
them, and a start right after, must end in the same lake.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tidegate.objectstore import failpoint

__all__ = ["PLACES", "TOPIC_PLACES", "armed"]

PLACES: Final[Mapping[str, str]] = {
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

TOPIC_PLACES: Final[Mapping[str, str]] = {
    "topic/rows-queued": "a task's rows are with its producer, perhaps with the broker",
    "topic/rows-written": "all rows of a stretch are acknowledged, its DDL is not sent",
    "topic/ddl-sent": "a DDL is acknowledged, its resolved ts is not sent",
    "topic/resolved-sent": "a stretch is resolved in every partition, the checkpoint is the one before",
    "topic/advanced": "the checkpoint is saved, nobody was told",
}
"""The places of a feed from a change log into topics."""


@contextmanager
def armed(deeds: Mapping[str, Callable[[], None]]) -> Iterator[None]:
    """`reach(place)` calls what `deeds` has for it, in this process, until the block ends."""
    unknown = sorted(deeds.keys() - PLACES.keys() - TOPIC_PLACES.keys())
    assert not unknown, unknown
    before = failpoint.arm(deeds)
    try:
        yield
    finally:
        failpoint.arm(before)
