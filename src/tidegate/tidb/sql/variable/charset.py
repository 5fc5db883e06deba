"""Character sets and collations, as TiDB knows them, and time zones by the names that MySQL takes.

    utf8mb4   utf8mb4_bin (46, the default)   utf8mb4_general_ci 45   utf8mb4_unicode_ci 224   utf8mb4_0900_ai_ci 255 ..
    gbk       gbk_chinese_ci (28, the default)   gbk_bin 87

Numbers of collations are MySQL's.  A client may name a collation of MySQL that TiDB lacks; it is then refused (1273).

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
    description: str
    default: str
    bytes_max: int


CHARSETS: Final = {
    charset.name: charset
    for charset in (
        Charset("ascii", "US ASCII", "ascii_bin", 1),
        Charset("binary", "binary", "binary", 1),
        Charset("gb18030", "China National Standard GB18030", "gb18030_chinese_ci", 4),
        Charset("gbk", "Chinese Internal Code Specification", "gbk_chinese_ci", 2),
        Charset("latin1", "Latin1", "latin1_bin", 1),
        Charset("utf8", "UTF-8 Unicode", "utf8_bin", 3),
        Charset("utf8mb4", "UTF-8 Unicode", "utf8mb4_bin", 4),
    )
}
COLLATIONS: Final = {
    "ascii_bin": 65,
    "binary": 63,
    "gb18030_bin": 249,
    "gb18030_chinese_ci": 248,
    "gbk_bin": 87,
    "gbk_chinese_ci": 28,
    "latin1_bin": 47,
    "utf8_bin": 83,
    "utf8_general_ci": 33,
    "utf8_unicode_ci": 192,
    "utf8mb4_0900_ai_ci": 255,
    "utf8mb4_0900_bin": 309,
    "utf8mb4_bin": 46,
    "utf8mb4_general_ci": 45,
    "utf8mb4_unicode_ci": 224,
}
"""Collation -> its number in MySQL's protocol."""

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
