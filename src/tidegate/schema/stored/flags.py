"""The flag bits of column types as TiDB stores them.

    key                            bit on
    PRIMARY KEY (a, b)             PRIMARY on a and b
    UNIQUE (a)                     UNIQUE on a
    UNIQUE (a, b), KEY (a, b)      MULTIPLE on a

Source: TiDB pkg/parser/mysql/type.go; pkg/ddl/index.go (AddIndexColumnFlag, DropIndexColumnFlag).
"""

from typing import Final

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
