"""Row changes of any source as the tables take them: rows of LANDED_SCHEMA, texts of one table in commit order.

ChangeSlice   what has landed is read as it lies there
Changes       chunk ─► part: typed columns ─► texts ─┐
                    └► part: another layout          ─┴─► rows in the chunk's order
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.changelog.columns import LANDED_SCHEMA, landed_part
from tidegate.feed.change import Chunk
from tidegate.feed.ports import Changes
from tidegate.model.table import TableName

__all__ = ["AsLanded"]


@dataclass(frozen=True, slots=True)
class AsLanded:
    """Reads changes that have not landed as if they had; picklable."""

    changes: Changes

    def read(self, name: TableName, after: int, upto: int) -> pa.Table:
        """Return the row changes of a table with after < commit_ts <= upto, in commit order."""
        chunks = self.changes.batches(name, after, upto)
        tables = [LANDED_SCHEMA.empty_table(), *(table for chunk in chunks for table in _rows(chunk))]
        return pa.concat_tables(tables).unify_dictionaries()


def _rows(chunk: Chunk) -> Iterator[pa.Table]:
    parts = [landed_part(part) for part in chunk.parts]
    if len(parts) == 1:
        yield parts[0]
        return
    rows = pa.concat_tables(parts).unify_dictionaries()
    yield rows.take(pa.array(np.argsort(rows.column("seq").to_numpy())))
