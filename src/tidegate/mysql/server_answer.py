"""The meaning of a MySQL server's answers: whether a statement that failed may succeed later, and the rights that SHOW
GRANTS lists. Pure.

    1213, 1205, 1040, 1290, 9007, ..    locks, limits, a server that is read-only or going down      later
    2003, 2013, ..                      the driver: no answer                                        later
    1044, 1045, 1142, 1227, ..          the account: a GRANT may be added                            account
    1105 ERROR 1231 (42000): ..         of a TiDB: the error inside counts
    1064, 1146, 1231, 1300, 3140, ..    the statement, the table, the value                          never
    8000 and above                      of a TiDB: its storage and its schema                        later, mostly

A server error that is in none of the lists is permanent: its statement is refused and reported instead of being
retried forever.

Source: MySQL and MariaDB reference manuals, "Server Error Message Reference"; TiDB documentation, "Error Codes and
Troubleshooting", pkg/errno/errcode.go.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from tidegate.model.pattern import like


class AnswerKind(Enum):
    """The possible reactions to a server's error."""

    PASSES = "later"
    ACCOUNT = "the account's rights"
    REFUSED = "never"


ACCOUNT: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1251, 1698, 2059, 3118, 4151, 8121})
_PASSES: Final = frozenset(
    {
        # disks, memory, files
        *(1015, 1020, 1021, 1026, 1028, 1030, 1037, 1038, 1041, 1114, 1135, 1180, 1181, 1194, 1195, 1206, 1436, 3170),
        # connections and the server itself
        *(
            0,
            1040,
            1042,
            1043,
            1053,
            1077,
            1078,
            1079,
            1080,
            1129,
            1130,
            1152,
            1154,
            1155,
            1156,
            1157,
            1158,
            1159,
            1160,
        ),
        *(1161, 1184, 1203, 1226, 1927, 3032, 3168, 3169, 4031),
        # locks, transactions, other sessions
        *(1205, 1207, 1213, 1223, 1296, 1297, 1317, 1399, 1412, 1568, 1613, 1614, 1615, 1637, 1684, 1689, 1742, 1969),
        *(3024, 3058, 3100, 3101, 3572, 4092),
        # a server that is read-only
        *(1290, 1792, 1836, 1874),
        # no better word
        1105,
    }
)
_REFUSED_BY_TIDB: Final = frozenset(
    {
        # oversized transactions and entries, exhausted auto-random ids
        *(8004, 8025, 8059),
        # features that TiDB does not support
        *(8026, 8047, 8048, 8051, 8108, 8130, 8200, 8216, 8230, 8231, 8232, 8233, 8236, 8237, 8239, 8240, 8242, 8264),
    }
)
_TIDB: Final = 8000
"""TiDB's own error numbers begin here."""
_INSIDE: Final = re.compile(r"ERROR (\d{4}) \(|\[[a-z]+:(\d{4})\]")
"""A TiDB error inside the text of another."""
_CLIENT: Final = range(2000, 3000)


def answer_kind(number: int, text: str) -> AnswerKind:
    """Return the reaction to the error `number` with its `text`."""
    inside = _INSIDE.match(text) if number == 1105 else None
    if inside is not None:
        return answer_kind(int(inside[1] or inside[2]), "")
    if number in ACCOUNT:
        return AnswerKind.ACCOUNT
    may_pass = number in _PASSES or number in _CLIENT or (number >= _TIDB and number not in _REFUSED_BY_TIDB)
    return AnswerKind.PASSES if may_pass else AnswerKind.REFUSED


_GRANT: Final = re.compile(r"GRANT (.+?) ON (\*|`(?:[^`]|``)+`)\.(\*|`(?:[^`]|``)+`) TO ")
_ROLE: Final = re.compile(r"GRANT [^ ]+ TO ")


def granted(lines: Iterable[str]) -> list[tuple[str, ...]] | None:
    """Return the lines of SHOW GRANTS as rights, database and table; None where a role may have more."""
    lines = [*lines]
    if any(map(_ROLE.match, lines)):
        return None
    return [match.groups() for match in map(_GRANT.match, lines) if match is not None]


def has_right(grants: Iterable[Sequence[str]], right: str, schema: str, table: str = "") -> bool:
    """Return True for a right on a table, or on every table of a database."""
    for rights, database, name in grants:
        listed = {right.strip() for right in re.sub(r"\([^)]*\)", "", rights).split(",")}
        is_here = database == "*" or like(database[1:-1].replace("``", "`")).matches(schema)
        if is_here and listed & {right, "ALL PRIVILEGES"} and name in ("*", f"`{table.replace('`', '``')}`"):
            return True
    return False
