"""Canal's words for TiDB's DDL actions.

    CREATE    create table                     RENAME    rename table, rename tables
    ERASE     drop table                       TRUNCATE  truncate table
    CINDEX    add index, foreign key, primary key        DINDEX    drop of those
    ALTER     columns, defaults, comments, charsets of tables, partitions, index names and visibility, several at once
    QUERY     everything else: databases, views, recover table, exchange partition, TTL, sequences, …

CREATE TABLES, which TiDB's tools send for many tables at once, becomes one event a table but keeps its action, and so
arrives as QUERY.

Source: TiCDC's canal encoder; recordings.
"""

from collections.abc import Mapping
from typing import Final

QUERY: Final = "QUERY"

_WORDS: Final[Mapping[str, tuple[int, ...]]] = {
    "CREATE": (3,),
    "RENAME": (14, 47),
    "ERASE": (4,),
    "TRUNCATE": (11,),
    "CINDEX": (7, 9, 32),
    "DINDEX": (8, 10, 33),
    "ALTER": (5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72),
}
_BY_ACTION: Final = {action: word for word, actions in _WORDS.items() for action in actions}


def ddl_type(action: int) -> str:
    """Canal's word for a TiDB action code."""
    return _BY_ACTION.get(action, QUERY)
