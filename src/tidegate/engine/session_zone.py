"""DDLs whose values depend on the time zone of the session that ran them. Pure.

    MODIFY ts DATETIME, of a TIMESTAMP                    stored moments become the wall clock of the session, and back
    ADD COLUMN ts TIMESTAMP DEFAULT '2024-01-01'          a text that the session means on its own clocks
    ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP      the session's clock, for rows that were there
    VALUES LESS THAN (UNIX_TIMESTAMP('2024-01-01'))       a bound that is the text of a moment

No message carries that zone; a TiDB's change log does (ToldSession of model/event.py).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.expr.cast.change import depends_on_zone
from tidegate.model.event import Ddl
from tidegate.model.mysql import MysqlType
from tidegate.model.name import qualified
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.schema.bounds import MOMENT
from tidegate.schema.effects import Effect, TableAltered, TableCreated

_NOW: Final = re.compile(r"CURRENT_TIMESTAMP|NOW|LOCALTIME|CURRENT_DATE", re.IGNORECASE)


def of_session(found: Sequence[Effect]) -> list[str]:
    """Return the columns and partitions whose values the effects of a DDL take from its session's zone, once each."""
    return list(dict.fromkeys(name for effect in found for name in _of_session(effect)))


def zone_warning(ddl: Ddl, found: Sequence[Effect]) -> str:
    """Return what a user has to know of a DDL whose session is not known; "" where nothing depends on it."""
    if ddl.told.zone or not (names := of_session(found)):
        return ""
    return (
        f"DDL of ts {ddl.commit_ts} on {qualified(ddl.schema, ddl.table)}: the values of {', '.join(names)} depend on "
        "the time zone of the session that ran it, which no message tells: it is taken to be that of `time-zone`. "
        f"Where it was another one, they differ from the upstream: {ddl.query[:500]}"
    )


def _of_session(effect: Effect) -> Iterator[str]:
    match effect:
        case TableCreated(table):
            yield from _bounds(None, table)
        case TableAltered(old, new):
            there = {column.id: column for column in old.columns}
            for column in new.columns:
                was = there.get(column.id)
                if _is_filled(column) if was is None else depends_on_zone(was.type, column.type):
                    yield column.name
            yield from _bounds(old, new)


def _is_filled(column: ColumnInfo) -> bool:
    """Whether a new column holds what the session's clocks say in rows that were there."""
    default = column.origin_default
    if not isinstance(default, str) or column.type.code not in (
        MysqlType.DATE,
        MysqlType.DATETIME,
        MysqlType.TIMESTAMP,
    ):
        return False
    is_text = _NOW.match(default) is None
    return is_text is (column.type.code is MysqlType.TIMESTAMP) and not default.startswith("0000-00-00")


def _bounds(old: TableInfo | None, new: TableInfo) -> Iterator[str]:
    if new.partition is None or (old is not None and old.partition == new.partition):
        return
    for one in new.partition.definitions:
        if any(MOMENT.search(text) for text in (*one.less_than, *(value for row in one.in_values for value in row))):
            yield f"partition {one.name}"
