"""Tables and partitions of two rows that move between ranges of keys, as nodes at different schema versions write them.

    space     the rows under one table or partition id: (value of k1, value of k2), -1 for no row
    binding   a role of an operation: at this name you find that space
    database  (space, ..)  then  (what a reader of it should find, ..)

    truncate      old table -> space 1 of its own       new table -> space 2 of its own
    reorganize    old rows  -> space 1 of a table       new rows  -> space 2 of the same, a copy
    exchange      the partition's and the table's name lead to each other's space

Bindings that share a `truth` are copies of one another: a write goes to all that its version lets it write, as with an
index; a read goes to the public one.  A row that a stale node puts where nobody looks any more is removed with its
range; a row that comes after that is an orphan for ever.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.upstream.model_checker.checker.anomaly import Anomaly, AnomalyKind, Batch, Database, Write
from tests.upstream.model_checker.checker.track import Track
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.f1 import Access, Operation, Touch, Work, access

__all__ = ["Binding", "Spaces"]

KEYS: Final = 2
VALUES: Final = (0, 1)
NO_ROW: Final = -1


@dataclass(frozen=True, slots=True)
class Binding:
    """`role` leads from the name `table` to `space`, whose rows should be those of `truth`.

    `fits`: the name takes value 0 only, as a partition takes only rows of its range."""

    role: str
    table: str
    space: int
    truth: int
    fits: bool = False


class Spaces:
    """The bindings under each version of `way`; `limit`: the role of the rule that all names take value 0 only."""

    def __init__(self, bindings: Sequence[Binding], operation: Operation, way: Track, limit: str | None = None) -> None:
        kinds = {role.name: role.kind for role in operation.roles}
        states = [dict(zip(kinds, step.states, strict=True)) for step in way.steps]
        self.bindings, self.steps, self.gone = bindings, way.steps, way.gone
        self.views = [[access(kinds[item.role], at[item.role]) for item in bindings] for at in states]
        self.known = [[at[item.role] is not ElementState.NONE for item in bindings] for at in states]
        self.limited = [limit is not None and access(kinds[limit], at[limit]).insert is Touch.PUT for at in states]
        self.spaces = 1 + max(item.space for item in bindings)
        self.tables = sorted({item.table for item in bindings})

    def empty(self) -> Database:
        """No rows anywhere."""
        return ((NO_ROW,) * KEYS,) * (self.spaces + 1 + max(item.truth for item in self.bindings))

    def writes(self, at: int, db: Database) -> Iterator[Write]:
        """Every INSERT, UPDATE and DELETE of every name that step `at` can read."""
        for table in self.tables:
            mine = [
                (item, touch) for item, touch in zip(self.bindings, self.views[at], strict=True) if item.table == table
            ]
            read = next((item for item, touch in mine if touch.read), None)
            if read is None:
                continue
            narrow = read.fits or self.limited[at]
            for key in range(KEYS):
                old = db[read.space][key]
                news = [value for value in VALUES if value != old and not (narrow and value)]
                for new in news if old == NO_ROW else [*news, NO_ROW]:
                    verb = "inserts" if old == NO_ROW else "deletes" if new == NO_ROW else "updates"
                    said = f"{verb} k{key + 1} of {table}" + (f" (a={new})" if new != NO_ROW else "")
                    yield Write(said, key, self._put(mine, read, db, key, (old, new)))

    def _put(
        self, mine: Sequence[tuple[Binding, Access]], read: Binding, db: Database, key: int, change: tuple[int, int]
    ) -> Database:
        old, new = change
        spaces = [list(space) for space in db]
        for item, touch in mine:
            move = touch.insert if old == NO_ROW else touch.update
            if new == NO_ROW and touch.delete:
                spaces[item.space][key] = NO_ROW
            elif new != NO_ROW and move is Touch.PUT:
                spaces[item.space][key] = new
            elif new != NO_ROW and move is Touch.DROP:
                spaces[item.space][key] = NO_ROW
        spaces[self.spaces + read.truth][key] = new
        return tuple(tuple(space) for space in spaces)

    def batches(self, at: int) -> int:
        """How many transactions the work of step `at` takes."""
        return {Work.NOTHING: 0, Work.BACKFILL: KEYS, Work.VALIDATE: 1, Work.DELETE_RANGE: 1}[self.steps[at].work]

    def batch(self, at: int, number: int, db: Database) -> Batch:
        """The transaction `number` of the work of step `at`."""
        step = self.steps[at]
        if step.work is Work.VALIDATE:
            wrong = any(value == 1 for space in db[: self.spaces] for value in space)
            return Batch(f"validation of {', '.join(step.on)}", (), None if wrong else db)
        spaces = list(db)
        if step.work is Work.DELETE_RANGE:
            for item in self.bindings:
                if item.role in step.on:
                    spaces[item.space] = (NO_ROW,) * KEYS
            return Batch(f"delete range of {', '.join(step.on)}", (), tuple(spaces))
        source = next(item for item, touch in zip(self.bindings, self.views[at], strict=True) if touch.read)
        value = db[source.space][number]
        for item in self.bindings:
            if item.role in step.on and value != NO_ROW:
                copied = list(spaces[item.space])
                copied[number] = value
                spaces[item.space] = tuple(copied)
        return Batch(f"copy passes k{number + 1}", (number,) if value != NO_ROW else (), tuple(spaces))

    def anomaly(self, at: int, db: Database, doomed: frozenset[str]) -> Anomaly | None:
        """What a node at step `at` finds wrong; spaces of `doomed` roles wait for their range to be deleted."""
        known = {item.space for item, there in zip(self.bindings, self.known[at], strict=True) if there}
        for item, touch in zip(self.bindings, self.views[at], strict=True):
            for key in range(KEYS):
                found = self._misread(item, db, key) if touch.read else None
                if found is None and item.role not in doomed and db[item.space][key] != NO_ROW:
                    copy = self._shared(item)
                    found = self._orphan(item, db, key) if item.space in known and copy else None
                    if item.space not in known and (copy or item.role in self.gone[at]):
                        found = Anomaly(
                            AnomalyKind.ORPHAN, f"{item.role} holds k{key + 1}, and the schema no {item.role}"
                        )
                if found is not None:
                    return found
        return None

    def misread(self, _at: int, _db: Database) -> Anomaly | None:
        """Nothing: which range a change belongs to is a question of ids, not of values."""
        return None

    def _misread(self, item: Binding, db: Database, key: int) -> Anomaly | None:
        value, truth = db[item.space][key], db[self.spaces + item.truth][key]
        name = f"k{key + 1} of {item.table}"
        if value != truth:
            was = "is there, but was deleted" if truth == NO_ROW else f"has a={truth}, but is not found"
            if NO_ROW not in (value, truth):
                was = f"reads a={value}, but {truth} was written"
            return Anomaly(AnomalyKind.ORPHAN if truth == NO_ROW else AnomalyKind.INTEGRITY, f"{name} {was}")
        if item.fits and value == 1:
            return Anomaly(AnomalyKind.INTEGRITY, f"{name} has a=1, which the partition does not take")
        return None

    def _shared(self, item: Binding) -> bool:
        """Whether another space holds, or is to hold, the same rows under the same name."""
        return any(other.truth == item.truth and other.space != item.space for other in self.bindings)

    def _orphan(self, item: Binding, db: Database, key: int) -> Anomaly | None:
        value, truth = db[item.space][key], db[self.spaces + item.truth][key]
        if value != truth:
            return Anomaly(AnomalyKind.ORPHAN, f"{item.role} has k{key + 1} with a={value}, which is not the row's")
        return None

    def show(self, db: Database) -> str:
        """The rows of each space in one line, a space called by the roles that lead to it."""
        parts = []
        for space in range(self.spaces):
            names = "/".join(item.role for item in self.bindings if item.space == space)
            rows = [f"k{key + 1} (a={value})" for key, value in enumerate(db[space]) if value != NO_ROW]
            if rows:
                parts.append(f"{names}: {', '.join(rows)}")
        return "; ".join(parts) or "nothing"
