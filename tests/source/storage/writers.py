"""TiCDC's writers of files, as they behave when they crash: what they leave, and what they write again.

    classic    index, then data; a number whose file is missing or empty is taken again
    newarch    data, then index; a number is never taken twice; several dispatchers share a table

    rows ─► files of a flush, table by table ─► metadata            a crash: anywhere between two writes, or amid one

A restarted writer begins behind the checkpoint of `metadata` and repeats what it had written above it.  Days change at
any time, a classic owner may write a lower checkpoint.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.source.storage.kit import Made

Line = tuple[int, str]
"""commit_ts, and the line as `Made.rows` takes it."""
DAYS = ("2026-08-20", "2026-08-21", "2026-08-22")
TABLES = ("t", "u")


class Crashed(Exception):
    """The writer dies here."""


def history(dice: random.Random, count: int) -> dict[str, list[Line]]:
    """Rows of two tables in commit order: several of one commit_ts, keys that come, change and go."""
    found: dict[str, list[Line]] = {table: [] for table in TABLES}
    held: dict[str, set[int]] = {table: set() for table in TABLES}
    ts = 10
    for number in range(count):
        ts += dice.randint(1, 3)
        for table in dice.sample(TABLES, dice.randint(1, 2)):
            for key in dice.sample(range(8), dice.randint(1, 3)):
                word = "I" if key not in held[table] else dice.choice("UUD")
                (held[table].discard if word == "D" else held[table].add)(key)
                found[table].append((ts, f'{word},{ts},{key},"v{number}\r\n"'))
    return found


@dataclass
class Writer:
    """One writer of a place; `new` tells its architecture."""

    made: Made
    rows: dict[str, list[Line]]
    dice: random.Random
    new: bool
    indexes: bool = True
    failing: float = 0.0
    """This share of index writes fails, which the writer takes no notice of."""
    dispatchers: Sequence[str] = ("",)
    pause: Callable[[], None] = lambda: None
    """Called between two writes."""
    read: Callable[[], None] | None = None
    """Called before a crash after which the next writer writes over a file: what nobody has read of it is lost."""
    checkpoint: int = 1
    day: int = 0
    written: dict[str, int] = field(default_factory=dict)
    _stale: bool = False
    """An index of this day lacks a file: the next writer would go by the index, and write over it."""

    @property
    def last(self) -> int:
        """The commit_ts of the last row."""
        return max(some[-1][0] for some in self.rows.values())

    def live(self, chance: float) -> None:
        """Write until the end, or until a crash: each write has this chance of it."""
        at = self.checkpoint
        self._numbers = dict[str, int]()
        while at < self.last:
            upto = min(at + self.dice.randint(1, 12), self.last)
            for path, number, lines in self._files(at, upto):
                self._write(path, number, lines, chance)
            at = upto
            if self.dice.random() < 0.2:
                self._stale &= self.day == len(DAYS) - 1
                self.day = min(self.day + 1, len(DAYS) - 1)
            if self.dice.random() < 0.6 or at == self.last:
                self._crash(chance)
                self.checkpoint = at
                self.made.checkpoint(at)

    def _files(self, after: int, upto: int) -> Iterator[tuple[str, str, list[str]]]:
        """The files of a flush: directory, writer's name in files, lines."""
        for table, rows in self.rows.items():
            some = [(ts, line) for ts, line in rows if after < ts <= upto]
            for nth, dispatcher in enumerate(self.dispatchers):
                mine = [line for _, line in some if int(line.split(",")[2]) % len(self.dispatchers) == nth]
                if mine:
                    yield f"shop/{table}/1/{DAYS[self.day]}", dispatcher and f"_{dispatcher}_", mine

    def _write(self, directory: str, name: str, lines: list[str], chance: float) -> None:
        table = directory.split("/")[1]
        number = self._next(directory, name)
        path, index = f"{directory}/CDC{name}{number:020d}.csv", f"{directory}/meta/CDC{name.rstrip('_')}.index"
        steps = ["data", "index"] if self.new else ["index", "data"]
        for step in steps:
            self._crash(chance)
            if step == "index":
                if self.failing and self.dice.random() < self.failing:
                    self._stale = True
                elif self.indexes:
                    self.made.put(index, f"{path.rpartition('/')[2]}\n")
                continue
            self.made.rows(path, *lines, table=table)
            if self.dice.random() < chance and not self._stale:
                whole = (self.made.root / path).read_bytes()
                self.made.put(path, whole[: self.dice.randrange(len(whole))])
                raise Crashed
        self._numbers[directory + name] = number

    def _next(self, directory: str, name: str) -> int:
        """The number of the next file: behind those that are there; a classic writer goes by its index."""
        if directory + name in self._numbers:
            return self._numbers[directory + name] + 1
        here = self.made.root / directory
        there = [int(path.stem.rpartition("_")[2].removeprefix("CDC")) for path in here.glob(f"CDC{name}0*.csv")]
        if self.new or not self.indexes:
            return max(there, default=0) + 1
        index = here / "meta" / "CDC.index"
        last = int(index.read_text().strip().removeprefix("CDC").removesuffix(".csv")) if index.exists() else 0
        file = here / f"CDC{last:020d}.csv"
        return last + 1 if file.exists() and file.stat().st_size else max(last, 1)

    def _crash(self, chance: float) -> None:
        self.pause()
        if self.dice.random() < chance and (self.read or not self._stale):
            if self._stale and self.read:
                self.read()
            raise Crashed
