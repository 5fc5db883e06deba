"""The flag bits of column types that follow from other parts of a definition: keys, nullability, defaults.

    key                            bit on
    PRIMARY KEY (a, b)             PRIMARY on a and b
    UNIQUE (a)                     UNIQUE on a
    UNIQUE (a, b), KEY (a, b)      MULTIPLE on a

Source: TiDB pkg/ddl/index.go (AddIndexColumnFlag, DropIndexColumnFlag); pkg/parser/mysql/type.go.
"""

from typing import Final

import msgspec

from tidegate.schema.change.draft import with_flag
from tidegate.schema.stored.definition import StoredIndex, StoredTable

NOT_NULL: Final = 1
PRIMARY: Final = 2
UNIQUE: Final = 4
MULTIPLE: Final = 8
UNSIGNED: Final = 32
ZEROFILL: Final = 64
BINARY: Final = 128
AUTO_INCREMENT: Final = 512
NO_DEFAULT: Final = 4096
ON_UPDATE_NOW: Final = 8192
PREVENT_NULL: Final = 1 << 20
"""New NULLs are refused while stored ones are looked for."""
KEYS: Final = PRIMARY | UNIQUE | MULTIPLE


def _offsets(index: StoredIndex) -> list[int]:
    parts = index.idx_cols if index.is_primary else index.idx_cols[:1]
    return [part.offset for part in parts]


def _bit(index: StoredIndex) -> int:
    if index.is_primary:
        return PRIMARY
    return UNIQUE if index.is_unique and len(index.idx_cols) == 1 else MULTIPLE


def with_index_flags(table: StoredTable, index: StoredIndex) -> StoredTable:
    """`table` with the bits that `index` gives its columns."""
    return with_flag(table, _offsets(index), add=_bit(index))


def without_index(table: StoredTable, index: StoredIndex) -> StoredTable:
    """`table` without `index`; its columns keep the bits that other indexes give them."""
    rest = [found for found in table.index_info or () if found.id != index.id]
    table = with_flag(msgspec.structs.replace(table, index_info=rest), _offsets(index), remove=_bit(index))
    for other in rest:
        if other.idx_cols and other.idx_cols[0].offset in _offsets(index):
            table = with_index_flags(table, other)
    return table
