"""Rows of one protocol, encoded in the other with what the topic's DDLs tell, beside what TiCDC sent in that one."""

from collections.abc import Iterator

import pytest

from tests import real_topics
from tidegate.cli.framed import FollowedTables
from tidegate.codec.canal_encode import mysql_type
from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import decode
from tidegate.engine.event_filter import acting
from tidegate.model.event import Ddl, Resolved, RowChange
from tidegate.model.mysql import ColumnFlag

pytestmark = pytest.mark.slow

FOREIGN = {"rc_fk.c1": ["pid"], "rc_fk.c2": ["pid"]}
"""Columns of a foreign key alone: TiDB makes a key for it, and sets no flag; definitions do not tell such a key."""
Key = tuple[str, str, int | None]


def events(topic: str) -> Iterator[RowChange | Ddl]:
    """The rows and DDLs of a topic in commit order, a DDL behind the rows of its ts."""
    options = DecodeOptions(protocol=real_topics.TOPICS[topic][1])
    found = [
        event
        for partition in real_topics.messages(topic).values()
        for message in partition
        for event in decode(message.key, message.value, options)
        if not isinstance(event, Resolved)
    ]
    yield from sorted(found, key=lambda event: (event.commit_ts or 0, isinstance(event, Ddl)))


def followed(topic: str) -> Iterator[tuple[Key, RowChange, dict[str, int], dict[str, str], tuple[str, ...]]]:
    """Each row with the flags, the types and the primary key that are written for it."""
    tables, done = FollowedTables(), set[tuple[int | None, str]]()
    for event in events(topic):
        if isinstance(event, Ddl):
            if (event.commit_ts, event.query) not in done:
                done.add((event.commit_ts, event.query))
                tables.follow(acting(event))
            continue
        wire = tables.wire(event)
        flags = {column.name: column.flag for column in wire.columns}
        types = {column.name: mysql_type(column, full=False) for column in wire.columns}
        yield (event.schema, event.table, event.commit_ts), event, flags, types, wire.pk_names


@pytest.mark.parametrize("emitter", ["new", "classic"])
def test_flags_of_open_protocol(emitter: str) -> None:
    """Every flag of every column, from a topic of canal-json, which carries none."""
    theirs = {key: {field.name: field.flag for field in row.fields} for key, row, *_ in followed(f"{emitter}/open")}
    for key, row, flags, _, _ in followed(f"{emitter}/canal"):
        for name in FOREIGN.get(f"{row.schema}.{row.table}", ()):
            flags[name] &= ~ColumnFlag.MULTIPLE_KEY
        assert flags == theirs[key], key


@pytest.mark.parametrize("emitter", ["new", "classic"])
def test_types_of_canal_json(emitter: str) -> None:
    """Every mysqlType and every primary key, from a topic of Open Protocol, which carries neither."""
    theirs = {
        key: ({field.name: field.mysql_type for field in row.fields}, row.pk_names)
        for key, row, *_ in followed(f"{emitter}/canal")
    }
    assert any("zerofill" in kind for types, _ in theirs.values() for kind in types.values())
    for key, _, _, types, primary in followed(f"{emitter}/open"):
        assert (types, primary) == theirs[key], key
