"""What tables without partitions hold, by nothing but the statements that were told to have worked.

    committed   table id ─► row number ─► {column: number}         a transaction copies it at its begin, and brings back
                                                                   the rows that it touched when it commits
    column      the id of the first of a chain of changed types    so a change of type changes nothing here

Definitions come from the node at which a statement ran, numbers never do.  Where a unique index is on its way in or
out, what a statement does depends on entries that nobody reads; the result is then taken over (`adopt`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.upstream.simulate.dml import Change, shown
from tests.upstream.simulate.values import kind_of, missing_of, number_of
from tidegate.schema.stored import definition as flags
from tidegate.schema.stored.definition import ElementState, StoredColumn, StoredTable
from tidegate.schema.stored.snapshot import StoredSnapshot

NOT_NULL = flags.NOT_NULL | flags.PREVENT_NULL
Row = Mapping[int, int | None]
Shown = tuple[int | None, ...]


class Unsure(Exception):
    """What the statement does is not for this model to say."""


class Duplicate(Exception):
    """The statement has to fail with 1062."""


@dataclass
class View:
    """What one transaction sees and writes."""

    tables: dict[int, dict[int, Row]]
    touched: set[tuple[int, int]] = field(default_factory=set)

    def rows(self, table_id: int) -> dict[int, Row]:
        """The rows of a table."""
        return self.tables.setdefault(table_id, {})

    def put(self, table_id: int, number: int, row: Row | None) -> None:
        """Write a row, or remove it."""
        self.touched.add((table_id, number))
        if row is None:
            self.rows(table_id).pop(number, None)
        else:
            self.rows(table_id)[number] = row


class Model:
    """The rows of all tables."""

    def __init__(self) -> None:
        self.committed: dict[int, dict[int, Row]] = {}
        self.first: dict[tuple[int, int], int] = {}
        self.missing: dict[tuple[int, int], int | None] = {}
        self.adopted = 0
        self._last = 0

    def observe(self, snapshot: StoredSnapshot) -> None:
        """Learn which columns are others in a new type."""
        for table_id, version in snapshot.tables.items():
            cols = version.stored.cols or []
            for column in cols:
                self.missing[table_id, column.id] = missing_of(column)
                if column.change_state_info is not None and (table_id, column.id) not in self.first:
                    other = cols[column.change_state_info.relative_col_offset].id
                    if other < column.id:
                        self.first[table_id, column.id] = self.column(table_id, other)

    def column(self, table_id: int, column_id: int) -> int:
        """By what rows hold a column."""
        return self.first.get((table_id, column_id), column_id)

    # --- transactions ---

    def begin(self) -> View:
        """What is committed now."""
        return View({table_id: dict(rows) for table_id, rows in self.committed.items()})

    def commit(self, view: View) -> None:
        """A transaction became visible."""
        for table_id, number in view.touched:
            row = view.rows(table_id).get(number)
            if row is None:
                self.committed.setdefault(table_id, {}).pop(number, None)
            else:
                self.committed.setdefault(table_id, {})[number] = row

    # --- reading ---

    def select(self, view: View, stored: StoredTable, where: tuple[str, int | None] | None = None) -> Counter[Shown]:
        """The rows as a reader with that definition sees them."""
        return Counter(
            tuple(self.value(stored, row, one) for one in shown(stored)) for _, row in self._found(view, stored, where)
        )

    def value(self, stored: StoredTable, row: Row, column: StoredColumn) -> int | None:
        """A row's number in a column."""
        first = self.column(stored.id, column.id)
        return row[first] if first in row else self.missing[stored.id, first]

    def _found(self, view: View, stored: StoredTable, where: tuple[str, int | None] | None) -> list[tuple[int, Row]]:
        rows = list(view.rows(stored.id).items())
        if where is None:
            return rows
        column = next(one for one in shown(stored) if one.name.lower == where[0])
        return [(number, row) for number, row in rows if self.value(stored, row, column) == where[1]]

    # --- statements ---

    def play(self, view: View, stored: StoredTable, change: Change) -> None:
        """Do what a statement does. Raises Duplicate, Unsure; the view is to be thrown away then."""
        if change.verb in ("update", "delete"):
            self._rewrite(view, stored, change)
            return
        if _unsettled(stored):
            raise Unsure
        for given in change.rows:
            self._insert(view, stored, change, dict(zip(change.columns, given, strict=True)))

    def _rewrite(self, view: View, stored: StoredTable, change: Change) -> None:
        sets = self._sets(stored, change.sets)
        for number, row in self._found(view, stored, change.where):
            self._write(view, stored, number, {**row, **sets} if change.verb == "update" else None)
        if change.verb == "update" and (_unsettled(stored) or any(self._doubles(view, stored))):
            raise Unsure

    def _sets(self, stored: StoredTable, sets: Mapping[str, int | None]) -> dict[int, int | None]:
        named = {one.name.lower: self.column(stored.id, one.id) for one in shown(stored)}
        return {named[name]: number for name, number in sets.items()}

    def _insert(self, view: View, stored: StoredTable, change: Change, given: Mapping[str, int | None]) -> None:
        new = {self.column(stored.id, one.id): given.get(one.name.lower, _default(one)) for one in shown(stored)}
        strict = {one.name.lower for one in shown(stored) if one.type.flag & NOT_NULL}
        if change.verb == "ignore" and any(given.get(name, 0) is None for name in strict):
            raise Unsure
        holders = self._holders(view, stored, new)
        if holders and change.verb == "insert":
            raise Duplicate
        if holders and change.verb == "ignore":
            return
        if holders and change.verb == "upsert":
            if len(holders) > 1:
                raise Unsure
            (number,) = holders
            self._write(view, stored, number, {**view.rows(stored.id)[number], **self._sets(stored, change.sets)})
            if any(self._doubles(view, stored)):
                raise Unsure
            return
        if len(holders) == 1 and self._alike(stored, view.rows(stored.id)[holders[0]], new):
            return
        for number in holders:
            view.put(stored.id, number, None)
        self._last += 1
        view.put(stored.id, self._last, new)

    def _write(self, view: View, stored: StoredTable, number: int, row: Row | None) -> None:
        """Change a row, if that changes anything: what stays as it was is not written, and conflicts with nobody."""
        if row is None or not self._alike(stored, view.rows(stored.id)[number], row):
            view.put(stored.id, number, row)

    def _alike(self, stored: StoredTable, one: Row, other: Row) -> bool:
        return all(self.value(stored, one, column) == self.value(stored, other, column) for column in shown(stored))

    def _holders(self, view: View, stored: StoredTable, new: Row) -> list[int]:
        """The rows that have a unique key of the new one."""
        found = []
        for number, row in view.rows(stored.id).items():
            pairs = [(self._key(stored, row, rule), self._key(stored, new, rule)) for rule in unique_keys(stored)]
            if any(one == other and None not in one for one, other in pairs):
                found.append(number)
        return found

    def _doubles(self, view: View, stored: StoredTable) -> Iterator[str]:
        """Unique keys that two rows share."""
        for rule in unique_keys(stored):
            keys = [self._key(stored, row, rule) for row in view.rows(stored.id).values()]
            if max(Counter(key for key in keys if None not in key).values(), default=0) > 1:
                yield f"two rows of {stored.name.lower} with one key of {[one.name.lower for one in rule]}"

    def _key(self, stored: StoredTable, row: Row, rule: tuple[StoredColumn, ...]) -> Shown:
        return tuple(self.value(stored, row, column) for column in rule)

    # --- taking over ---

    def adopt(self, view: View, stored: StoredTable, found: Counter[Shown]) -> None:
        """Make a table of the view what a reader found in it; rows that are the same keep their number."""
        self.adopted += 1
        columns, left = shown(stored), Counter(found)
        for number, row in list(view.rows(stored.id).items()):
            key = tuple(self.value(stored, row, one) for one in columns)
            if left[key]:
                left[key] -= 1
            else:
                view.put(stored.id, number, None)
        for key in left.elements():
            self._last += 1
            ids = [self.column(stored.id, one.id) for one in columns]
            view.put(stored.id, self._last, dict(zip(ids, key, strict=True)))


def _default(column: StoredColumn) -> int | None:
    """What INSERT takes for a column that it does not name: of an ENUM that is NOT NULL the first label."""
    first = kind_of(column) == "label" and column.default is None and column.type.flag & NOT_NULL
    return 0 if first else number_of(column.default)


def unique_keys(stored: StoredTable) -> list[tuple[StoredColumn, ...]]:
    """The columns of every public unique key, the primary key's included."""
    cols = stored.cols or []
    rules = [
        tuple(cols[part.offset] for part in index.idx_cols)
        for index in stored.index_info or []
        if (index.is_unique or index.is_primary) and index.state == ElementState.PUBLIC
    ]
    return [*rules, *[(one,) for one in cols if stored.pk_is_handle and one.type.flag & 2]]


def _unsettled(stored: StoredTable) -> bool:
    """Whether a unique index is between two states."""
    return any(
        (one.is_unique or one.is_primary) and one.state != ElementState.PUBLIC for one in stored.index_info or []
    )
