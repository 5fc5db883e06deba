"""Character sets and collations, as TiDB knows them.

    utf8mb4   utf8mb4_bin (the default)   utf8mb4_general_ci   utf8mb4_unicode_ci   utf8mb4_0900_ai_ci ..
    gbk       gbk_chinese_ci (the default)   gbk_bin

A client may name a collation of MySQL that TiDB lacks; it is then refused (1273).

Source: TiDB documentation, "Character Set and Collation".
"""

from typing import Final, NamedTuple

from tidegate.model.errors import SqlRefused
from tidegate.schema.columns import charset_of_collation, normal_charset


class Charset(NamedTuple):
    """A character set; `bytes_max` is what one character takes at most."""

    name: str
    default: str
    bytes_max: int


CHARSETS: Final = {
    charset.name: charset
    for charset in (
        Charset("ascii", "ascii_bin", 1),
        Charset("binary", "binary", 1),
        Charset("gb18030", "gb18030_chinese_ci", 4),
        Charset("gbk", "gbk_chinese_ci", 2),
        Charset("latin1", "latin1_bin", 1),
        Charset("utf8", "utf8_bin", 3),
        Charset("utf8mb4", "utf8mb4_bin", 4),
    )
}
COLLATIONS: Final = frozenset(
    {charset.default for charset in CHARSETS.values()}
    | {"gb18030_bin", "gbk_bin", "utf8_general_ci", "utf8_unicode_ci"}
    | {"utf8mb4_0900_ai_ci", "utf8mb4_0900_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci"}
)


def character_bytes(charset: str) -> int:
    """Return what one character takes at most; 1 for a charset that TiDB lacks."""
    return CHARSETS[charset].bytes_max if charset in CHARSETS else 1


def charset_named(name: str) -> str:
    """Return the charset in its usual form; SqlRefused 1115 for one that TiDB lacks."""
    found = normal_charset(name)
    if found not in CHARSETS:
        raise SqlRefused(1115, f"Unknown character set: '{name}'", "42000")
    return found


def collation_named(name: str) -> str:
    """Return the collation in lower case; SqlRefused 1273 for one that TiDB lacks."""
    folded = name.lower().replace("utf8mb3_", "utf8_", 1)
    if folded not in COLLATIONS:
        raise SqlRefused(1273, f"Unknown collation: '{name}'", "HY000")
    assert charset_of_collation(folded) in CHARSETS, folded
    return folded


def default_collation(charset: str) -> str:
    """Return TiDB's default collation of a charset; SqlRefused 1115 for one that it does not know."""
    if charset not in CHARSETS:
        raise SqlRefused(1115, f"Unknown character set: '{charset}'", "42000")
    return CHARSETS[charset].default
