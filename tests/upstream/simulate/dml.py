"""Statements about rows, drawn for a definition as some node has it: data first, SQL text second.

Change("replace", "t1", ("id", "a"), ((3, 5), (4, None)))     REPLACE INTO t1 (id, a) VALUES (3, 5), (4, NULL)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from tests.upstream.simulate.values import NUMBERS, kind_of, literal
from tidegate.schema.stored.definition import ElementState, StoredColumn, StoredTable

IDS = range(1, 13)
_NOT_NULL = 1
_VERBS = {"insert": "INSERT INTO", "ignore": "INSERT IGNORE INTO", "replace": "REPLACE INTO", "upsert": "INSERT INTO"}


@dataclass(frozen=True)
class Change:
    """A statement; `sets` belong to UPDATE and ON DUPLICATE KEY UPDATE, `where` is (column, number) or None for all."""

    verb: str
    table: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[int | None, ...], ...] = ()
    sets: Mapping[str, int | None] = field(default_factory=dict)
    where: tuple[str, int | None] | None = None

    def text(self, stored: StoredTable) -> str:
        """The SQL for a definition of the table."""
        kinds = {column.name.lower: kind_of(column) for column in stored.cols or []}
        where = "" if self.where is None else " WHERE " + _equals(kinds, *self.where)
        sets = ", ".join(f"{name} = {literal(kinds[name], number)}" for name, number in self.sets.items())
        if self.verb == "select":
            return f"SELECT * FROM {self.table}{where}"
        if self.verb == "update":
            return f"UPDATE {self.table} SET {sets}{where}"
        if self.verb == "delete":
            return f"DELETE FROM {self.table}{where}"
        pairs = [zip(self.columns, row, strict=True) for row in self.rows]
        values = ", ".join(f"({', '.join(literal(kinds[name], number) for name, number in row)})" for row in pairs)
        tail = f" ON DUPLICATE KEY UPDATE {sets}" if self.verb == "upsert" else ""
        return f"{_VERBS[self.verb]} {self.table} ({', '.join(self.columns)}) VALUES {values}{tail}"


def _equals(kinds: Mapping[str, str], name: str, number: int | None) -> str:
    return f"{name} IS NULL" if number is None else f"{name} = {literal(kinds[name], number)}"


def shown(stored: StoredTable) -> list[StoredColumn]:
    """The columns that statements can name."""
    return [one for one in stored.cols or [] if one.state == ElementState.PUBLIC and not one.hidden]


def draw_change(random: Random, stored: StoredTable) -> Change:
    """Some statement about the table."""
    verb = random.choices(
        ["insert", "ignore", "replace", "upsert", "update", "delete", "select"], [28, 6, 14, 12, 28, 14, 10]
    )[0]
    columns, table = shown(stored), stored.name.lower
    if verb in ("update", "delete", "select"):
        where = _draw_where(random, columns)
        if where is None and verb == "delete" and random.random() < 0.8:
            where = ("id", random.choice(IDS))
        return Change(verb, table, sets=_draw_sets(random, columns) if verb == "update" else {}, where=where)
    named = [one for one in columns if one.name.lower == "id" or random.random() < 0.8 or not _may_miss(one)]
    rows = tuple(tuple(_given(random, one, verb) for one in named) for _ in range(random.choice([1, 1, 2, 3])))
    sets = _draw_sets(random, columns) if verb == "upsert" else {}
    return Change(verb, table, tuple(one.name.lower for one in named), rows, sets)


def _draw_where(random: Random, columns: list[StoredColumn]) -> tuple[str, int | None] | None:
    roll = random.random()
    if roll < 0.1:
        return None
    column = columns[0] if roll < 0.6 else random.choice(columns)
    usable = column.type.tp != 245  # JSON is compared in its own way
    return (column.name.lower, _draw(random, column)) if usable else ("id", random.choice(IDS))


def _draw_sets(random: Random, columns: list[StoredColumn]) -> dict[str, int | None]:
    chosen = random.sample(columns, min(len(columns), random.choice([1, 1, 2])))
    return {one.name.lower: _draw(random, one) for one in chosen}


def _given(random: Random, column: StoredColumn, verb: str) -> int | None:
    """A number for INSERT; IGNORE would make a NULL the empty text, which is 0 to the model and not '0' to WHERE."""
    number = _draw(random, column)
    empty = number is None and verb == "ignore" and kind_of(column) == "text" and column.type.flag & _NOT_NULL
    return 0 if empty else number


def _draw(random: Random, column: StoredColumn) -> int | None:
    if column.name.lower == "id":
        return random.choice(IDS)
    null = random.random() < (0.02 if column.type.flag & _NOT_NULL else 0.1)
    return None if null else random.choice(NUMBERS)


def _may_miss(column: StoredColumn) -> bool:
    return column.default is not None or not column.type.flag & _NOT_NULL
