"""Rows that a real cluster committed in every state of DDLs, read with the definition of their commit_ts."""

import re
from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest

from tests.source.tidb.modify_recording import Shown, Truth, recorded, truths
from tidegate.engine.mount import Mounted, Mounter, MountTable
from tidegate.kv.keys import decode_table_key
from tidegate.model.errors import SchemaError
from tidegate.model.event import Value, images
from tidegate.model.kv_change import KvChange
from tidegate.model.mysql import MysqlType
from tidegate.model.tso import MAX_TS
from tidegate.schema.stored.create import render_create_table
from tidegate.schema.stored.history import DefinitionHistory
from tidegate.schema.stored.snapshot import TableVersion

pytestmark = pytest.mark.slow
OPEN = object()
"""The value of a column whose stored rows a MODIFY COLUMN rewrote without an event."""


class Line:
    """A row as it was last mounted, and in the columns of the definition in which it was last looked at."""

    def __init__(self, mounted: Mounted, rewritten: set[tuple[int, int]]) -> None:
        self.mounted, self.now, self._rewritten = mounted, mounted.table, rewritten
        self.values = self._values(mounted.table)

    def at(self, now: MountTable) -> tuple[Any, ...]:
        """Return the values in the columns of `now`."""
        if now is not self.now:
            self.now, self.values = now, self._values(now)
        return self.values

    def _values(self, now: MountTable) -> tuple[Any, ...]:
        """Columns added since have their origin default."""
        table, values = self.mounted.table, images(self.mounted.row)[1]
        assert values is not None
        places = {plan.id: place for place, plan in enumerate(table.plans)}
        found: list[Any] = []
        for column, plan in zip([each for each in now.info.columns if not each.virtual], now.plans, strict=True):
            if plan.id in places:
                found.append(text(values[places[plan.id]], column.type))
            else:
                is_open = (now.version.stored.id, plan.id) in self._rewritten
                found.append(OPEN if is_open else text(plan.missing, column.type))
        return tuple(found)


class Replica:
    """The rows of the recording at a timestamp, by physical table and key."""

    def __init__(self) -> None:
        base, self.changes = recorded("base"), recorded("rows")
        begin = base[0].commit_ts
        self.history = DefinitionHistory(begin, [(row.key, row.value or b"") for row in base if row.key[:1] == b"m"])
        self.rewritten: set[tuple[int, int]] = set()
        for row in self.changes:
            if row.key[:1] == b"m":
                self.history.change(row.key, row.value or None, row.commit_ts)
                self._note(row.commit_ts)
        self.mounter = Mounter(self.history, force_replicate=True)
        self.rows: dict[int, dict[bytes, Line]] = defaultdict(dict)
        self.copies: dict[int, dict[bytes, KvChange]] = defaultdict(dict)
        self.at, self.mounted, self.old_values = 0, 0, 0
        for row in base:
            if row.key[:1] == b"t":
                self.apply(row, begin + 1)

    def _note(self, ts: int) -> None:
        """Note columns that took the place of others at `ts`."""
        before, after = self.history.snapshot(ts - 1), self.history.snapshot(ts)
        for table_id, version in after.tables.items():
            old = before.tables.get(table_id, version).stored.cols or []
            new = version.stored.cols or []
            gone, come = {column.id for column in old} - {column.id for column in new}, {column.id for column in old}
            names = {column.name.lower for column in old if column.id in gone}
            self.rewritten |= {
                (table_id, column.id)
                for column in new
                if column.id not in come and (column.name.lower in names or column.name.lower in RENAMED)
            }

    def apply(self, row: KvChange, commit_ts: int) -> None:
        """Mount a row, and its old value, which is the one that was mounted before."""
        mounted = self.mounter.mount(row.key, row.value or None, row.old_value or None, commit_ts)
        physical_id = decode_table_key(row.key).table_id
        if mounted is None:
            self.copies[physical_id][row.key] = row
            return
        self.adopt(physical_id, commit_ts)
        before, after = images(mounted.row)
        rows = self.rows[physical_id]
        earlier = rows.pop(row.key, None)
        if before is not None and earlier is not None and earlier.mounted.table is mounted.table:
            assert before == images(earlier.mounted.row)[1], (row.key.hex(), commit_ts)
            self.old_values += 1
        if after is not None:
            rows[row.key] = Line(mounted, self.rewritten)
            self.mounted += 1

    def adopt(self, physical_id: int, commit_ts: int) -> None:
        """Take the rows that a REORGANIZE PARTITION had copied before the table had that partition."""
        for copy in self.copies.pop(physical_id, {}).values():
            if copy.value:
                self.apply(msgspec.structs.replace(copy, old_value=None), commit_ts)

    def advance(self, ts: int) -> None:
        """Apply what was committed up to `ts`."""
        while self.at < len(self.changes) and self.changes[self.at].commit_ts <= ts:
            row = self.changes[self.at]
            self.at += 1
            if row.key[:1] == b"t":
                self.apply(row, row.commit_ts)

    def of_table(self, version: TableVersion, ts: int) -> list[tuple[Any, ...]]:
        """The rows of a table in its columns at `ts`."""
        found = []
        for physical_id in version.stored.physical_ids:
            now = self.mounter.table(physical_id, ts + 1)
            assert now is not None
            self.adopt(physical_id, ts + 1)
            found += [line.at(now) for line in self.rows[physical_id].values()]
        return found


_WIDTH = re.compile(r"(?<=int)\(\d+\)")
"""Display widths, which TiDB 8.5 does not show."""
RENAMED = {"i1x", "n2x"}
"""Names that a CHANGE COLUMN which rewrites rows gave."""


def text(value: Value, kind: Any) -> str | None:
    """A value as SQL returned it."""
    if value is None:
        return None
    if kind.code is MysqlType.ENUM:
        assert isinstance(value, int)
        return kind.elems[value - 1] if value else ""
    if isinstance(value, float):
        return f"{value:g}"
    return value.decode() if isinstance(value, bytes) else str(value)


def differs(mine: list[tuple[Any, ...]], shown: Shown, virtual: set[int]) -> list[Any]:
    """The rows that differ; where a column is open, the others are compared."""
    rows = Counter[tuple[Any, ...]]()
    for row, count in shown.rows.items():
        rows[tuple(value for place, value in enumerate(row) if place not in virtual)] += count
    whole = Counter(row for row in mine if OPEN not in row)
    open_rows = [row for row in mine if OPEN in row]
    left = rows - whole
    if not open_rows:
        return [*left.elements(), *(whole - rows).elements()]
    places = {place for row in open_rows for place, value in enumerate(row) if value is OPEN}

    def cut(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(value for place, value in enumerate(row) if place not in places)

    expected, got = Counter(map(cut, left.elements())), Counter(map(cut, open_rows))
    return [*(whole - rows).elements(), *(expected - got).elements(), *(got - expected).elements()]


def compared(replica: Replica, truth: Truth) -> list[Any]:
    """What differs from SQL at a timestamp, definitions included."""
    replica.advance(truth.ts)
    snapshot = replica.history.snapshot(truth.ts)
    by_name = {version.stored.name.original: version for version in snapshot.tables.values()}
    wrong: list[Any] = []
    for name, shown in truth.tables.items():
        version = by_name[name]
        create = render_create_table(version.stored)
        if _WIDTH.sub("", create) != shown.create:
            wrong.append((name, create, shown.create))
        virtual = {place for place, column in enumerate(version.stored.cols or []) if virtual_of(column)}
        wrong += differs(replica.of_table(version, truth.ts), shown, virtual)
    return wrong


def virtual_of(column: Any) -> bool:
    """Whether a column has no value in rows."""
    return bool(column.generated_expr_string) and not column.generated_stored


@pytest.mark.parametrize("step", [40, pytest.param(1, marks=pytest.mark.soak)])
def test_rows_of_every_state_equal_sql(step):
    """At each timestamp (of `step`) what was mounted equals what SQL returned, but for columns that a MODIFY COLUMN
    rewrote after the row; definitions, and old values between two schema changes too."""
    replica, count = Replica(), 0
    for number, truth in enumerate(truths()):
        if number % step == 0:
            assert not compared(replica, truth), (truth.name, truth.ts)
        count += 1
    replica.advance(MAX_TS)
    assert count == 942
    assert replica.mounted > 55_000
    assert replica.old_values > 7_500


def test_a_released_history_keeps_what_later_rows_need():
    """Definitions below a release are forgotten, but for those that hold there; earlier rows are refused."""
    replica = Replica()
    history, last = replica.history, replica.changes[-1].commit_ts
    at_end, definition = history.snapshot(last), next(row for row in replica.changes if row.key[:1] == b"m")
    middle = replica.changes[len(replica.changes) // 2].commit_ts
    rows = [row for row in replica.changes if row.commit_ts > middle and row.key[:1] == b"t"]
    found = [history.table_of(decode_table_key(row.key).table_id, row.commit_ts) for row in rows]
    history.release(middle)
    assert [history.table_of(decode_table_key(row.key).table_id, row.commit_ts) for row in rows] == found
    assert len(set(map(id, found))) > 20
    with pytest.raises(SchemaError, match="forgotten"):
        history.table_of(at_end.tables[max(at_end.tables)].stored.id, middle)
    history.release(replica.changes[-1].commit_ts)
    assert history.snapshot(last) == at_end
    with pytest.raises(SchemaError, match="read the log again"):
        history.change(definition.key, definition.value, definition.commit_ts)
