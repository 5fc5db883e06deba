"""A table of two rows with columns, indexes and constraints, as nodes at different schema versions write it.

    database   (row k1, row k2, (entries,))
    row        () or one number per column as stored, -1 for not stored, then one per field as it ought to read
    entries    one bit for (index, value, key)

A *field* is what the user calls a column; while its type changes two stored columns hold it.  The last part of a row is
the checker's own memory of what was written last: reading a field at a node that has it public must give just that.
What a node does to each column, index and constraint comes from `f1.ACCESS` alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from tests.upstream.model_checker.checker.anomaly import Anomaly, AnomalyKind, Batch, Database, Write
from tests.upstream.model_checker.checker.layout import Layout, Rule, RuleKind
from tests.upstream.model_checker.checker.track import Track
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.f1 import Access, ElementKind, Operation, Step, Touch, Work, access

__all__ = ["Rows"]

MISSING: Final = -1
KEYS: Final = 2
VALUES: Final = (0, 1)
NO_ROW: Final[tuple[int, ...]] = ()
PARENT, CHILD = 0, 1
Row = tuple[int, ...]


_PUBLIC: Final = access(ElementKind.COLUMN, ElementState.PUBLIC)


@dataclass(frozen=True, slots=True)
class _View:
    """What one schema version lets a node do."""

    columns: tuple[Access, ...]
    indexes: tuple[Access, ...]
    known: tuple[bool, ...]
    rules: tuple[Access, ...]
    child: Access


def _view(layout: Layout, states: Mapping[str, ElementState]) -> _View:
    def find(kind: ElementKind, role: str | None) -> Access:
        return _PUBLIC if role is None else access(kind, states[role])

    return _View(
        tuple(find(ElementKind.COLUMN, column.role) for column in layout.columns),
        tuple(find(ElementKind.INDEX, index.role) for index in layout.indexes),
        tuple(states[index.role] is not ElementState.NONE for index in layout.indexes),
        tuple(find(ElementKind.CONSTRAINT, rule.role) for rule in layout.rules),
        find(ElementKind.TABLE, layout.child),
    )


class Rows:
    """The table under each version of `way`; the methods take the number of a step as `at`."""

    def __init__(self, layout: Layout, operation: Operation, way: Track) -> None:
        names = [role.name for role in operation.roles]
        self.layout = layout
        self.steps = way.steps
        self.views = [_view(layout, dict(zip(names, step.states, strict=True))) for step in way.steps]

    def empty(self) -> Database:
        """No rows, no entries."""
        return (*(NO_ROW for _ in range(KEYS)), (0,))

    def writes(self, at: int, db: Database) -> Iterator[Write]:
        """Every INSERT, UPDATE and DELETE that a node at step `at` can do."""
        view = self.views[at]
        for key in range(KEYS):
            if key == CHILD and not view.child.read:
                continue
            row = db[key]
            for text, after in self._inserts(view) if row == NO_ROW else self._rewrites(view, row):
                changed = self._put(view, db, key, after)
                if changed is not None:
                    yield Write(text.format(f"k{key + 1}"), key, changed)

    def _inserts(self, view: _View) -> Iterator[tuple[str, Row]]:
        layout = self.layout
        fields = range(len(layout.fields))
        seen = [any(self._reads(view, field)) for field in fields]
        for given in product(*(VALUES if seen[field] else (0,) for field in fields)):
            cells = [
                {Touch.PUT: given[column.field], Touch.FILL: column.cast(given[column.field])}.get(
                    touch.insert, MISSING
                )
                for column, touch in zip(layout.columns, view.columns, strict=True)
            ]
            said = ", ".join(f"{layout.fields[field]}={given[field]}" for field in fields if seen[field])
            yield f"inserts {{}} ({said})", (*cells, *given)

    def _reads(self, view: _View, field: int) -> Iterator[bool]:
        return (
            touch.read for column, touch in zip(self.layout.columns, view.columns, strict=True) if column.field == field
        )

    def _rewrites(self, view: _View, row: Row) -> Iterator[tuple[str, Row]]:
        """The row after each UPDATE of one field to its other value, and after DELETE."""
        layout = self.layout
        truth = row[len(layout.columns) :]
        for field, name in enumerate(layout.fields):
            if any(self._reads(view, field)):
                value = 1 - truth[field]
                after = tuple(value if place == field else old for place, old in enumerate(truth))
                cells = (self._cell(view, row, number, field, value) for number in range(len(layout.columns)))
                yield f"updates {{}} set {name}={value}", (*cells, *after)
        yield "deletes {}", NO_ROW

    def _cell(self, view: _View, row: Row, number: int, field: int, value: int) -> int:
        """What an UPDATE of `field` stores in column `number`: the row is written whole."""
        column, touch = self.layout.columns[number], view.columns[number].update
        if touch is Touch.DROP:
            return MISSING
        if touch is Touch.PUT:
            return value if column.field == field else self._value(view, row, number)
        if column.partner is not None and view.columns[column.partner].read:
            return column.cast(self._cell(view, row, column.partner, field, value))
        return max(row[number], 0)

    def _value(self, view: _View, row: Row, number: int) -> int:
        """What a node takes column `number` of a stored row to be; MISSING when a required value is not there."""
        if row[number] == MISSING and not (self.layout.columns[number].required and view.columns[number].read):
            return 0
        return row[number]

    def _put(self, view: _View, db: Database, key: int, after: Row) -> Database | None:
        """The database with row `key` written and its entries moved; None when a constraint refuses it."""
        before, entries = db[key], db[-1][0]
        rows = (*db[:key], after, *db[key + 1 : -1])
        if not self._obeys(view, rows, key):
            return None
        for number, (index, touch) in enumerate(zip(self.layout.indexes, view.indexes, strict=True)):
            if self.layout.lazy and before and after and self._same(view, before, after, index.column):
                continue
            if before and (touch.delete if not after else touch.update in {Touch.DROP, Touch.PUT}):
                entries &= ~_bit(number, self._value(view, before, index.column), key)
            if after and (touch.update if before else touch.insert) is Touch.PUT:
                value = self._value(view, after, index.column)
                if index.unique and entries & _bit(number, value, 1 - key):
                    return None
                entries |= _bit(number, value, key)
        return (*rows, (entries,))

    def _same(self, view: _View, before: Row, after: Row, number: int) -> bool:
        return self._value(view, before, number) == self._value(view, after, number)

    def _obeys(self, view: _View, rows: Sequence[Row], key: int) -> bool:
        """Whether the constraints that this version checks on writes allow the new row `key`, or its removal."""
        for rule, touch in zip(self.layout.rules, view.rules, strict=True):
            if touch.insert is Touch.PUT:
                bad = self._bad(view, rule, rows)
                if key in bad or (bad and rule.kind is RuleKind.REFERENCE):
                    return False
        return True

    def _bad(self, view: _View, rule: Rule, rows: Sequence[Row]) -> list[int]:
        """The keys of rows that break `rule`."""
        ones = [key for key, row in enumerate(rows) if row and self._value(view, row, rule.column) == 1]
        if rule.kind is RuleKind.FORBID:
            return ones
        return [key for key in ones if key == CHILD and not rows[PARENT]]

    def batches(self, at: int) -> int:
        """How many transactions the work of step `at` takes."""
        step = self.steps[at]
        return {Work.NOTHING: 0, Work.BACKFILL: KEYS, Work.VALIDATE: 1, Work.DELETE_RANGE: 1}[step.work]

    def batch(self, at: int, number: int, db: Database) -> Batch:
        """The transaction `number` of the work of step `at`."""
        step, view = self.steps[at], self.views[at]
        if step.work is Work.DELETE_RANGE:
            gone = [place for place, index in enumerate(self.layout.indexes) if index.role in step.on]
            kept = db[-1][0] & ~sum(_bit(*spot) for spot in product(gone, VALUES, range(KEYS)))
            return Batch(f"delete range of {', '.join(step.on)}", (), (*db[:-1], (kept,)))
        broken = any(rule.role in step.on and self._bad(view, rule, db[:-1]) for rule in self.layout.rules)
        if step.work is Work.VALIDATE:
            return Batch(f"validation of {', '.join(step.on)}", (), None if broken else db)
        text = f"backfill passes k{number + 1}"
        return Batch(text, (number,) if db[number] else (), None if broken else self._filled(view, step, db, number))

    def _filled(self, view: _View, step: Step, db: Database, key: int) -> Database | None:
        """Row `key` with the columns and entries of the step's roles added; None at a duplicate."""
        row, entries = db[key], db[-1][0]
        if not row:
            return db
        for number, column in enumerate(self.layout.columns):
            if column.role in step.on and row[number] == MISSING:
                source = number if column.partner is None else column.partner
                value = column.cast(max(self._value(view, row, source), 0))
                row = (*row[:number], value, *row[number + 1 :])
        for number, index in enumerate(self.layout.indexes):
            if index.role in step.on:
                value = self._value(view, row, index.column)
                if index.unique and index.checked and entries & _bit(number, value, 1 - key):
                    return None
                entries |= _bit(number, value, key)
        return (*db[:key], row, *db[key + 1 : -1], (entries,))

    def anomaly(self, at: int, db: Database, doomed: frozenset[str]) -> Anomaly | None:
        """What a node at step `at` finds wrong; entries of `doomed` indexes wait for their range to be deleted."""
        view = self.views[at]
        found = self.misread(at, db)
        for rule, touch in zip(self.layout.rules, view.rules, strict=True):
            if found is None and touch.read and (bad := self._bad(view, rule, db[:-1])):
                found = Anomaly(AnomalyKind.INTEGRITY, f"k{bad[0] + 1} breaks {rule.role}: {rule.kind.value}")
        for number in range(len(self.layout.indexes)):
            found = found or self._orphan(view, db, number, doomed) or self._incomplete(view, db, number)
        return found

    def misread(self, at: int, db: Database) -> Anomaly | None:
        """A field that reads differently at step `at` from what was written last."""
        width = len(self.layout.columns)
        for key, row in enumerate(db[:-1]):
            for number, column in enumerate(self.layout.columns if row else ()):
                if not self.views[at].columns[number].read:
                    continue
                value, truth = self._value(self.views[at], row, number), row[width + column.field]
                if value == MISSING:
                    return Anomaly(AnomalyKind.INTEGRITY, f"k{key + 1} has no value of {column.name}")
                if value != truth:
                    what = f"k{key + 1} reads {column.name}={value}, but {truth} was written"
                    return Anomaly(AnomalyKind.INTEGRITY, what)
        return None

    def _orphan(self, view: _View, db: Database, number: int, doomed: frozenset[str]) -> Anomaly | None:
        index, entries = self.layout.indexes[number], db[-1][0]
        if index.role in doomed:
            return None
        for value, key in product(VALUES, range(KEYS)):
            if entries & _bit(number, value, key):
                what = f"{index.role} has the entry {value} of k{key + 1}"
                if not view.known[number]:
                    return Anomaly(AnomalyKind.ORPHAN, f"{what}, and the schema no such index")
                if not db[key]:
                    return Anomaly(AnomalyKind.ORPHAN, f"{what}, which does not exist")
                if self._value(view, db[key], index.column) != value:
                    return Anomaly(AnomalyKind.ORPHAN, f"{what}, which has another value")
        return None

    def _incomplete(self, view: _View, db: Database, number: int) -> Anomaly | None:
        index, entries = self.layout.indexes[number], db[-1][0]
        if not view.indexes[number].read:
            return None
        rows = [(key, self._value(view, row, index.column)) for key, row in enumerate(db[:-1]) if row]
        if index.unique and len({value for _, value in rows}) < len(rows):
            return Anomaly(AnomalyKind.INTEGRITY, f"unique {index.role} and two rows with value {rows[0][1]}")
        for key, value in rows:
            if not entries & _bit(number, value, key):
                return Anomaly(AnomalyKind.INTEGRITY, f"{index.role} has no entry of k{key + 1}")
        return None

    def show(self, db: Database) -> str:
        """The stored rows and entries in one line."""
        layout = self.layout
        parts = []
        for key, row in enumerate(db[:-1]):
            if row:
                cells = zip(layout.columns, row, strict=False)
                stored = ", ".join(f"{column.name}={cell}" for column, cell in cells if cell != MISSING)
                parts.append(f"k{key + 1} ({stored})")
        for number, index in enumerate(layout.indexes):
            spots = [
                (value, key) for value, key in product(VALUES, range(KEYS)) if db[-1][0] & _bit(number, value, key)
            ]
            if spots:
                parts.append(f"{index.role} {{{', '.join(f'{value}->k{key + 1}' for value, key in spots)}}}")
        return "; ".join(parts) or "nothing"


def _bit(index: int, value: int, key: int) -> int:
    """The bit of one entry; a value that is not there counts as 0."""
    return 1 << ((index * len(VALUES) + max(value, 0)) * KEYS + key)
