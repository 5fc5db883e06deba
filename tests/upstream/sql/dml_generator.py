"""Random changes of random tables, in the SQL that TiDB and MariaDB share.

    Generator(seed).table("t0")     CREATE TABLE with columns of many types, keys and defaults
    Generator(seed).statement()     INSERT, REPLACE, .. ON DUPLICATE KEY UPDATE, UPDATE, DELETE, ALTER

Values come from a small pool with edges in it, so that keys collide and types refuse. Left out is where the two differ
by design: MariaDB cuts fractions of seconds where TiDB rounds, and compares texts with numbers and times that are none
without an error in a change.
"""

import random

KINDS = {
    "int": ["0", "1", "-1", "7", "2147483647", "-2147483648", "2147483648", "'12'", "NULL", "3.5", "'x'"],
    "bigint unsigned": ["0", "5", "18446744073709551615", "-1", "'77'", "NULL"],
    "tinyint": ["1", "127", "128", "-128", "-129", "NULL"],
    "decimal(8,2)": ["0", "1.005", "-1.235", "999999.99", "1000000", "'2.5'", "NULL"],
    "double": ["0", "1.5", "-2.25e10", "'3e2'", "NULL"],
    "varchar(6)": ["''", "'a'", "'A'", "'b '", "'abcdef'", "'abcdefg'", "NULL"],
    "char(4)": ["''", "'ab'", "'ab  '", "'abcd'", "'abcde'", "NULL"],
    "varbinary(4)": ["x''", "x'00ff'", "'ab'", "x'0102030405'", "NULL"],
    "date": ["'2024-02-29'", "'2023-02-29'", "'2024-01-01 10:00:00'", "20240305", "NULL"],
    "datetime(3)": ["'2024-02-29 12:34:56.789'", "'2024-02-29'", "'x'", "NULL"],
    "time": ["'10:20:30'", "'-1:02'", "NULL"],
    "year": ["2024", "1901", "1900", "NULL"],
    "enum('p','q')": ["'p'", "'q'", "2", "'r'", "NULL"],
    "set('u','v')": ["'u'", "'v,u'", "''", "'w'", "NULL"],
}
KEYABLE = ("int", "bigint unsigned", "varchar(6)", "char(4)", "date", "decimal(8,2)")


class Generator:
    """One seed; the tables that it made are remembered with their columns."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tables: dict[str, dict[str, str]] = {}
        self.fresh = 0

    def table(self, name: str) -> str:
        """A table with a primary key of one or two columns, or only a unique one."""
        chance = self.random
        kinds = [chance.choice(KEYABLE), *chance.sample(list(KINDS), chance.randint(2, 5))]
        columns = {f"c{number}": kind for number, kind in enumerate(kinds)}
        self.tables[name] = columns
        parts = [f"{column} {kind}{self._option(column, kind)}" for column, kind in columns.items()]
        keys = ["c0"] if kinds[1] not in KEYABLE or chance.random() < 0.5 else ["c0", "c1"]
        parts.append(f"primary key ({', '.join(keys)})")
        others = [column for column, kind in columns.items() if kind in KEYABLE and column not in keys]
        if others and chance.random() < 0.6:
            parts.append(f"unique key u1 ({chance.choice(others)})")
        parts.append(f"key k1 ({chance.choice(list(columns))})")
        return f"create table {name} ({', '.join(parts)}) charset utf8mb4 collate utf8mb4_bin"

    def statement(self) -> str:
        """The next change."""
        chance = self.random
        makers = [self._insert, self._replace, self._on_duplicate, self._update, self._delete, self._alter]
        return chance.choices(makers, [8, 3, 4, 5, 3, 1])[0](chance.choice(list(self.tables)))

    def _option(self, column: str, kind: str) -> str:
        if column == "c0" or self.random.random() < 0.6:
            return ""
        good = {"int": "3", "double": "1.5", "varchar(6)": "'dflt'", "tinyint": "9", "date": "'2020-01-01'"}
        return f" not null default {good[kind]}" if kind in good else ""

    def _value(self, kind: str) -> str:
        return self.random.choice(KINDS[kind])

    def _key(self, kind: str) -> str:
        return self.random.choice([value for value in KINDS[kind] if value != "NULL"])

    def _insert(self, table: str, verb: str = "insert into", share: float = 0.8) -> str:
        columns = self.tables[table]
        chosen = ["c0", *(column for column in columns if column != "c0" and self.random.random() < share)]
        rows = [
            "("
            + ", ".join(self._key(columns[one]) if one == "c0" else self._value(columns[one]) for one in chosen)
            + ")"
            for _ in range(self.random.randint(1, 3))
        ]
        return f"{verb} {table} ({', '.join(chosen)}) values {', '.join(rows)}"

    def _replace(self, table: str) -> str:
        return self._insert(table, "replace into")

    def _on_duplicate(self, table: str) -> str:
        columns = self.tables[table]
        column = self.random.choice([one for one in columns if one != "c0"])
        value = self.random.choice([f"values({column})", self._value(columns[column])])
        return f"{self._insert(table, share=1)} on duplicate key update {column} = {value}"

    def _where(self, table: str) -> str:
        columns = self.tables[table]
        column = self.random.choice(list(columns))
        good = [value for value in KINDS[columns[column]] if value not in ("NULL", "'x'")]
        test = self.random.choice(["= {}", "<> {}", "< {}", "is null", "in ({}, {})"])
        return f"{column} {test.format(self.random.choice(good), self.random.choice(good))}"

    def _update(self, table: str) -> str:
        columns = self.tables[table]
        column = self.random.choice(list(columns))
        value = self._key(columns[column]) if column == "c0" else self._value(columns[column])
        return f"update {table} set {column} = {value} where {self._where(table)}"

    def _delete(self, table: str) -> str:
        return f"delete from {table} where {self._where(table)}"

    def _alter(self, table: str) -> str:
        columns, chance = self.tables[table], self.random
        self.fresh += 1
        kind = chance.choice(["int", "varchar(6)", "decimal(8,2)", "date", "enum('p','q')"])
        name = f"d{self.fresh}"
        added = [column for column in columns if column.startswith("d")]
        if added and chance.random() < 0.4:
            columns.pop(added[0])
            return f"alter table {table} drop column {added[0]}"
        columns[name] = kind
        place = chance.choice(["", " first", " after c0"])
        return f"alter table {table} add column {name} {kind}{place}"
