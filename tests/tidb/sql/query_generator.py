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
        self.depth = 0

    def query(self) -> str:
        """A query of up to three sources."""
        outer, self.sources = self.sources, []
        self.depth += 1
        text = f"{self.clause_from()}{self.clause_where(outer)}"
        grouped = self.random.random() < 0.4
        text = f"{self.grouped(text) if grouped else self.plain(text)}"
        self.sources = outer
        self.depth -= 1
        return text

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
        """A table or a derived one, under a new alias."""
        table = self.random.choice(tuple(COLUMNS))
        alias = f"{table}{self.depth}{len(self.sources)}"
        self.sources.append((alias, table))
        if self.random.random() < 0.15:
            return f"(SELECT * FROM {table} WHERE id {self.random.choice(('<', '>=', '<>'))} 2) {alias}"
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

    def clause_where(self, outer: list[tuple[str, str]]) -> str:
        """Conditions; inside a subquery one that names the outer query."""
        parts = [self.condition(self.sources + outer) for _ in range(self.random.choice((0, 0, 1, 2)))]
        if outer:
            parts.append(f"{self.column(self.sources, text=False)} = {self.column(outer, text=False)}")
        if self.depth == 1 and self.random.random() < 0.4:
            parts.append(self.subquery())
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def subquery(self) -> str:
        """EXISTS or IN."""
        held = list(self.sources)
        if self.random.random() < 0.5:
            return f"{self.random.choice(('', 'NOT '))}EXISTS ({self.query()})"
        table = self.random.choice(tuple(COLUMNS))
        left = self.column(held, text=False)
        inner = f"SELECT z.id FROM {table} z WHERE {self.condition([('z', table), *held])}"
        return f"{left} {self.random.choice(('IN', 'NOT IN'))} ({inner})"

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
