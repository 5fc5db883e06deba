"""Recorded INSERT, UPDATE and DELETE statements commit the recorded keys: rows, index entries, counters."""

from collections.abc import Iterator
from itertools import groupby

import pytest

from tests.kv.kv_recordings import raw
from tests.upstream.sql.dml_recorded import Statement, World, recorded, statements
from tidegate.kv.index_entry import decode_index_entry
from tidegate.kv.keys import IndexKey, decode_table_key
from tidegate.kv.rows import decode_row
from tidegate_upstream.tidb import table_access
from tidegate_upstream.tidb.table_access import TableReader
from tidegate_upstream.tidb.table_rows import KeyMutation, image_of, index_mutation, record_mutation

pytestmark = pytest.mark.slow

STATEMENTS = {"types": 99, "partition": 32, "ddl": 4, "interleave": 45, "rename_swap": 4}
SHARDS = {("ddl", 53): 0, ("ddl", 97): 3}
"""The two bits of SHARD_ROW_ID_BITS that TiDB drew from its random source: nobody can tell them, so they are given."""


def differences(world: World, statement: Statement) -> dict[str, tuple[str | None, str | None]]:
    """What a statement committed otherwise than recorded, by key."""
    before = world.held()
    world.run(statement.sql, statement.ts)
    after = world.held()
    made = {key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    due = {key: value for key, value in recorded(statement).items() if before.get(key) != value}
    return {
        key.hex(): (shown(made.get(key)), shown(due.get(key)))
        for key in made.keys() | due.keys()
        if made.get(key, 0) != due.get(key, 0)
    }


def shown(value: bytes | None) -> str | None:
    """A value in hex."""
    return None if value is None else value.hex()


@pytest.mark.parametrize("stream", STATEMENTS)
def test_statements_commit_the_recorded_keys(stream, monkeypatch):
    """Every DML statement on users' tables, run on what was recorded before it, leaves the recorded keys and values."""
    world, count = World(), 0
    world.session.sql_mode = world.session.sql_mode if stream != "partition" else frozenset()
    for statement in statements(stream):
        if not statement.is_dml or statement.error:
            world.session.obey(statement.sql)
            world.apply(statement.changes)
            continue
        count += 1
        with monkeypatch.context() as patch:
            if (shard := SHARDS.get((stream, statement.idx))) is not None:
                patch.setattr(table_access, "sharded", lambda number, *_, shard=shard, **__: shard << 61 | number)

            assert differences(world, statement) == {}, (stream, statement.idx, statement.sql)

    assert count == STATEMENTS[stream]


def test_a_row_that_stays_as_it_is_is_not_written():
    """UPDATE t SET i = i commits nothing, as recorded."""
    [unchanged] = [one for one in statements("types") if one.sql == "update t_int set i=i where id=4"]

    assert unchanged.changes == []


class Held(dict[bytes, bytes]):
    """Keys and values as a reader finds them."""

    def scan(self, start: bytes, end: bytes = b"", *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Keys of [start, end) with values."""
        found = sorted(key for key in self if start <= key and (not end or key < end))
        return ((key, self[key]) for key in (found[::-1] if reverse else found))


def backfilled(stream: str) -> Iterator[tuple[str, KeyMutation, tuple[bytes, bytes]]]:
    """For each index entry that a DDL wrote: its statement, what we make of its row, and the recorded key and value."""
    world, held = World(), Held()
    for statement in statements(stream):
        for _, group in groupby(statement.changes, key=lambda line: line["commit_ts"]):
            changes = list(group)
            for line in changes:
                key, value = raw(line, "key_b64"), raw(line, "value_b64")
                if line["kind"] == "meta":
                    world.define(key, value, line["commit_ts"])
                elif line["op"] == "put":
                    held[key] = value
                else:
                    held.pop(key, None)
            for line in changes:
                if line["kind"] == "index" and line["op"] == "put" and not statement.is_dml:
                    pair = raw(line, "key_b64"), raw(line, "value_b64")
                    yield statement.sql, made(world, held, statement.ts, pair), pair


def made(world: World, held: Held, ts: int, pair: tuple[bytes, bytes]) -> KeyMutation:
    """The entry that backfill makes of the row which a recorded entry names."""
    found = decode_table_key(pair[0])
    assert isinstance(found, IndexKey)
    shape = world.shapes.of(
        next(
            version.stored
            for version in world.tables.values()
            if found.table_id in {ident for place in world.shapes.of(version.stored).placements for ident in place.ids}
        )
    )
    index = next(one for one in shape.indexes if one.layout.id == found.index_id)
    entry = decode_index_entry(shape.layout_of(found.table_id), *pair)
    image = TableReader(held, shape, world.session.context(ts)).get(found.table_id, entry.handle)
    assert image is not None
    return index_mutation(shape, index, image)


@pytest.mark.parametrize(("stream", "count"), [("interleave", 5), ("ddl", 5)])
def test_backfill_writes_the_recorded_entries(stream, count):
    """Each index entry that a recorded ALTER TABLE wrote is what `index_mutation` makes of its row, in that state.

    The stream `partition` is left out: there TiDB writes entries of a clustered primary key while it moves rows between
    partitions, though no statement reads or writes such entries."""
    entries = list(backfilled(stream))

    assert len(entries) == count
    for sql, mutation, pair in entries:
        assert (mutation.key, mutation.value) == pair, sql


def test_copied_rows_lie_where_recorded():
    """Each row that a recorded ALTER TABLE moved between partitions lies where the placement of that moment says."""
    world, count = World(), 0
    for statement in statements("partition"):
        for line in statement.changes:
            key, value = raw(line, "key_b64"), raw(line, "value_b64")
            if line["kind"] == "meta":
                world.define(key, value, line["commit_ts"])
            elif line["kind"] == "record" and line["op"] == "put" and not statement.is_dml:
                found = decode_table_key(key)
                shapes = [world.shapes.of(version.stored) for version in world.tables.values()]
                shape, place = next(
                    (shape, place) for shape in shapes for place in shape.placements if found.table_id in place.ids
                )
                row = decode_row(shape.layout_of(found.table_id), key, value)
                image = image_of(shape, row, world.session.context(statement.ts))
                count += 1

                assert place.locate(image.columns) == found.table_id, statement.sql
                assert record_mutation(shape, image)[:2] == (key, value), statement.sql

    assert count == 15
