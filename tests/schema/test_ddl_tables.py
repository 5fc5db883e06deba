"""Which of a DDL's label and text names its table: the rule, over all DDLs that a TiCDC was seen to send."""

import gzip
import json
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, get_args

import pytest

from tests.real_topics import TOPICS, ddls_of
from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import decode
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule, previous_name
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema import statement as of
from tidegate.schema.ddl_tables import (
    NAME_SOURCES,
    NameSource,
    name_source,
    read_statements,
    resolve_tables,
    subject_table,
)
from tidegate.schema.snapshot import SchemaState
from tidegate.schema.state import apply_ddl
from tidegate.schema.statement import AlterTable, ExchangePartition, RecoverTable, RenameTables, RenameTo, Statement

DATA = Path(__file__).parents[1] / "data"
NEW, CLASSIC = "new", "classic"
OPEN = DecodeOptions(protocol="open-protocol")
EXCHANGE = "ALTER TABLE `r` EXCHANGE PARTITION `p1` WITH TABLE `x`"


@cache
def recorded() -> tuple[tuple[str, Ddl], ...]:
    """Every DDL event of the recordings, with the architecture that made it."""
    topics = [(name.partition("/")[0], placed.ddl) for name in TOPICS for placed in ddls_of(name)]
    return (*topics, *((CLASSIC, ddl) for ddl in _of_encoders()))


def _of_encoders() -> Iterator[Ddl]:
    """The events of a classic TiCDC, by the encoders of both architectures."""
    for path in sorted(DATA.glob("codec*/*/open_default.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            for message in json.loads(line)["messages"]:
                key, value = b64decode(message["key_b64"]), b64decode(message["value_b64"] or "")
                if b'"t":2' in key:
                    yield from (one for one in decode(key, value, OPEN) if isinstance(one, Ddl))


def named(statement: Statement) -> list[TableName]:
    """The tables that a text says it makes, changes or takes away, by the names that they have then."""
    match statement:
        case RenameTables(pairs):
            return [pair.new for pair in pairs]
        case AlterTable(table, _, specs):
            return [next((spec.table for spec in specs if isinstance(spec, RenameTo)), table)]
        case RecoverTable(table, to):
            return [TableName(table.schema, to) if to else table]
        case of.DropTables(names) | of.DropViews(names):
            return list(names)
        case of.CreateTable(table) | of.CreateTableLike(table) | of.TruncateTable(table) | of.CreateView(table):
            return [table]
    return []


STEPS_OF_A_SWAP: Final = {"RENAME TABLE `rc_ddl`.`t` TO `rc_ddl`.`tmp`;": "t2"}
"""A step whose label is not the name that it gives: the one that the table has at the end of the job."""


@pytest.mark.slow
def test_labels_and_texts_of_all_recordings() -> None:
    """What labels name beside the texts is what the rule's table says, of both architectures and both protocols."""
    exchanges, kinds = set[tuple[str, str]](), set[str]()
    for architecture, ddl in recorded():
        (statement,) = read_statements(ddl)
        kinds.add(type(statement).__name__)
        label, names = TableName(ddl.schema, ddl.table), named(statement)
        if name_source(statement) is NameSource.SIDE:
            assert isinstance(statement, AlterTable)
            (clause,) = statement.specs
            assert isinstance(clause, ExchangePartition)
            side = {statement.table.key: "partitioned", clause.table.key: "exchanged"}[label.key]
            exchanges.add((architecture, side))
        elif ddl.query in STEPS_OF_A_SWAP:
            assert label.table == STEPS_OF_A_SWAP[ddl.query]
        elif names:
            assert label.key in {name.key for name in names}, ddl
        else:
            assert not ddl.table, ddl
    assert exchanges == {(NEW, "exchanged"), (CLASSIC, "partitioned")}
    assert kinds >= {"AlterTable", "RenameTables", "DropTables", "TruncateTable", "RecoverTable", "CreateView"}


def test_every_statement_has_a_row() -> None:
    """No kind of statement is without a rule."""
    assert set(get_args(Statement)) <= set(NAME_SOURCES)


def both(*, partitioned: str = "r", exchanged: str = "x") -> SchemaState:
    """A partitioned table, and one to exchange a partition with."""
    state, body = SchemaState(), "(id int primary key)"
    ranges = "partition by range (id) (partition p0 values less than (9), partition p1 values less than (20))"
    for name, more in ((partitioned, ranges), (exchanged, "")):
        ddl = Ddl(schema="d", table=name, query=f"create table {name} {body} {more}", commit_ts=1)
        state, _ = apply_ddl(state, ddl, 1)
    return state


@pytest.mark.parametrize("label", ["r", "x"])
def test_an_exchange_by_either_label(label: str) -> None:
    """Filters, topics and effects of an exchange are the same by whichever of its tables the event is called."""
    ddl = Ddl(schema="d", table=label, query=EXCHANGE, commit_ts=2, type=42)
    _, (effect,) = apply_ddl(both(), ddl, 1)
    assert subject_table(ddl, [effect]) == subject_table(ddl) == TableName("d", "r")
    assert previous_name(ddl, [effect]) == previous_name(ddl) == TableName("d", "x")
    rules = [EventRule(matcher=("d.r",), ignore_event=("exchange table partition",))]
    assert EventFilter.of(rules, None).drops_ddl(ddl, None, -1)


@pytest.mark.parametrize(
    ("tables", "label", "table", "other"),
    [
        ({}, "r", "r", "x"),
        ({}, "x", "r", "x"),
        ({"partitioned": "r2"}, "r2", "r2", "x"),
        ({"exchanged": "x2"}, "x2", "r", "x2"),
    ],
)
def test_an_exchange_that_waited(tables: dict[str, str], label: str, table: str, other: str) -> None:
    """Where one of its tables was renamed while it waited, the label takes that one's place, and only that."""
    ddl = Ddl(schema="d", table=label, query=EXCHANGE, commit_ts=2)
    (statement,) = read_statements(ddl)
    found = resolve_tables(both(**tables), statement, ddl)
    assert isinstance(found, AlterTable)
    (clause,) = found.specs
    assert isinstance(clause, ExchangePartition)
    assert (found.table, clause.table) == (TableName("d", table), TableName("d", other))


@pytest.mark.parametrize(
    ("query", "label", "changed"),
    [
        ("alter table r add column a int", "x", "x"),
        ("create index i on r (id)", "x", "x"),
        ("truncate table r", "x", "x"),
        ("alter table r add column a int", "gone", "r"),
        ("drop table r", "x", "r"),
        ("rename table r to s", "x", "r"),
        ("alter table r rename to s", "x", "r"),
        ("create table s like r", "x", "r"),
    ],
)
def test_one_table_by_label_or_text(query: str, label: str, changed: str) -> None:
    """A waiting ALTER or TRUNCATE is of the labelled table where that is known; other statements are of their texts."""
    ddl = Ddl(schema="d", table=label, query=query, commit_ts=2)
    (statement,) = read_statements(ddl)
    found = resolve_tables(both(), statement, ddl)
    tables = {
        RenameTables: lambda one: one.pairs[0].old,
        of.DropTables: lambda one: one.tables[0],
        of.CreateTableLike: lambda one: one.source,
    }
    assert tables.get(type(found), lambda one: one.table)(found) == TableName("d", changed)
