"""The words of ignore-event: kinds of rows and of DDLs, as TiCDC names them.

    insert update delete          a row change                 all dml      all three
    create table .. add column    a DDL, by its ActionType     all ddl      every one
                                                               alter table  what ALTER TABLE does to a table that stays

Source: tiflow, pkg/filter (ddlWhiteListMap, alterTableSubType) and pkg/binlog-filter.
"""

import difflib
from collections.abc import Mapping
from typing import Final

from tidegate.model.event import Delete, Insert, RowChange, Update
from tidegate.model.feed_errors import EventTypeInvalid
from tidegate.model.mysql import ActionType

__all__ = ["DDL_EVENTS", "EVENTS", "ROW_EVENTS", "single_events"]

ROW_EVENTS: Final[Mapping[str, type[RowChange]]] = {"insert": Insert, "update": Update, "delete": Delete}
_A: Final = ActionType
DDL_EVENTS: Final[Mapping[str, frozenset[int]]] = {
    "create database": frozenset({_A.CREATE_SCHEMA}),
    "drop database": frozenset({_A.DROP_SCHEMA}),
    "modify schema charset and collate": frozenset({_A.MODIFY_SCHEMA_CHARSET}),
    "create table": frozenset({_A.CREATE_TABLE, _A.CREATE_TABLES}),
    "drop table": frozenset({_A.DROP_TABLE}),
    "truncate table": frozenset({_A.TRUNCATE_TABLE}),
    "rename table": frozenset({_A.RENAME_TABLE, _A.RENAME_TABLES}),
    "recover table": frozenset({_A.RECOVER_TABLE}),
    "modify table comment": frozenset({_A.MODIFY_TABLE_COMMENT}),
    "modify table charset and collate": frozenset({_A.MODIFY_TABLE_CHARSET}),
    "create view": frozenset({_A.CREATE_VIEW}),
    "drop view": frozenset({_A.DROP_VIEW}),
    "add table partition": frozenset({_A.ADD_TABLE_PARTITION}),
    "drop table partition": frozenset({_A.DROP_TABLE_PARTITION}),
    "truncate table partition": frozenset({_A.TRUNCATE_TABLE_PARTITION}),
    "exchange table partition": frozenset({_A.EXCHANGE_TABLE_PARTITION}),
    "reorganize table partition": frozenset({_A.REORGANIZE_PARTITION}),
    "alter table partitioning": frozenset({_A.ALTER_TABLE_PARTITIONING}),
    "remove table partitioning": frozenset({_A.REMOVE_PARTITIONING}),
    "add column": frozenset({_A.ADD_COLUMN, 37}),
    "drop column": frozenset({_A.DROP_COLUMN, 38}),
    "modify column": frozenset({_A.MODIFY_COLUMN}),
    "set default value": frozenset({_A.SET_DEFAULT_VALUE}),
    "rebase auto id": frozenset({_A.REBASE_AUTO_ID}),
    "add primary key": frozenset({_A.ADD_PRIMARY_KEY}),
    "drop primary key": frozenset({_A.DROP_PRIMARY_KEY}),
    "create index": frozenset({_A.ADD_INDEX}),
    "drop index": frozenset({_A.DROP_INDEX}),
    "rename index": frozenset({_A.RENAME_INDEX}),
    "alter index visibility": frozenset({_A.ALTER_INDEX_VISIBILITY}),
    "alter ttl info": frozenset({_A.ALTER_TTL_INFO}),
    "alter ttl remove": frozenset({_A.ALTER_TTL_REMOVE}),
    "multi schema change": frozenset({_A.MULTI_SCHEMA_CHANGE}),
    "add foreign key": frozenset({_A.ADD_FOREIGN_KEY}),
    "drop foreign key": frozenset({_A.DROP_FOREIGN_KEY}),
}
"""Each DDL event and its actions; 37 and 38 are ADD and DROP COLUMN of several columns, before TiDB 6.2."""
_NO_ALTER: Final = frozenset(
    {"create database", "drop database", "modify schema charset and collate", "create table", "drop table"}
    | {"truncate table", "recover table", "create view", "drop view", "add foreign key", "drop foreign key"}
)
"""What "alter table" does not mean, though some of it is written so."""
_SEVERAL: Final[Mapping[str, frozenset[str]]] = {
    "all dml": frozenset(ROW_EVENTS),
    "all ddl": frozenset(DDL_EVENTS),
    "alter table": frozenset(DDL_EVENTS.keys() - _NO_ALTER),
    "create schema": frozenset({"create database"}),
    "drop schema": frozenset({"drop database"}),
}
EVENTS: Final = (*_SEVERAL, *ROW_EVENTS, *DDL_EVENTS)
"""Every word of ignore-event."""


def single_events(word: str) -> frozenset[str]:
    """Return the events that a word of ignore-event means. EventTypeInvalid for a word that is none."""
    if word not in EVENTS:
        near = difflib.get_close_matches(word.lower(), EVENTS, n=1, cutoff=0.0)
        raise EventTypeInvalid(f"filter.event-filters: ignore-event {word!r} is no event; did you mean {near[0]!r}?")
    return _SEVERAL.get(word, frozenset({word}))
