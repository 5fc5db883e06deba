"""Any text at all: statements or SqlError, effects or one of our errors, in time that does not explode."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.model.errors import SchemaError, SqlError, UnsupportedError
from tidegate.model.event import Ddl
from tidegate.schema.columns import parse_type
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.schema.statement import CreateTable

WORDS = st.sampled_from(
    [
        "create",
        "table",
        "alter",
        "drop",
        "add",
        "column",
        "(",
        ")",
        ",",
        ";",
        ".",
        "'",
        '"',
        "`",
        "/*T!",
        "*/",
        "/*",
        "--",
        "#",
        "int",
        "primary",
        "key",
        "partition",
        "by",
        "range",
        "values",
        "less",
        "than",
        "in",
        "t",
        "a",
        "b",
        "1",
        "1.5",
        "=",
        "+",
        "-",
        "'x'",
        "`n`",
        "default",
        "null",
        "not",
        "exists",
        "if",
        "rename",
        "to",
        "index",
        "on",
        "after",
        "first",
        "enum",
        "set",
        "x'0",
        "0x",
        "b'1'",
        "_utf8mb4",
        "references",
        "check",
        "as",
        "select",
        "comment",
        "charset",
        "collate",
        "modify",
        "change",
        "truncate",
        "exchange",
        "with",
        "\\",
        "\n",
        "@",
        "{",
        "}",
        "[",
        "]",
        "hash",
        "partitions",
        "unique",
        "coalesce",
        "reorganize",
        "into",
        "remove",
        "partitioning",
        "recover",
        "database",
        "flashback",
    ]
)
TEXTS = st.text(max_size=80) | st.lists(WORDS, max_size=25).map(" ".join) | st.lists(WORDS, max_size=25).map("".join)
STARTS = (
    "",
    "create table t (a int, ",
    "create table t (a int) ",
    "alter table t ",
    "alter table p ",
    "rename table ",
    "drop ",
)


def known_state() -> SchemaState:
    """Two tables for the texts to meet: t, and p with partitions."""
    state = SchemaState()
    for ts, query in enumerate(
        (
            "create table t (a int primary key, b varchar(9), n int, key (b))",
            "create table p (a int) partition by hash (a) partitions 3",
        )
    ):
        state, _ = apply_ddl(state, Ddl(schema="db", table="t", query=query, commit_ts=ts), 0)
    return state


STATE = known_state()


@given(TEXTS, st.sampled_from(STARTS))
@settings(max_examples=200, deadline=None)
def test_any_text(text: str, start: str) -> None:
    """Whatever arrives is statements or SqlError; nothing else escapes."""
    with contextlib.suppress(SqlError):
        parse_ddl(start + text, "db")
    with contextlib.suppress(SqlError):
        parse_type(text)


@given(TEXTS, st.sampled_from(STARTS))
@settings(max_examples=200, deadline=None)
def test_any_ddl(text: str, start: str) -> None:
    """Whatever is applied gives effects and a state that survives JSON, or one of three errors."""
    ddl = Ddl(schema="db", table="t", query=start + text, commit_ts=470607233549598720)
    with contextlib.suppress(SqlError, SchemaError, UnsupportedError):
        state, effects = apply_ddl(STATE, ddl, 0)
        assert effects
        assert SchemaState.from_json(state.to_json()) == state


@pytest.mark.slow
def test_depth_costs_nothing() -> None:
    """Thousands of parentheses neither overflow nor stall."""
    deep = "(" * 20_000
    with pytest.raises(SqlError):
        parse_ddl(f"create table t (a int as {deep}", "db")
    closed = deep + "1" + ")" * 20_000
    (statement,) = parse_ddl(f"create table t (a int as ({closed}))", "db")
    assert isinstance(statement, CreateTable)
    assert statement.columns[0].generated == closed
