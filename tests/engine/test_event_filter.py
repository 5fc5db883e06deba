"""Which single events a changefeed leaves out: words of ignore-event, texts of DDLs, values of rows."""

import re
from collections.abc import Sequence

import msgspec
import pytest

from tests.engine.test_mount import column, record, table
from tidegate.engine.event_filter import EVENTS, EventFilter, Test, event_rules
from tidegate.engine.filter import EventRule
from tidegate.engine.mount import Mounted
from tidegate.model.errors import (
    ConfigError,
    DdlEventUnknown,
    EventTypeInvalid,
    ExpressionColumnNotFound,
    FilterRuleInvalid,
)
from tidegate.model.event import Ddl, Delete, Field, Insert, Values
from tidegate.model.mysql import ActionType
from tidegate.model.table import TableName
from tidegate.schema.stored.definition import Name, StoredIndex, StoredPart
from tidegate.schema.stored.snapshot import REPLICATED, TableVersion
from tidegate.source.tidb_changes import MountOptions, mounter_of

UNIQUE = StoredIndex(2, Name.of("u"), idx_cols=[StoredPart(Name.of("k"))], is_unique=True)
VERSION = TableVersion(2, "db", table(column(2, "v"), column(3, "k"), column(4, "seen"), index_info=[UNIQUE]), 1)
T = TableName("db", "t")
Image = tuple[int, int, int, int]


class Places:
    """Expressions such as "1=7": the value at place 1 is 7."""

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def check(self, text: str) -> None:
        """Anything."""

    def test(self, text: str, version: TableVersion) -> Test:
        """The comparison."""
        at, value = map(int, text.split("="))
        self.compiled.append(f"{version.schema} {text}")

        def drops(values: Values) -> bool:
            return values[at] == value

        return drops

    def test_of_fields(self, text: str, name: TableName, fields: tuple[Field, ...]) -> Test:
        """The same; a message must have the place."""
        at, value = map(int, text.split("="))
        self.compiled.append(f"{name} {text}")
        if at >= len(fields):
            raise ExpressionColumnNotFound(f"{name} has no place {at}")
        return lambda values: values[at] == value


def filtered(**rule: object) -> EventFilter:
    """The filter of one rule; `matcher` is db.* unless it is given."""
    return EventFilter.of([EventRule(**{"matcher": ("db.*",)} | rule)], Places())  # type: ignore[arg-type]


def mounted(*images: tuple[Image | None, Image | None]) -> Sequence[Mounted]:
    """Rows with these old and new images, columns id, v, k and seen."""
    mounter, found = mounter_of([VERSION], 1, MountOptions()), []
    for old, new in images:
        before, after = (image and record(VERSION.stored, dict(enumerate(image, 1))) for image in (old, new))
        key = (after or before or (b"", b""))[0]
        row = mounter.mount(key, after and after[1], before and before[1], 10)
        assert row is not None
        found.append(row)
    return found


ROWS = (((1, 1, 1, 1), None), ((2, 1, 2, 1), (2, 2, 2, 2)), (None, (3, 7, 3, 1)), ((4, 1, 4, 1), (4, 1, 4, 9)))
"""A DELETE, an UPDATE, an INSERT, and an UPDATE of the last column alone."""


def kept(**rule: object) -> list[int]:
    """The ids of ROWS that a rule leaves in."""
    chosen, rows = filtered(**rule).rows([T]), mounted(*ROWS)
    return [row.row.row_id or 0 for row in (rows if chosen is None else chosen.kept(rows))]


def ddl(action: int, query: str = "", schema: str = "db", name: str = "t") -> Ddl:
    """A DDL event."""
    return Ddl(schema=schema, table=name, query=query, commit_ts=10, type=int(action))


RULES = [
    ({"ignore_event": ("delete",)}, [2, 3, 4]),
    ({"ignore_event": ("insert", "update")}, [1]),
    ({"ignore_event": ("all dml",)}, []),
    ({"ignore_event": ("delete",), "matcher": ("db.*", "!db.t")}, [1, 2, 3, 4]),
    ({"ignore_event": ("delete",), "matcher": ("DB.T",)}, [2, 3, 4]),
    ({"ignore_event": ("delete",), "matcher": ()}, [1, 2, 3, 4]),
    ({"ignore_insert_value_expr": "1=7"}, [1, 2, 4]),
    ({"ignore_delete_value_expr": "1=1"}, [2, 3, 4]),
    ({"ignore_update_old_value_expr": "1=1"}, [1, 3]),
    ({"ignore_update_new_value_expr": "1=2"}, [1, 3, 4]),
    ({"ignore_update_new_value_expr": "1=2", "ignore_update_old_value_expr": "2=4"}, [1, 3]),
    ({"ignore_update_only_columns": ("SEEN",)}, [1, 2, 3]),
    ({"ignore_update_only_columns": ("seen", "v")}, [1, 3]),
    ({"ignore_update_only_columns": ("nothing",)}, [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("rule", "left"), RULES)
def test_rows(rule: dict[str, object], left: list[int]) -> None:
    """A row is left out by its kind, by the image that the expression speaks of, or by what an UPDATE changes."""
    assert kept(**rule) == left


@pytest.mark.parametrize(("rule", "left"), RULES)
def test_rows_of_messages(rule: dict[str, object], left: list[int]) -> None:
    """The same of rows that messages brought."""
    chosen, rows = filtered(**rule).messages(), [row.row for row in mounted(*ROWS)]

    assert [row.row_id for row in (rows if chosen is None else chosen.kept(rows))] == left


def test_rows_of_messages_with_less_in_them() -> None:
    """Expressions are compiled for rows of their kind alone; a row that lacks a column has no verdict, and the error
    names its table and ts."""
    chosen = filtered(ignore_insert_value_expr="1=7", ignore_delete_value_expr="1=7").messages()
    assert chosen is not None
    fields = (Field("id", 3, handle=True), Field("v", 3))
    insert = Insert(schema="db", table="t", fields=fields, after=(1, 7), commit_ts=9)
    delete = Delete(schema="db", table="t", fields=fields[:1], before=(1,), commit_ts=10)

    assert chosen.drops(insert)
    assert not chosen.drops(msgspec.structs.replace(insert, table="u", after=(1, 8)))
    with pytest.raises(ExpressionColumnNotFound, match=r"db\.t has no place 1 for a row of db\.t at commit_ts 10"):
        chosen.drops(delete)


def test_what_came_before_the_start_stays() -> None:
    """Rows and DDLs up to `since`; whole transactions are named by themselves."""
    rule = EventRule(matcher=("db.*",), ignore_event=("all dml", "all ddl"))
    early, late = (EventFilter.of([rule], Places(), start_ts=[5], since=since) for since in (10, 9))
    rows = mounted(*ROWS)

    assert [len(chosen.kept(rows)) for each in (early, late) if (chosen := each.rows([T]))] == [4, 0]
    assert [each.drops_ddl(ddl(ActionType.ADD_COLUMN), None, 1) for each in (early, late)] == [False, True]
    assert early.drops_ddl(ddl(ActionType.ADD_COLUMN), None, 5)


def test_updates_of_keys_are_kept() -> None:
    """An UPDATE that changes a key is sent, even when the rule names the column."""
    rows = mounted(((1, 1, 1, 1), (1, 1, 2, 1)))
    chosen = filtered(ignore_update_only_columns=("k",)).rows([T])

    assert chosen is not None
    assert list(chosen.kept(rows)) == list(rows)


def test_every_filter_that_takes_the_table_is_asked() -> None:
    """Two rules leave out what either of them does, and each expression is compiled once a table."""
    places = Places()
    rules = [
        EventRule(matcher=("db.t",), ignore_delete_value_expr="1=1"),
        EventRule(matcher=("*.*",), ignore_event=("insert",)),
        EventRule(matcher=("other.*",), ignore_event=("all dml",)),
    ]
    chosen = EventFilter.of(rules, places).rows([T])
    assert chosen is not None
    for _ in range(3):
        assert [row.row.row_id for row in chosen.kept(mounted(*ROWS))] == [2, 4]
    assert set(places.compiled) == {"db 1=1"}


def test_nothing_is_asked_without_a_rule_for_rows() -> None:
    """A filter of DDLs costs rows nothing, nor does one of other tables."""
    assert EventFilter().rows([T]) is None
    assert filtered(ignore_event=("all ddl",), ignore_sql=("drop",)).rows([T]) is None
    assert filtered(ignore_event=("all dml",), matcher=("db.u",)).rows([T]) is None
    assert filtered(ignore_event=("all dml",), matcher=("db.u",)).rows([T, TableName("db", "u")]) is not None


@pytest.mark.parametrize(
    ("words", "actions"),
    [
        (("create table",), {ActionType.CREATE_TABLE, ActionType.CREATE_TABLES}),
        (("create schema",), {ActionType.CREATE_SCHEMA}),
        (("drop database",), {ActionType.DROP_SCHEMA}),
        (("add column", "truncate table"), {ActionType.ADD_COLUMN, 37, ActionType.TRUNCATE_TABLE}),
        (("create index",), {ActionType.ADD_INDEX}),
        (("all dml",), set()),
        (("all ddl",), set(REPLICATED)),
    ],
)
def test_ddls_by_their_kind(words: tuple[str, ...], actions: set[int]) -> None:
    """Each word means the actions that TiCDC gives it, "all ddl" every action that is followed."""
    rule = filtered(ignore_event=words)

    assert {action for action in REPLICATED if rule.drops_ddl(ddl(action), None, 1)} == actions


def test_alter_table_is_several() -> None:
    """Of DDLs, "alter table" means changes of columns, indexes, partitions, comments, charsets and TTL, and renames."""
    rule = filtered(ignore_event=("alter table",))
    left = {ActionType(action) for action in REPLICATED - {37, 38} if not rule.drops_ddl(ddl(action), None, 1)}

    assert left == {
        ActionType.CREATE_SCHEMA,
        ActionType.DROP_SCHEMA,
        ActionType.MODIFY_SCHEMA_CHARSET,
        ActionType.CREATE_TABLE,
        ActionType.CREATE_TABLES,
        ActionType.DROP_TABLE,
        ActionType.TRUNCATE_TABLE,
        ActionType.RECOVER_TABLE,
        ActionType.CREATE_VIEW,
        ActionType.DROP_VIEW,
        ActionType.ADD_FOREIGN_KEY,
        ActionType.DROP_FOREIGN_KEY,
    }


def test_ddls_by_their_text() -> None:
    """ignore-sql is found anywhere, whatever the case; several are alternatives with flags of their own."""
    rule = filtered(ignore_sql=("^drop", "(?s)comment.*secret"))

    assert rule.drops_ddl(ddl(ActionType.DROP_TABLE, "DROP TABLE t"), None, 1)
    assert rule.drops_ddl(ddl(ActionType.ADD_COLUMN, "alter table t\ncomment 'a\nsecret'"), None, 1)
    assert not rule.drops_ddl(ddl(ActionType.ADD_COLUMN, "alter table t drop column c"), None, 1)


def test_no_text_makes_ignore_sql_stand_still() -> None:
    """An expression that others would try again and again decides in proportion to the text of a DDL."""
    rule = filtered(ignore_sql=(r"^(\w+\s?)*$", "(a*)*b"))
    assert not rule.drops_ddl(ddl(ActionType.ADD_COLUMN, "a" * 20_000 + "!"), None, 1)


@pytest.mark.parametrize("text", ["(?=drop)", r"(drop)\1"])
def test_expressions_that_go_does_not_have(text: str) -> None:
    """Looking around and back references are refused with the text, when the rule is read."""
    with pytest.raises(FilterRuleInvalid, match=rf"ignore-sql {re.escape(repr(text))} is not a Go regular expression"):
        filtered(ignore_sql=(text,))


def test_ddls_without_their_action() -> None:
    """Their text tells it; where it does not, ignore-sql and "all ddl" still hold, and other words cannot be asked."""
    rule = filtered(ignore_event=("add column",), ignore_sql=("magic",))
    untold = msgspec.structs.replace(ddl(ActionType.ADD_COLUMN, "alter table t add column c int"), type=None)
    odd = msgspec.structs.replace(untold, query="alter table t do something")

    assert rule.drops_ddl(untold, None, 1)
    assert not rule.drops_ddl(msgspec.structs.replace(untold, query="alter table t drop column c"), None, 1)
    assert rule.drops_ddl(msgspec.structs.replace(odd, query="do magic"), None, 1)
    assert not rule.drops_ddl(msgspec.structs.replace(odd, schema="other"), None, 1)
    assert filtered(ignore_event=("all ddl",)).drops_ddl(odd, None, 1)
    assert not filtered(ignore_event=("all dml",)).drops_ddl(odd, None, 1)
    with pytest.raises(DdlEventUnknown, match=r"db\.t at ts 10: .*'alter table t do something'.*ignore-sql"):
        rule.drops_ddl(odd, None, 1)
    assert filtered(ignore_event=("all dml",)).ddls() is None


def test_renames_go_by_the_old_name_and_databases_by_the_schema() -> None:
    """So a rule for the name that goes away holds, and one for some tables says nothing of their database."""
    rule = filtered(matcher=("db.t",), ignore_event=("rename table", "drop database", "add column"))

    assert rule.drops_ddl(ddl(ActionType.RENAME_TABLE, name="u"), TableName("db", "t"), 1)
    assert not rule.drops_ddl(ddl(ActionType.RENAME_TABLE, name="t"), TableName("db", "s"), 1)
    assert rule.drops_ddl(ddl(ActionType.ADD_COLUMN), TableName("db", "t"), 1)
    assert rule.drops_ddl(ddl(ActionType.DROP_SCHEMA, name=""), None, 1)
    assert not rule.drops_ddl(ddl(ActionType.DROP_SCHEMA, schema="other", name=""), None, 1)
    assert not filtered(matcher=("db.*", "!db.*"), ignore_event=("all ddl",)).drops_ddl(
        ddl(ActionType.DROP_SCHEMA, name=""), None, 1
    )


def test_transactions_by_their_start() -> None:
    """ignore-txn-start-ts leaves out DDLs of any kind."""
    rule = EventFilter.of([], Places(), start_ts=[5, 6])

    assert [rule.drops_ddl(ddl(ActionType.ADD_COLUMN), None, ts) for ts in (4, 5, 6)] == [False, True, True]


@pytest.mark.parametrize(
    ("rule", "kind", "text"),
    [
        ({"ignore_event": ("truncat table",)}, EventTypeInvalid, "did you mean 'truncate table'"),
        ({"ignore_event": ("INSERT",)}, EventTypeInvalid, "did you mean 'insert'"),
        ({"ignore_sql": ("(",)}, FilterRuleInvalid, "ignore-sql"),
        ({"matcher": ("db",)}, FilterRuleInvalid, "table pattern is missing"),
    ],
)
def test_rules_that_cannot_be_read(rule: dict[str, object], kind: type[ConfigError], text: str) -> None:
    """They are refused before anything runs, with TiCDC's codes."""
    with pytest.raises(kind, match=text):
        filtered(**rule)


def test_the_shape_of_entries() -> None:
    """Keys are TiCDC's; another key or a text in place of a list is told."""
    [rule] = event_rules([{"matcher": ["a.b"], "ignore-event": ["insert"], "ignore-insert-value-expr": "x"}])
    assert (rule.matcher, rule.ignore_event, rule.ignore_insert_value_expr) == (("a.b",), ("insert",), "x")
    for wrong in ([{"matchers": []}], [{"ignore-event": "insert"}], {}):
        with pytest.raises(ConfigError, match=r"filter\.event-filters"):
            event_rules(wrong)


def test_every_event_has_a_name() -> None:
    """The words are those of TiCDC's documentation, each once."""
    assert len(EVENTS) == len(set(EVENTS)) == 43
