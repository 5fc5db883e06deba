"""The schema along whole topics of a real TiCDC, of both architectures and both protocols, beside TiDB's own tables."""

from typing import Any

import pytest

from tests.real_topics import TOPICS, ddls_of, truth
from tidegate.engine.change import SourceDdl
from tidegate.expr.tokens import quote_name
from tidegate.model.event import Ddl
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.schema.effects import NoEffect, PartitionExchanged
from tidegate.schema.state import SchemaState, apply_ddl

ON_TOPICS = pytest.mark.parametrize("topic", TOPICS)
KEYLESS = {"rc_types.nokey", "rc_types.ukeynull", "rc_ddl.nopk", "rc_part.gi"}
"""Tables that TiCDC leaves out, since no key of theirs identifies a row."""
LEFT_OUT = {"rc_ddl.t", "rc_ddl.t2"}
"""Tables that the classic TiCDC was told to leave out, since it cannot follow their swap."""
VIEWS = "views carry no rows"


def applied(state: SchemaState, placed: SourceDdl, seq: int) -> SchemaState:
    """The schema behind a DDL; every one of them changes something that is known."""
    after, effects = apply_ddl(state, placed.ddl, seq)
    unknown = [effect.reason for effect in effects if isinstance(effect, NoEffect) and "unknown" in effect.reason]
    assert not unknown or "`gtt`" in placed.ddl.query, placed.ddl
    return after


def histories(topic: str, points: list[int]) -> dict[int, SchemaState]:
    """The schema at each of some timestamps."""
    state, seq, last, found = SchemaState(), 0, 0, dict[int, SchemaState]()
    waiting = list(ddls_of(topic))
    for ts in points:
        while waiting and (waiting[0].ddl.commit_ts or 0) <= ts:
            placed = waiting.pop(0)
            seq = seq + 1 if placed.ddl.commit_ts == last else 1
            last = placed.ddl.commit_ts or 0
            state = applied(state, placed, seq)
        found[ts] = state
    return found


def shown(column: ColumnInfo) -> tuple[object, ...]:
    """What a column is, apart from the charset of its text and the width at which numbers are displayed."""
    kind = column.type
    sizes = (kind.flen, kind.decimal) if kind.decimal >= 0 or kind.code.name in _SIZED else ()
    return column.name, kind.code, kind.unsigned, kind.elems, sizes, column.generated is not None, column.stored


_SIZED = {"STRING", "VARCHAR", "BIT"}


def columns_of(table: TableInfo) -> list[tuple[object, ...]]:
    """The columns of a table, and whether they are of its primary key."""
    key = next((index.columns for index in table.indexes if index.primary), ())
    return [(*shown(column), column.name in key) for column in table.columns]


def told(name: str, columns: list[list[str]]) -> list[tuple[object, ...]]:
    """The same of a table as TiDB tells it."""
    parts = [f"{quote_name(column)} {kind}{_GENERATED.get(extra, '')}" for column, _, kind, extra, _ in columns]
    key = ",".join(quote_name(column) for column, *_, of in columns if of == "PRI")
    query = f"CREATE TABLE t ({','.join(parts)}{f', PRIMARY KEY ({key})' if key else ''})"
    state, _ = apply_ddl(SchemaState(), Ddl(schema="d", table="t", query=query, commit_ts=1), 1)
    (table,) = state.tables.values()
    return columns_of(table)


_GENERATED = {"VIRTUAL GENERATED": " AS (1) VIRTUAL", "STORED GENERATED": " AS (1) STORED"}


@ON_TOPICS
def test_tables_are_tidbs_own(topic: str) -> None:
    """At every timestamp of the truth a changefeed knows TiDB's tables with their columns, types and primary keys."""
    left_out = KEYLESS | (LEFT_OUT if topic.startswith("classic") else set())
    expected: dict[int, dict[str, Any]] = truth()
    for ts, state in histories(topic, sorted(expected)).items():
        tables = {".".join(table.name): columns_of(table) for table in state.tables.values()}
        wanted = {name: told(name, of["columns"]) for name, of in expected[ts].items() if name not in left_out}
        assert tables == wanted


@ON_TOPICS
def test_an_exchange_swaps_the_partition_of_its_statement(topic: str) -> None:
    """The new architecture labels the DDL with the exchanged table, the classic TiCDC with the partitioned one."""
    state, found = SchemaState(), list[PartitionExchanged]()
    for placed in ddls_of(topic):
        state, effects = apply_ddl(state, placed.ddl, 1)
        found += [effect for effect in effects if isinstance(effect, PartitionExchanged)]
        if found:
            break
    ((effect,), label) = found, placed.ddl.table
    assert (str(effect.partitioned.name), effect.partition, str(effect.other.name)) == ("rc_part.r", "p1", "rc_part.ex")
    assert label == ("ex" if topic.startswith("new") else "r")
