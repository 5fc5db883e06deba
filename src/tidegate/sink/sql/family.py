"""Tables that foreign keys tie together: one shard writes a family, in commit order, so that no reader of the replica
sees a row before the one that it points to, whatever is written side by side.

    orders.customer ─► customers ◄─ visits.customer        one family, named after the first of them
    nodes.parent ─► nodes                                  a family of one: its rows are not dealt to several shards

The keys are asked of the target, where they stand after each DDL.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tidegate.model.table import TableName
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import TargetSession

TableKey: TypeAlias = tuple[str, str]


def families(edges: Iterable[tuple[TableKey, TableKey]]) -> Mapping[TableKey, TableKey]:
    """Return the name of its family for each table that a foreign key comes from or leads to."""
    heads: dict[TableKey, TableKey] = {}
    for one, other in edges:
        first, second = sorted((heads.setdefault(one, one), heads.setdefault(other, other)))
        heads |= {table: first for table, head in heads.items() if head == second}
    return heads


def families_of(session: TargetSession) -> Mapping[TableKey, TableKey]:
    """Return the families of the target's tables."""
    rows = session.ask(sent.FOREIGN_KEYS)
    return families((TableName(row[0], row[1]).key, TableName(row[2], row[3]).key) for row in rows)
