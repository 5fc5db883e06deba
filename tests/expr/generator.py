"""Random SQL expressions for which TiDB and MariaDB should agree.

    number ── + - * / DIV % ABS ROUND IF ..      text ── CONCAT LEFT UPPER ..      truth ── = < AND LIKE IN ..

Left out is where the two are known to differ, or where double arithmetic may round differently in the last digit.
"""

import random
from collections.abc import Callable

NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "7",
    "10",
    "-3",
    "0.5",
    "1.50",
    "-2.25",
    "3.333",
    "100",
    "12.0",
    "'5'",
    "'12'",
    "NULL",
    "1e1",
)
TEXTS = ("''", "'a'", "'A'", "'abc'", "'ab '", "'b%'", "'10'", "'x_y'", "'héllo'", "'Zebra'", "NULL")
DATES = (
    "'2024-02-29'",
    "'2023-12-31'",
    "'2024-01-31 23:59:59'",
    "'2000-01-01 00:00:00'",
    "'1999-03-28 01:02:03'",
    "NULL",
)
UNITS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "HOUR", "MINUTE", "SECOND")


class Generator:
    """One seed, one sequence of expressions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers: tuple[Callable[[int], str], ...] = (
            lambda depth: f"({self.number(depth)} {self.pick('+ - *')} {self.number(depth)})",
            lambda depth: f"({self.exact(depth)} / {self.exact(depth)})",
            lambda depth: f"({self.exact(depth)} {self.pick('DIV DIV /')} {self.exact(depth)})",
            lambda depth: f"(- {self.number(depth)})",
            lambda depth: f"ABS({self.number(depth)})",
            lambda depth: f"{self.pick('FLOOR CEIL SIGN')}({self.exact(depth)})",
            lambda depth: f"ROUND({self.exact(depth)}, {self.random.randint(-1, 3)})",
            lambda depth: f"TRUNCATE({self.exact(depth)}, {self.random.randint(-1, 3)})",
            lambda depth: f"IF({self.truth(depth)}, {self.exact(depth)}, {self.exact(depth)})",
            lambda depth: f"IFNULL({self.exact(depth)}, {self.exact(depth)})",
            lambda depth: f"COALESCE({self.exact(depth)}, {self.exact(depth)}, 0)",
            lambda depth: f"{self.pick('LENGTH CHAR_LENGTH ASCII')}({self.text(depth)})",
            lambda depth: f"INSTR({self.text(depth)}, {self.text(depth)})",
            lambda depth: f"{self.pick('YEAR MONTH DAY WEEKDAY DAYOFYEAR QUARTER HOUR TO_DAYS')}({self.date(depth)})",
            lambda depth: f"WEEK({self.date(depth)}, {self.random.randint(0, 7)})",
            lambda depth: f"DATEDIFF({self.date(depth)}, {self.date(depth)})",
            lambda depth: f"TIMESTAMPDIFF({self.random.choice(UNITS)}, {self.date(depth)}, {self.date(depth)})",
            lambda depth: f"(CASE WHEN {self.truth(depth)} THEN {self.exact(depth)} ELSE {self.exact(depth)} END)",
            lambda _depth: f"({self.whole()} {self.pick('& | ^ << >>')} {self.whole()})",
            lambda depth: f"CAST({self.text(depth)} AS SIGNED)",
            lambda depth: f"CAST({self.exact(depth)} AS DECIMAL(20,{self.random.randint(0, 4)}))",
        )
        self.texts: tuple[Callable[[int], str], ...] = (
            lambda depth: f"CONCAT({self.text(depth)}, {self.text(depth)})",
            lambda depth: f"CONCAT_WS('-', {self.text(depth)}, {self.exact(depth)})",
            lambda depth: f"{self.pick('UPPER LOWER REVERSE HEX TRIM LTRIM RTRIM')}({self.text(depth)})",
            lambda depth: f"{self.pick('LEFT RIGHT')}({self.text(depth)}, {self.random.randint(-1, 4)})",
            lambda depth: f"SUBSTRING({self.text(depth)}, {self.random.randint(-3, 4)}, {self.random.randint(-1, 3)})",
            lambda depth: f"{self.pick('LPAD RPAD')}({self.text(depth)}, {self.random.randint(0, 6)}, 'xy')",
            lambda depth: f"REPLACE({self.text(depth)}, {self.text(depth)}, '-')",
            lambda depth: f"REPEAT({self.text(depth)}, {self.random.randint(-1, 2)})",
            lambda depth: f"SUBSTRING_INDEX({self.text(depth)}, 'b', {self.random.randint(-2, 2)})",
            lambda depth: f"IF({self.truth(depth)}, {self.text(depth)}, {self.text(depth)})",
            lambda depth: f"NULLIF({self.text(depth)}, {self.text(depth)})",
            lambda depth: f"CAST({self.exact(depth)} AS CHAR)",
            lambda depth: f"DATE_FORMAT({self.date(depth)}, '{self.pick('%Y-%m-%d %j %a%e %y/%c %H:%i %v,%x %U')}')",
        )
        self.truths: tuple[Callable[[int], str], ...] = (
            lambda depth: f"({self.exact(depth)} {self.pick('= <> < <= > >= <=>')} {self.exact(depth)})",
            lambda depth: f"({self.text(depth)} {self.pick('= <> < <= > >= <=>')} {self.text(depth)})",
            lambda depth: f"({self.truth(depth)} {self.pick('AND OR XOR')} {self.truth(depth)})",
            lambda depth: f"(NOT {self.truth(depth)})",
            lambda depth: f"({self.number(depth)} IS {self.pick('NULL TRUE FALSE')})",
            lambda depth: f"({self.number(depth)} IS NOT {self.pick('NULL TRUE FALSE')})",
            lambda depth: f"({self.exact(depth)} BETWEEN {self.exact(depth)} AND {self.exact(depth)})",
            lambda depth: f"({self.exact(depth)} IN ({self.exact(depth)}, {self.exact(depth)}))",
            lambda depth: f"({self.text(depth)} NOT IN ({self.text(depth)}, {self.text(depth)}))",
            lambda depth: f"({self.text(depth)} LIKE {self.random.choice(TEXTS)})",
        )

    def pick(self, words: str) -> str:
        """One of several words."""
        return self.random.choice(words.split())

    def whole(self) -> str:
        """An integer."""
        return str(self.random.randint(0, 40))

    def number(self, depth: int) -> str:
        """A number, or a text that is one."""
        if depth <= 0 or self.random.random() < 0.2:
            return self.random.choice(NUMBERS)
        return self.random.choice(self.numbers)(depth - 1)

    def exact(self, depth: int) -> str:
        """A number that is no double."""
        return f"CAST({self.number(depth)} AS DECIMAL(20,{self.random.randint(0, 4)}))" if depth > 0 else self.whole()

    def text(self, depth: int) -> str:
        """A text."""
        if depth <= 0 or self.random.random() < 0.3:
            return self.random.choice(TEXTS)
        return self.random.choice(self.texts)(depth - 1)

    def truth(self, depth: int) -> str:
        """A condition."""
        if depth <= 0:
            return self.pick("TRUE FALSE NULL 0 1")
        return self.random.choice(self.truths)(depth - 1)

    def date(self, depth: int) -> str:
        """A date."""
        if depth <= 0 or self.random.random() < 0.4:
            return self.random.choice(DATES)
        amount, unit = self.random.randint(-40, 40), self.random.choice(UNITS)
        if self.random.random() < 0.2:
            return f"LAST_DAY({self.date(depth - 1)})"
        return f"{self.pick('DATE_ADD DATE_SUB')}({self.date(depth - 1)}, INTERVAL {amount} {unit})"

    def expression(self) -> str:
        """Any of them."""
        return self.random.choice((self.number, self.text, self.truth, self.date))(self.random.randint(1, 3))
