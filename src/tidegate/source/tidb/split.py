"""What a task lands of a change log: the changes of a piece as texts, into files of the changelog.

    piece ─► LogChanges: chunks of batches ─► texts ─► row groups ─► files that the driver commits

A row has no message; `seq` is its number in its chunk.  So rows of a table keep their order: transactions one after the
other, and in each of them deletes first, updates before inserts.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from tidegate.changelog.columns import landed_part
from tidegate.changelog.files import RowFiles
from tidegate.changelog.report import LandedFile, TableRows
from tidegate.model.table import TableName
from tidegate.source.tidb.changes import LogChanges
from tidegate.source.tidb.splits import LogSplit
from tidegate.source.tidb.tables import name_of

__all__ = ["FLUSH_BYTES", "SplitReport", "land_split"]

FLUSH_BYTES: Final = 32 << 20


class SplitReport(NamedTuple):
    """What a task wrote; `corrupt` rows landed though their checksum does not fit, `singly` were mounted one by one."""

    files: tuple[LandedFile, ...]
    tables: tuple[TableRows, ...]
    corrupt: int
    singly: int


def land_split(changelog: str, log: LogChanges, piece: LogSplit) -> SplitReport:
    """Write the rows of a piece to files of the changelog at that URI; `log` says how rows are read, whatever its range
    and tables are. Raises what reading, mounting and writing do."""
    files, corrupt, singly = RowFiles(changelog, flush_bytes=FLUSH_BYTES, messages=piece.rows), 0, 0
    changes = replace(log, after=piece.low, upto=piece.high, versions=piece.tables)
    for chunk in changes.in_order(list(map(name_of, piece.tables)), piece.low, piece.high):
        files.add([(TableName(part.batch.schema, part.batch.table), landed_part(part)) for part in chunk.parts])
        corrupt += chunk.corrupt
        singly += chunk.roads.get("mount/rows", 0)
    return SplitReport(files.close(), files.counts(), corrupt, singly)
