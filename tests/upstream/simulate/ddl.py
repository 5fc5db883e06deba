"""DDL statements of every kind, drawn for the tables as some node knows them.

kinds of tables     t1, t2, t3 ..  rows are modelled            p1, p2  partitions            x1, x2  to be exchanged
columns             id, and others named c0 .. c5                indexes  i0 .. i3
"""

from collections.abc import Callable
from random import Random

from tests.upstream.simulate.dml import shown
from tests.upstream.simulate.values import NUMBERS, TYPES, family_of, kind_of, kind_of_type, literal
from tidegate.schema.stored.definition import ElementState, StoredColumn, StoredPartitionDef, StoredTable

_LABELS = ",".join(f"'v{number}'" for number in NUMBERS)
_PARTS = ", ".join(f"partition q{at} values less than ({high})" for at, high in enumerate((4, 8, 12)))
SETUP = (
    "create table t1 (id int primary key, c0 int, c1 varchar(20) default '3', key i0 (c0), unique key i1 (c1))",
    "create table t2 (id int not null, c0 int not null default 4, c1 datetime, unique key i0 (id))",
    f"create table t3 (id int, c0 varchar(20) not null, c1 enum({_LABELS}), primary key (id, c0), key i0 (c1, c0))",
    f"create table p1 (id int primary key, c0 int, key i0 (c0)) partition by range (id) ({_PARTS})",
    "create table x1 (id int primary key, c0 int, key i0 (c0))",
)
NAMES = tuple(f"c{number}" for number in range(6))
INDEXES = tuple(f"i{number}" for number in range(4))
MODELLED = ("t1", "t2", "t3", "t4", "t5")


class Draw:
    """What may be asked for; `tables` are the definitions by name, `dropped` the names of those that went."""

    def __init__(self, random: Random, tables: dict[str, StoredTable], dropped: list[str]) -> None:
        self.random, self.tables, self.dropped, self.whole = random, tables, dropped, True

    def statement(self) -> tuple[str, str]:
        """(kind, SQL); the SQL may be refused, as people's is."""
        kinds: list[tuple[int, Callable[[], str]]] = [
            (14, self.add_column),
            (10, self.drop_column),
            (16, self.modify_column),
            (4, self.not_null),
            (4, self.rename_column),
            (12, self.add_index),
            (9, self.add_unique),
            (3, self.prefix_index),
            (3, self.expression_index),
            (5, self.primary_key),
            (8, self.drop_index),
            (3, self.set_default),
            (7, self.several),
            (4, self.truncate),
            (4, self.rename_table),
            (4, self.create_table),
            (4, self.drop_table),
            (6, self.recover_table),
            (3, self.add_partition),
            (3, self.drop_partition),
            (3, self.truncate_partition),
            (5, self.reorganize),
            (5, self.exchange),
            (3, self.partition_by),
            (2, self.remove_partitioning),
        ]
        chosen = self.random.choices([draw for _, draw in kinds], [weight for weight, _ in kinds])[0]
        return chosen.__name__, chosen()

    # --- tables and their parts ---

    def table(self, prefix: str = "") -> StoredTable:
        """One of the tables, the modelled ones more often."""
        found = sorted(name for name in self.tables if name.startswith(prefix))
        weights = [4 if name in MODELLED else 1 for name in found]
        return self.tables[self.random.choices(found, weights)[0]] if found else self.tables[min(self.tables)]

    def column(self, stored: StoredTable) -> StoredColumn:
        """One of its columns but `id`."""
        columns = [one for one in shown(stored) if one.name.lower != "id"]
        return self.random.choice(columns or shown(stored))

    def numbered(self, kind: str) -> str:
        """A literal."""
        return literal(kind, self.random.choice(NUMBERS))

    def alter(self, stored: StoredTable, what: str) -> str:
        """The statement."""
        return f"alter table {stored.name.lower} {what}"

    # --- columns ---

    def new_column(self) -> str:
        """A definition with name and default."""
        kind = self.random.choice(TYPES)
        default = f" default {self.numbered(kind_of_type(kind))}" if self.random.random() < 0.7 else ""
        if kind == "json":
            default = ""
        null = " not null" if default and self.random.random() < 0.5 else ""
        return f"{self.random.choice(NAMES)} {kind}{null}{default}"

    def add_column(self) -> str:
        """ADD COLUMN, somewhere."""
        stored = self.table()
        place = self.random.choice(["", "", " first", f" after {self.column(stored).name.lower}"])
        return self.alter(stored, f"add column {self.new_column()}{place}")

    def drop_column(self) -> str:
        """DROP COLUMN."""
        stored = self.table()
        return self.alter(stored, f"drop column {self.column(stored).name.lower}")

    def modify_column(self) -> str:
        """MODIFY and CHANGE COLUMN to a type that keeps the numbers."""
        stored = self.table()
        column = self.column(stored)
        kind = self.random.choice(family_of(column))
        null = " not null" if column.type.flag & 1 and (not self.whole or self.random.random() < 0.7) else ""
        place = self.random.choice(["", "", "", " first", " after id"])
        if self.random.random() < 0.2:
            name = self.random.choice(NAMES)
            return self.alter(stored, f"change column {column.name.lower} {name} {kind}{null}{place}")
        return self.alter(stored, f"modify column {column.name.lower} {kind}{null}{place}")

    def not_null(self) -> str:
        """MODIFY COLUMN .. NOT NULL."""
        stored = self.table()
        column = self.column(stored)
        return self.alter(stored, f"modify column {column.name.lower} {self.type_of(column)} not null")

    def type_of(self, column: StoredColumn) -> str:
        """About the type that it has."""
        known = {3: "int", 8: "bigint", 2: "smallint", 5: "double", 12: "datetime", 10: "date", 15: "varchar(40)"}
        return known.get(column.type.tp, self.random.choice(family_of(column)))

    def rename_column(self) -> str:
        """RENAME COLUMN."""
        stored = self.table()
        return self.alter(stored, f"rename column {self.column(stored).name.lower} to {self.random.choice(NAMES)}")

    def set_default(self) -> str:
        """ALTER COLUMN .. SET DEFAULT."""
        stored = self.table()
        column = self.column(stored)
        return self.alter(stored, f"alter column {column.name.lower} set default {self.numbered(kind_of(column))}")

    # --- indexes ---

    def _index(self, what: str, part: Callable[[StoredColumn], str]) -> str:
        stored = self.table()
        columns = {self.column(stored).name.lower: self.column(stored) for _ in range(self.random.choice([1, 1, 2]))}
        parts = ", ".join(part(one) for one in {one.name.lower: one for one in columns.values()}.values())
        return self.alter(stored, f"add {what} {self.random.choice(INDEXES)} ({parts})")

    def add_index(self) -> str:
        """ADD INDEX."""
        return self._index("index", lambda column: column.name.lower)

    def add_unique(self) -> str:
        """ADD UNIQUE INDEX."""
        return self._index(
            "unique index",
            lambda column: f"{column.name.lower}, id" if self.random.random() < 0.6 else column.name.lower,
        )

    def prefix_index(self) -> str:
        """ADD INDEX of the first letters."""
        return self._index("index", lambda one: f"{one.name.lower}(1)" if kind_of(one) == "text" else one.name.lower)

    def expression_index(self) -> str:
        """ADD INDEX of an expression."""
        return self._index(
            "index",
            lambda one: f"(concat({one.name.lower}, 'x'))" if kind_of(one) == "text" else f"({one.name.lower} + 1)",
        )

    def primary_key(self) -> str:
        """ADD and DROP PRIMARY KEY."""
        stored = self.tables.get("t2") or self.table()
        if any(one.is_primary for one in stored.index_info or []):
            return self.alter(stored, "drop primary key")
        return self.alter(stored, "add primary key (id) nonclustered")

    def drop_index(self) -> str:
        """DROP INDEX."""
        stored = self.table()
        names = [one.idx_name.lower for one in stored.index_info or [] if not one.is_primary] or ["i0"]
        return self.alter(stored, f"drop index {self.random.choice(names)}")

    def several(self) -> str:
        """Changes of which none is public long before the job is done, or a feed would miss what is written then."""
        stored = self.table()
        groups = (
            (self.add_column, self.add_index, self.add_unique),
            (self.drop_column, self.drop_index, self.modify_column),
        )
        parts = self.random.sample(self.random.choice(groups), 2)
        own = Draw(self.random, {stored.name.lower: stored}, [])
        own.whole = False
        prefix = self.alter(stored, "")
        texts = [getattr(own, part.__name__)().removeprefix(prefix) for part in parts]
        return self.alter(stored, ", ".join(texts))

    # --- tables ---

    def truncate(self) -> str:
        """TRUNCATE TABLE."""
        return f"truncate table {self.table().name.lower}"

    def rename_table(self) -> str:
        """RENAME TABLE; now and then two tables change places in one statement."""
        known = sorted(name for name in self.tables if name.startswith("t"))
        if len(known) > 1 and self.random.random() < 0.3:
            one, other = self.random.sample(known, 2)
            return f"rename table {one} to swap, {other} to {one}, swap to {other}"
        free = [name for name in MODELLED if name not in self.tables]
        return f"rename table {self.table('t').name.lower} to {self.random.choice(free or ['t1'])}"

    def create_table(self) -> str:
        """CREATE TABLE, CREATE TABLE LIKE."""
        name = self.random.choice([name for name in MODELLED if name not in self.tables] or ["t1"])
        if self.random.random() < 0.2:
            return f"create table {name} like {self.table('t').name.lower}"
        column = self.new_column()
        key = "id" if "json" in column else column.split()[0]
        return f"create table {name} (id int primary key, {column}, key i0 ({key}))"

    def drop_table(self) -> str:
        """DROP TABLE."""
        return f"drop table {self.table('t').name.lower}"

    def recover_table(self) -> str:
        """RECOVER TABLE, where there is one to recover."""
        return f"recover table {self.random.choice(self.dropped)}" if self.dropped else self.drop_table()

    # --- partitions ---

    def _parted(self) -> tuple[StoredTable, StoredPartitionDef]:
        found = [one for _, one in sorted(self.tables.items()) if one.partition is not None and one.partition.enable]
        stored = self.random.choice(found or [self.table("p")])
        parts = stored.partition.definitions if stored.partition else None
        return stored, self.random.choice(parts) if parts else StoredPartitionDef(0, stored.name)

    def add_partition(self) -> str:
        """ADD PARTITION."""
        stored, part = self._parted()
        last = stored.partition.definitions[-1] if stored.partition and stored.partition.definitions else part
        high = int(last.less_than[0]) if last.less_than else 12
        name = f"q{self.random.randrange(3, 20)}"
        return self.alter(
            stored, f"add partition (partition {name} values less than ({high + self.random.choice([1, 4])}))"
        )

    def drop_partition(self) -> str:
        """DROP PARTITION."""
        stored, part = self._parted()
        return self.alter(stored, f"drop partition {part.name.lower}")

    def truncate_partition(self) -> str:
        """TRUNCATE PARTITION."""
        stored, part = self._parted()
        return self.alter(stored, f"truncate partition {part.name.lower}")

    def reorganize(self) -> str:
        """REORGANIZE PARTITION: one into two, or two into one."""
        stored, part = self._parted()
        parts = (stored.partition.definitions if stored.partition else None) or [part]
        at, high = parts.index(part), int(part.less_than[0]) if part.less_than else 12
        low = int(parts[at - 1].less_than[0]) if at and parts[at - 1].less_than else 0
        names = [f"q{number}" for number in self.random.sample(range(3, 40), 2)]
        if at and self.random.random() < 0.4:
            old = f"{parts[at - 1].name.lower}, {part.name.lower}"
            return self.alter(
                stored, f"reorganize partition {old} into (partition {names[0]} values less than ({high}))"
            )
        middle = max((low + high) // 2, low + 1)
        new = f"partition {names[0]} values less than ({middle}), partition {names[1]} values less than ({high})"
        return self.alter(stored, f"reorganize partition {part.name.lower} into ({new})")

    def exchange(self) -> str:
        """EXCHANGE PARTITION."""
        stored, part = self._parted()
        return self.alter(stored, f"exchange partition {part.name.lower} with table x1")

    def partition_by(self) -> str:
        """PARTITION BY."""
        ways = (
            "hash (id) partitions 3",
            "range (id) (partition q0 values less than (5), partition q1 values less than (20))",
        )
        return self.alter(
            self._parted()[0] if self.random.random() < 0.7 else self.table("p"),
            f"partition by {self.random.choice(ways)}",
        )

    def remove_partitioning(self) -> str:
        """REMOVE PARTITIONING."""
        return self.alter(self._parted()[0], "remove partitioning")


def public(tables: dict[str, StoredTable]) -> dict[str, StoredTable]:
    """Those that statements can name."""
    return {name: one for name, one in tables.items() if one.state == ElementState.PUBLIC}
