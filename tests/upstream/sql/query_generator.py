"""Random queries over the tables of tests/expr/kit.py, written so that TiDB and MariaDB agree on rows and columns.

SELECT [DISTINCT] items FROM t a [JOIN u b ON ..]* [WHERE ..] [GROUP BY ..] [HAVING ..]      rows in any order
"""

import random

COLUMNS = {"t": ("id", "a", "s", "d"), "u": ("id", "b")}
TEXTS = {"s", "b"}
AGGREGATES = ("COUNT({})", "COUNT(DISTINCT {})", "MIN({})", "MAX({})", "SUM({})", "AVG({})", "COUNT(*)")


class Generator:
    """One seed, one sequence of queries."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sources: list[tuple[str, str]] = []

    def query(self) -> str:
        """A query of up to three sources."""
        self.sources = []
        text = f"{self.clause_from()}{self.clause_where()}"
        return self.grouped(text) if self.random.random() < 0.4 else self.plain(text)

    def clause_from(self) -> str:
        """One to three sources, joined."""
        parts = [self.source()]
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            kind = self.random.choice(("JOIN", "LEFT JOIN", "CROSS JOIN", ","))
            if "," in parts:
                kind = ","
            parts += [kind, self.source()]
            if kind in {"JOIN", "LEFT JOIN"}:
                parts.append(f"ON {self.join_condition()}")
        return " ".join(parts)

    def source(self) -> str:
        """A table under a new alias."""
        table = self.random.choice(tuple(COLUMNS))
        alias = f"{table}{len(self.sources)}"
        self.sources.append((alias, table))
        return f"{table} {alias}"

    def join_condition(self) -> str:
        """Equal ids, and sometimes more."""
        (new, table), (old, other) = self.sources[-1], self.random.choice(self.sources[:-1])
        parts = [f"{old}.id = {new}.id"]
        if self.random.random() < 0.4:
            parts.append(self.condition([(new, table), (old, other)]))
        return " AND ".join(parts)

    def column(self, sources: list[tuple[str, str]], *, text: bool | None = None) -> str:
        """A column of one of the sources."""
        while True:
            alias, table = self.random.choice(sources)
            name = self.random.choice(COLUMNS[table])
            if text is None or (name in TEXTS) is text:
                return f"{alias}.{name}"

    def condition(self, sources: list[tuple[str, str]]) -> str:
        """A comparison of columns and literals of one kind."""
        number, sign = str(self.random.randint(0, 25)), self.random.choice(("=", "<>", "<", "<=", ">", "<=>"))
        match self.random.randint(0, 6):
            case 0:
                return f"{self.column(sources, text=False)} {sign} {number}"
            case 1:
                return f"{self.column(sources, text=False)} {sign} {self.column(sources, text=False)}"
            case 2:
                return f"{self.column(sources, text=True)} {sign} '{self.random.choice(('x', 'y', 'two', 'nine'))}'"
            case 3:
                return f"{self.column(sources)} IS {self.random.choice(('', 'NOT '))}NULL"
            case 4:
                return f"{self.column(sources, text=False)} IN (1, 2, {number})"
            case 5:
                return f"({self.condition(sources)} OR NOT {self.condition(sources)})"
            case _:
                return f"{self.column(sources, text=True)} LIKE '%{self.random.choice('xyne')}%'"

    def clause_where(self) -> str:
        """Conditions."""
        parts = [self.condition(self.sources) for _ in range(self.random.choice((0, 0, 1, 2)))]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def plain(self, rest: str) -> str:
        """A select list of columns."""
        items = [self.column(self.sources) for _ in range(self.random.randint(1, 3))]
        distinct = "DISTINCT " if self.random.random() < 0.2 and not any(item.endswith(".s") for item in items) else ""
        return f"SELECT {distinct}{', '.join(items)} FROM {rest}"

    def grouped(self, rest: str) -> str:
        """A select list of aggregates."""
        key = self.column(self.sources, text=False)
        calls = [self.random.choice(AGGREGATES).format(self.column(self.sources, text=False)) for _ in range(2)]
        having = f" HAVING COUNT(*) > {self.random.randint(0, 2)}" if self.random.random() < 0.3 else ""
        if self.random.random() < 0.3:
            return f"SELECT {', '.join(calls)} FROM {rest}"
        return f"SELECT {key}, {', '.join(calls)} FROM {rest} GROUP BY {key}{having}"
