"""What transactions make of rows, together: the same as one after the other."""

import random
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from tidegate.model.errors import SinkRefused
from tidegate.model.event import Ddl, Delete, Field, Insert, RowChange, Update
from tidegate.model.mysql import ColumnFlag, MysqlType
from tidegate.sink.sql.rows import DELETE, INSERT, UPDATE, EntryReader, fold_counted, fold_keyed, groups_of
from tidegate.testing import script
from tidegate.testing.script import ScriptedChanges, ScriptedTables

SEEDS = range(50)
KEYS = 6
TABLE = "CREATE TABLE s.t (id INT, v INT, PRIMARY KEY (id) NONCLUSTERED)"


def history(rng: random.Random, keys: int, steps: int) -> tuple[list[tuple[int, bool, bool]], set[int]]:
    """Entries (key, put, existed) that are possible one after the other, and the rows at their begin."""
    begin = {key for key in range(keys) if rng.random() < 0.5}
    there, entries = set(begin), []
    for _ in range(steps):
        key = rng.randrange(keys)
        put = key not in there or rng.random() < 0.6
        entries.append((key, put, key in there))
        (there.add if put else there.discard)(key)
    return entries, begin


@pytest.mark.parametrize("seed", SEEDS)
def test_keyed(seed: int) -> None:
    """The net changes of groups, one behind the other, end where the entries do, and each finds what it expects."""
    rng = random.Random(seed)
    entries, begin = history(rng, 5, 30)
    group = np.sort(np.array([rng.randrange(4) for _ in entries]))
    code, put, existed = (np.array(each) for each in zip(*entries, strict=True))
    net = fold_keyed(group, code, put, existed)
    value = dict.fromkeys(begin, -1)
    for op, at in zip(net.op.tolist(), net.entry.tolist(), strict=True):
        key = int(code[at])
        assert (key in value) == (op != INSERT)
        if op == DELETE:
            del value[key]
        else:
            assert op in {INSERT, UPDATE}
            value[key] = at
    expected = dict.fromkeys(begin, -1)
    for at, (key, is_put, _) in enumerate(entries):
        if is_put:
            expected[key] = at
        else:
            expected.pop(key)
    assert value == expected


def layouts() -> list[tuple[Field, ...]]:
    """A table's columns, as two of its schema versions tell them."""
    value = Field("v", MysqlType.LONG, flag=0)
    return [
        (Field("id", MysqlType.LONG, flag=int(flag)), value) for flag in (ColumnFlag.PRIMARY_KEY, ColumnFlag.UNIQUE_KEY)
    ]


def change(rng: random.Random, ts: int, before: Any, after: Any) -> RowChange:
    """The change of a row, of which at least one image is there."""
    shared = {"schema": "s", "table": "t", "fields": rng.choice(layouts()), "pk_names": ("id",), "commit_ts": ts}
    if before is None:
        return Insert(after=after, **shared)
    return Delete(before=before, **shared) if after is None else Update(before=before, after=after, **shared)


def key_moves(rng: random.Random, transactions: int) -> tuple[list[RowChange], dict[int, int]]:
    """What a log tells of rows that have numbers and hand their keys on: the net changes of each transaction, by the
    number of the row or in any other order; and key -> value at the end."""
    rows: dict[int, tuple[int, int]] = {}
    found: list[RowChange] = []
    for ts in range(1, transactions + 1):
        keys = rng.sample(range(KEYS), KEYS)
        after = {number: (keys[number], rng.choice([ts, 0])) for number in range(KEYS) if rng.random() < 0.6}
        changed = [number for number in rows.keys() | after.keys() if rows.get(number) != after.get(number)]
        found += [change(rng, ts, rows.get(number), after.get(number)) for number in changed]
        rows = after
    return found, dict(rows.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_pass_on(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one transaction hand their keys on, told in any order and with several layouts, and the net changes find
    what they expect and end with the upstream's rows."""
    rng = random.Random(seed)
    monkeypatch.setattr(script, "CHUNK_ROWS", rng.choice([1, 12, 99]))
    rows, expected = key_moves(rng, 4)
    tables = ScriptedTables()
    tables.apply(Ddl(schema="s", table="t", query=TABLE, commit_ts=1))
    table = tables.of("s.t")
    found: dict[bytes, bytes] = {}
    for chunk in ScriptedChanges(0, 9, tuple(rows)).in_order([table.name], 0, 9):
        (entries,) = EntryReader({table.name.key: table}, {}).read(chunk)
        code = pc.dictionary_encode(entries.identity).indices.to_numpy().astype(np.int64)
        net = fold_keyed(entries.commit_ts // rng.choice([1, 2, 9]), code, entries.put, entries.existed)
        for op, at in zip(net.op.tolist(), net.entry.tolist(), strict=True):
            key = entries.texts.keys[at].as_py()
            assert (key in found) == (op != INSERT)
            if op == DELETE:
                del found[key]
            else:
                found[key] = entries.texts.rows[at].as_py()
    assert found == {b"%d" % key: b"(%d,%d)" % (key, value) for key, value in expected.items()}


def test_counted() -> None:
    """Equal rows are counted: two that come and one that goes are one more, and what comes and goes is nothing."""
    code, put = np.array([0, 0, 0, 1, 1, 2]), np.array([True, True, False, True, False, False])
    net = fold_counted(np.zeros(6, np.int64), code, put)
    assert [(int(code[at]), op, times) for at, op, times in zip(net.entry, net.op, net.times, strict=True)] == [
        (0, INSERT, 1),
        (2, DELETE, 1),
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_groups(seed: int) -> None:
    """Groups hold whole transactions, at most so many rows or one transaction, and as many as fit."""
    rng = random.Random(seed)
    times = np.sort(np.array([rng.randrange(20) for _ in range(60)]))
    group, ends = groups_of(times, 8)
    sizes = np.bincount(group)
    for number, end in enumerate(ends):
        mine = times[group == number]
        assert mine[-1] == end
        assert sizes[number] <= 8 or len(set(mine)) == 1
        if number:
            assert times[group == number - 1][-1] < mine[0]
            assert sizes[number - 1] + (mine == mine[0]).sum() > 8


def test_other_columns_without_a_ddl() -> None:
    """Rows of one round that are put with different columns are refused by name, as the DDL between them is missing."""
    story = script.Script()
    story.ddl("s", "CREATE DATABASE s")
    story.ddl("s.t", "CREATE TABLE s.t (id INT PRIMARY KEY, v INT)")
    story.commit(script.put("s.t", id=1, v=1))
    story.ddl("s.t", "ALTER TABLE s.t ADD COLUMN w INT")
    story.commit(script.put("s.t", id=2, v=2, w=3))
    table, rows = story.definition("s.t"), tuple(story.rows(story.ts))
    (chunk,) = ScriptedChanges(0, story.ts, rows).in_order([table.name], 0, story.ts)
    with pytest.raises(SinkRefused, match=r"s\.t: its rows have `id`, `v` .*other columns") as refused:
        EntryReader({table.name.key: table}, {}).read(chunk)
    assert (refused.value.where.table, refused.value.where.commit_ts) == ("s.t", rows[0].commit_ts)
