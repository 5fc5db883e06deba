"""Names of indexes: no two tables share one, servers take them, an index tells the epoch of its writer."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.table import TableName
from tidegate.sink.search_mapping import ID_MAX_BYTES, alias_of, document_id, epoch_of, index_name, write_alias

PARTS = st.text(st.sampled_from("abA.-_%é/ \\"), min_size=1, max_size=70)
KEYS = st.lists(st.text(max_size=30) | st.integers(0, 300).map(lambda size: size * "é"), min_size=1, max_size=3)
TABLES = st.builds(TableName, PARTS, PARTS)


@given(TABLES, TABLES)
def test_aliases_tell_tables_apart(one: TableName, other: TableName) -> None:
    """Two tables share an alias exactly if TiDB takes their names for one."""
    assert (alias_of(one) == alias_of(other)) == (one.key == other.key)


@given(TABLES, st.sampled_from(["", "cdc-"]))
def test_servers_take_them(table: TableName, prefix: str) -> None:
    """Names have no character that a server refuses, none that it refuses at the begin, and are short enough."""
    index = index_name(alias_of(table, prefix), "9223372036854775807.rows.123456", 1_800_000_000_000)
    assert re.fullmatch(r"[^-_+.][^A-Z\\/*?\"<>| ,#:]*", index)
    assert len(write_alias(index, 1_800_000_000_000).encode()) <= 255
    assert epoch_of(index) == 1_800_000_000_000


@given(KEYS, KEYS)
def test_documents(one: list[str], other: list[str]) -> None:
    """Rows of different keys have different documents, however long the keys are."""
    if len(one) == len(other):
        names = [document_id(values) for values in (one, other)]
        assert (names[0] == names[1]) == (one == other)
        assert max(len(name.encode()) for name in names) <= ID_MAX_BYTES


def test_bytes_that_are_no_text() -> None:
    """A text that is no UTF-8 has a document of its own, too."""
    names = {document_id([text]) for text in ("a", "a\udcff", "a\udcfe")}
    assert len(names) == 3
