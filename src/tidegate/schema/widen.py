"""Joining what several messages tell of a table whose DDL was never seen.

    layout A  id, name          ─┐
    layout B  id, name, email   ─┴►  id, name, email      a column stays once it was seen; NULL where a row lacks it

A handle-only message adds nothing; a key, once known, stays.
"""

from collections.abc import Sequence

import msgspec

from tidegate.model.table import TableInfo

__all__ = ["merge_inferred"]


def merge_inferred(tables: Sequence[TableInfo]) -> TableInfo:
    """Return the first table with the columns that later ones have and it has not; names compare without case."""
    merged, *others = tables
    for other in others:
        known = {column.name.lower() for column in merged.columns}
        strangers = [column for column in other.columns if column.name.lower() not in known]
        added = tuple(
            msgspec.structs.replace(column, id=merged.max_column_id + nth, nullable=True)
            for nth, column in enumerate(strangers, 1)
        )
        merged = msgspec.structs.replace(
            merged,
            columns=merged.columns + added,
            max_column_id=merged.max_column_id + len(added),
            indexes=merged.indexes or other.indexes,
        )
    return merged
