"""Character sets and collations, as TiDB knows them, and time zones by the names that MySQL takes.

    utf8mb4   utf8mb4_bin (the default)   utf8mb4_general_ci   utf8mb4_unicode_ci   utf8mb4_0900_ai_ci ..
    gbk       gbk_chinese_ci (the default)   gbk_bin

A client may name a collation of MySQL that TiDB lacks; it is then refused (1273).

Source: TiDB documentation, "Character Set and Collation", "Time Zone Support".
"""

import re
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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

_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):(\d\d)")
_OFFSET_MAX: Final = timedelta(hours=14)
_OFFSET_MIN: Final = timedelta(hours=-12, minutes=-59)


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


def zone_named(name: str) -> tzinfo:
    """Return the zone of SYSTEM (which is UTC here), of an offset such as +08:00, or of a name; SqlRefused 1298."""
    if name.upper() in {"SYSTEM", "UTC", "+00:00"}:
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3])) * (1 if offset[1] == "+" else -1)
        if _OFFSET_MIN <= span <= _OFFSET_MAX and int(offset[3]) < 60:
            return timezone(span)
    else:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise SqlRefused(1298, f"Unknown or incorrect time zone: '{name}'", "HY000")
