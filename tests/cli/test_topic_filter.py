"""Which events of a topic go on into another one, and what the relay hears of the others."""

from collections.abc import Iterable

import pytest

from tidegate.cli.relay import TopicFilter
from tidegate.engine.event_expression import SqlExpressions
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule, TableFilter
from tidegate.model.errors import ExpressionColumnNotFound, RenameRefused
from tidegate.model.event import Ddl, Field, Insert, Resolved, RowChange

Event = RowChange | Ddl | Resolved


class Relay:
    """What a filter passes on, in its order; DDLs that are not sent begin with a minus."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def send(self, events: Iterable[Event]) -> None:
        """Keeps words for events."""
        for event in events:
            match event:
                case Insert():
                    self.heard.append(f"{event.table}{event.after[0]}")
                case Ddl():
                    self.heard.append(event.query)
                case Resolved():
                    self.heard.append(f"R{event.ts}")

    def follow(self, ddl: Ddl) -> None:
        """Keeps the text."""
        self.heard.append(f"-{ddl.query}")


def row(ts: int, key: int, table: str = "t") -> Insert:
    """A row."""
    return Insert(schema="s", table=table, fields=(Field("id", 3, handle=True),), after=(key,), commit_ts=ts)


def ddl(ts: int, query: str, table: str = "t") -> Ddl:
    """A DDL, without its action as canal-json has it."""
    return Ddl(schema="s", table=table, query=query, commit_ts=ts)


def passed(events: list[Event], *rules: EventRule, tables: tuple[str, ...] = ("*.*",)) -> tuple[list[str], int]:
    """What the relay heard, and how many were left out."""
    relay = Relay()
    chosen = TopicFilter(TableFilter.parse(tables), EventFilter.of(rules, SqlExpressions()))
    chosen.pass_on(events, relay)
    return relay.heard, chosen.left_out


def test_events_that_are_left_out() -> None:
    """The relay hears of a DDL that is not sent between the rows before it and those behind it."""
    rule = EventRule(matcher=("s.t",), ignore_event=("drop index",), ignore_insert_value_expr="id = 2")
    events = [row(1, 1), row(1, 2), ddl(2, "drop index i on t"), row(3, 3), row(3, 2, "u"), Resolved(3)]

    assert passed(events, rule) == (["t1", "-drop index i on t", "t3", "u2", "R3"], 2)
    assert passed(events) == (["t1", "t2", "drop index i on t", "t3", "u2", "R3"], 0)


def test_tables_that_are_left_out() -> None:
    """Rows and DDLs of them; a database's DDL passes as long as some table of it could."""
    events = [ddl(1, "create database s", ""), ddl(2, "create table u (id int)", "u"), row(3, 1, "u"), row(3, 2)]

    assert passed(events, tables=("s.t",)) == (["create database s", "-create table u (id int)", "t2"], 2)
    assert passed(events, tables=("x.*",)) == (["-create database s", "-create table u (id int)"], 4)


def test_renames_and_the_tables_of_the_rules() -> None:
    """The old name decides, for the rules of tables as for those of events; a table cannot come in by a RENAME."""
    away, back = ddl(1, "rename table t to u", "u"), ddl(2, "alter table u rename to t")
    rule = EventRule(matcher=("s.t",), ignore_event=("rename table",))

    assert passed([away], tables=("s.t",)) == (["rename table t to u"], 0)
    assert passed([away], rule) == (["-rename table t to u"], 1)
    assert passed([back], rule) == (["alter table u rename to t"], 0)
    assert passed([away], tables=("s.v",)) == (["-rename table t to u"], 1)
    with pytest.raises(RenameRefused, match=r"s\.u, which the filter excludes, becomes s\.t"):
        passed([back], tables=("s.t",))


def test_rows_that_cannot_be_judged() -> None:
    """They end the transcoding, by an error that names table and ts."""
    rule = EventRule(matcher=("s.t",), ignore_insert_value_expr="nothing = 1")
    with pytest.raises(ExpressionColumnNotFound, match=r"'nothing = 1' for s\.t.*at commit_ts 7"):
        passed([row(7, 1)], rule)
