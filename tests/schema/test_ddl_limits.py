"""A DDL text costs time in proportion to its length, whatever it says, and a table has no more than TiDB allows."""

import time
import tracemalloc
from contextlib import suppress

import pytest

from tidegate.model.errors import SqlError, TidegateError, UnsupportedError
from tidegate.model.event import Ddl
from tidegate.model.table import COLUMNS_MAX, KEYS_MAX
from tidegate.schema.parse_ddl import QUERY_CHARACTERS_MAX, TABLES_MAX, parse_ddl
from tidegate.schema.state import SchemaState, apply_ddl

pytestmark = pytest.mark.slow

SECONDS = 8.0
"""Processor time that a hostile text may take here: the slowest takes a second, and took from twenty to minutes."""


def after(state: SchemaState, query: str) -> SchemaState:
    """The state after a DDL."""
    return apply_ddl(state, Ddl(schema="d", table="", query=query, commit_ts=1 << 58), 0)[0]


def listed(count: int, form: str) -> str:
    """`form` for each number, with commas."""
    return ",".join(form.format(number) for number in range(count))


WIDE = f"create table t ({listed(4000, 'c{} int')})"
TABLES = ";".join(f"create table t{number} (a int)" for number in range(4000))
HOSTILE = {
    "open comments": ("", "/*" * 96_000),
    "open comments of features": ("", "/*T![" * 40_000),
    "escaped quotes": ("", "\\'" * 32_000),
    "open names": ("", "`" * 64_001),
    "a number that is none": ("", f"create table t (a int default {'9' * 64_000}x)"),
    "keys": ("", f"create table t (a int, {listed(8000, 'key k{} (a)')})"),
    "keys without names": ("", f"create table t (a int, {listed(8000, 'key (a)')})"),
    "keys at columns": ("", f"create table t ({listed(4000, 'c{} int unique')})"),
    "columns": ("", f"create table t ({listed(10_000, 'c{} int')})"),
    "added columns": (WIDE, f"alter table t {listed(4000, 'add d{} int first')}"),
    "added columns in brackets": (WIDE, f"alter table t add ({listed(10_000, 'd{} int')})"),
    "changed columns": (WIDE, f"alter table t {listed(4000, 'modify c{} bigint')}"),
    "added keys": (WIDE, f"alter table t {listed(4000, 'add key (c{})')}"),
    "views": ("", ";".join(f"create view v{number} as select 1" for number in range(8000))),
    "dropped tables": (TABLES, f"drop table {listed(4000, 't{}')}"),
    "renamed tables": (TABLES, f"rename table {listed(4000, 't{0} to u{0}')}"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_linear(name: str) -> None:
    """No text of some 100 KB takes long, whether it is followed or refused."""
    before, query = HOSTILE[name]
    state = after(SchemaState(), before)
    start = time.process_time()
    try:
        after(state, query)
    except TidegateError as error:
        assert len(str(error)) < 2000  # noqa: PT017  either outcome will do
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', "`{}`", "/*{}*/"])
def test_long_strings_take_their_own_size(quoted: str) -> None:
    """A text of one long string takes memory as the string does, whatever ends it."""
    for text in (quoted.format("a" * (1 << 20)), quoted.format("\\a" * (1 << 19)), quoted[0] + "a" * (1 << 20)):
        tracemalloc.start()
        with suppress(SqlError):
            parse_ddl(text, "d")
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
        tracemalloc.stop()


def test_long_texts_are_refused() -> None:
    """A text that no job of TiDB's can hold is refused before it is read."""
    parse_ddl(" " * QUERY_CHARACTERS_MAX, "d")
    with pytest.raises(SqlError, match="more than 6291456 characters"):
        parse_ddl(" " * (QUERY_CHARACTERS_MAX + 1), "d")


@pytest.mark.parametrize("query", ["drop table {}", "drop view {}"])
def test_texts_name_so_many_tables(query: str) -> None:
    """The tables that all statements of a text name are counted."""
    parse_ddl(f"truncate t; {query.format(listed(TABLES_MAX - 1, 't{}'))}", "d")
    with pytest.raises(SqlError, match="names more than 10000 tables"):
        parse_ddl(f"truncate t; {query.format(listed(TABLES_MAX, 't{}'))}", "d")


def test_tables_have_so_many_columns() -> None:
    """A table with TiDB's most columns is followed, one with more refused by its name."""
    state = after(SchemaState(), f"create table t ({listed(COLUMNS_MAX, 'c{} int')})")
    for query in ("alter table t add d int", f"create table t2 ({listed(COLUMNS_MAX + 1, 'c{} int')})"):
        with pytest.raises(UnsupportedError, match=r"table d\.t.*: more than 4096 columns"):
            after(state, query)
    with pytest.raises(SqlError, match="more than 4096 changes"):
        after(state, f"alter table t {listed(COLUMNS_MAX + 1, 'modify c{} bigint')}")


def test_tables_have_so_many_keys() -> None:
    """The same of keys; a foreign key that needs none of its own is not counted."""
    state = after(SchemaState(), f"create table t (a int, {listed(KEYS_MAX, 'key k{} (a)')})")
    after(state, "alter table t add foreign key (a) references p (a)")
    with pytest.raises(UnsupportedError, match=r"table d\.t: more than 512 keys"):
        after(state, "alter table t add key (a)")
