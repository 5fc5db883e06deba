"""The properties of a table that its bytes depend on: ids, types, collations, keys, the kind of handle.

    TableLayout
      columns        by id; names play no part
      int_handle     the id of the integer primary key that is the handle, or
      common_handle  the primary key whose columns are the handle, or neither: rows have a hidden number
      indexes        parts by column id and length of the prefix

`restored(column)` is true if the sort key of a column loses information, so that index entries keep the original.

Source: TiDB pkg/meta/model (TableInfo), pkg/types (NeedRestoredData).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.table import ColumnType

WHOLE: Final = -1
"""The prefix length of a part that takes the whole column."""
TRIMMED: Final = frozenset({"ascii_bin", "latin1_bin", "utf8_bin", "utf8mb4_bin"})
"""Collations whose sort key is the string itself without its trailing spaces."""
_VARCHARS: Final = frozenset({MysqlType.VARCHAR, MysqlType.VAR_STRING})
_KEEPS_SPACES: Final = "utf8mb4_0900_bin"


class ColumnLayout(msgspec.Struct, frozen=True):
    """A column. `keeps_null`: its NULLs are written, since a missing value would mean its default."""

    id: int
    type: ColumnType
    collation: str = "utf8mb4_bin"
    primary: bool = False
    virtual: bool = False
    keeps_null: bool = False
    writable: bool = True
    """False in the states delete-only and delete-reorganization, in which a column is not written."""


class IndexPart(msgspec.Struct, frozen=True):
    """A column of an index; `length` counts characters, or bytes of binary strings."""

    column_id: int
    length: int = WHOLE


class IndexLayout(msgspec.Struct, frozen=True):
    """An index; a `global_index` of a partitioned table is stored under the table's id and names the partition."""

    id: int
    parts: tuple[IndexPart, ...]
    unique: bool = False
    global_index: bool = False


@dataclass(frozen=True)
class TableLayout:
    """A table, or one partition of it with the partition's `id`."""

    id: int
    columns: tuple[ColumnLayout, ...]
    indexes: tuple[IndexLayout, ...] = ()
    int_handle: int | None = None
    common_handle: IndexLayout | None = None
    common_handle_version: int = 1
    new_collation: bool = True

    @cached_property
    def by_id(self) -> dict[int, ColumnLayout]:
        return {column.id: column for column in self.columns}

    @cached_property
    def index_by_id(self) -> dict[int, IndexLayout]:
        return {index.id: index for index in self.indexes}

    def restored(self, column: ColumnLayout) -> bool:
        """Return whether index entries keep the original value of this column."""
        if not self.new_collation or column.type.code not in STRINGS or column.collation == "binary":
            return False
        if column.collation == _KEEPS_SPACES:
            return False
        return column.collation not in TRIMMED or column.type.code in _VARCHARS

    @cached_property
    def whole_handle_columns(self) -> frozenset[int]:
        """The columns whose value the handle holds completely, so that a row need not repeat it."""
        if self.int_handle is not None:
            return frozenset({self.int_handle})
        parts = self.common_handle.parts if self.common_handle else ()
        whole = (self.by_id[part.column_id] for part in parts if part.length == WHOLE)
        return frozenset(column.id for column in whole if not self.restored(column))
