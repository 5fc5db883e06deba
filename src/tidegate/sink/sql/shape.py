"""How a table is written: its columns, the key by which rows are found, and whether rows may meet in another key.

    CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(50) UNIQUE, full VARCHAR(9) AS (..))

    columns     id, mail                 generated columns fill themselves
    key         id                       none: rows are found by all that they hold
    meets       True                     two rows may pass a value of `mail` on to each other
    splits      False                    rows may be written side by side: whole numbers as key, and no other one

A key of whole numbers has one text a value. Texts have several that a collation takes for one ('a', 'A', 'a '), so a
table with such a key is written by one task; within a task the order (fold.py) makes all keys right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tidegate.expr.syntax.tokens import quote_name, quote_names
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Field
from tidegate.model.mysql import INTEGERS, STRINGS, ColumnFlag, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo


@dataclass(frozen=True)
class WrittenTable:
    """A table as its rows are written: the places of the written columns among `fields`, those of its key among them.

    `meets`: rows may meet in a unique key other than `key`."""

    schema: str
    table: str
    fields: tuple[Field, ...]
    places: tuple[int, ...]
    key: tuple[int, ...]
    meets: bool

    @cached_property
    def sql(self) -> str:
        """The table's name in SQL."""
        return quote_names(self.schema, self.table)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The written columns' names in SQL."""
        return tuple(quote_name(self.fields[place].name) for place in self.places)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns' names in SQL."""
        return tuple(quote_name(self.fields[place].name) for place in self.key)


def splits(table: TableInfo) -> bool:
    """Return whether rows of a table may be written side by side."""
    key = [table.column(name) for name in table.handle_key]
    return bool(key) and not meets(table) and all(one is not None and one.type.code in INTEGERS for one in key)


def meets(table: TableInfo) -> bool:
    """Return whether rows may meet in a unique key other than the one by which they are found."""
    key = table.handle_key
    return any((one.unique or one.primary) and one.columns != key for one in table.indexes)


def written_table(table: TableInfo, fields: Sequence[Field]) -> WrittenTable:
    """Return how rows with `fields` are written. SinkRefused for rows that lack a column of the key."""
    places = tuple(at for at, field in enumerate(fields) if not _is_generated(table, field))
    at = {lowered(fields[place].name): place for place in range(len(fields))}
    missing = [name for name in table.handle_key if lowered(name) not in at]
    if missing:
        raise SinkRefused(f"table {table.name}: its rows come without {', '.join(missing)}, a column of its key")
    key = tuple(at[lowered(name)] for name in table.handle_key)
    return WrittenTable(table.name.schema, table.name.table, tuple(fields), places, key, meets(table))


def _is_generated(table: TableInfo, field: Field) -> bool:
    column = table.column(field.name)
    if column is not None and column.generated is not None:
        return True
    return field.flag is not None and bool(field.flag & ColumnFlag.GENERATED)


def is_text(field: Field) -> bool:
    """Return whether a column has a collation, so that equal values may have different bytes."""
    return field.type in STRINGS and not field.binary


def is_json(field: Field) -> bool:
    """Return whether a column holds documents."""
    return field.type == MysqlType.JSON
