"""TiDB's action code of a DDL that came as canal-json, which has a word and the statement only.

    word       statement, quoted texts and brackets emptied                        action
    CREATE     -                                                                   3
    ALTER      ALTER TABLE name ADD COLUMN …, no comma left                        5
               ALTER TABLE name DROP COLUMN …, DROP COLUMN …                       61, several changes at once
    QUERY      CREATE DATABASE …                                                   1

Statements are those that TiCDC sends: written anew by TiDB, names in backquotes.  Where word and statement do not say
one action for certain, there is none.

Canal's words for TiDB's DDL actions.

    CREATE    create table                     RENAME    rename table, rename tables
    ERASE     drop table                       TRUNCATE  truncate table
    CINDEX    add index, foreign key, primary key        DINDEX    drop of those
    ALTER     columns, defaults, comments, charsets of tables, partitions, index names and visibility, several at once
    QUERY     everything else: databases, views, recover table, exchange partition, TTL, sequences, …

CREATE TABLES, which TiDB's tools send for many tables at once, becomes one event a table but keeps its action, and so
arrives as QUERY.

Source: recorded DDLs of all words.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.model.event import Ddl

__all__ = ["action_of", "ddl_type", "with_action"]

QUERY: Final = "QUERY"

_WORDS: Final[Mapping[str, tuple[int, ...]]] = {
    "CREATE": (3,),
    "RENAME": (14, 47),
    "ERASE": (4,),
    "TRUNCATE": (11,),
    "CINDEX": (7, 9, 32),
    "DINDEX": (8, 10, 33),
    "ALTER": (5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72),
}
_BY_ACTION: Final = {action: word for word, actions in _WORDS.items() for action in actions}


def ddl_type(action: int) -> str:
    """Canal's word for a TiDB action code."""
    return _BY_ACTION.get(action, QUERY)


_QUOTED: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"", re.DOTALL)
_COMMENT: Final = re.compile(r"/\*T!\[[a-z_]+\]|/\*T!|\*/")
_BRACKETS: Final = re.compile(r"\([^()]*\)")
_TABLE: Final = r"ALTER TABLE (?:``\.)?`` "
_ONLY: Final = {"CREATE": 3, "ERASE": 4, "TRUNCATE": 11}
_MULTI: Final = 61
_MAX_DEPTH: Final = 50

# Partition clauses list names with commas, so they stand apart from those where a comma begins another change.
_LISTS: Final = (
    ("ALTER", rf"{_TABLE}DROP PARTITION\b", 20),
    ("ALTER", rf"{_TABLE}TRUNCATE PARTITION\b", 23),
    ("ALTER", rf"{_TABLE}REORGANIZE PARTITION\b", 64),
    ("ALTER", rf"{_TABLE}(?:COALESCE PARTITION|ADD PARTITION(?: IF NOT EXISTS)? PARTITIONS)\b", 64),
    ("ALTER", rf"{_TABLE}ADD PARTITION(?: IF NOT EXISTS)? \(", 19),
    ("ALTER", rf"{_TABLE}PARTITION BY\b", 71),
    ("ALTER", rf"{_TABLE}REMOVE PARTITIONING\b", 72),
    ("QUERY", r"CREATE DATABASE\b", 1),
    ("QUERY", r"DROP DATABASE\b", 2),
    ("QUERY", r"CREATE (?:OR REPLACE )?ALGORITHM = \w+ DEFINER = .* VIEW\b", 21),
    ("QUERY", r"DROP VIEW\b", 24),
    ("QUERY", r"(?:RECOVER|FLASHBACK) TABLE\b", 25),
    ("QUERY", r"ALTER DATABASE\b", 26),
    ("QUERY", rf"{_TABLE}EXCHANGE PARTITION\b", 42),
)
_SINGLE: Final = (
    ("RENAME", rf"RENAME TABLE\b|{_TABLE}RENAME (?:AS|TO)\b", 14),
    ("CINDEX", rf"{_TABLE}ADD (?:CONSTRAINT (?:`` )?)?PRIMARY KEY\b", 32),
    ("CINDEX", rf"{_TABLE}ADD (?:CONSTRAINT (?:`` )?)?FOREIGN KEY\b", 9),
    ("CINDEX", rf"CREATE (?:UNIQUE )?INDEX\b|{_TABLE}ADD (?:UNIQUE|INDEX)\b", 7),
    ("DINDEX", rf"{_TABLE}DROP PRIMARY KEY\b", 33),
    ("DINDEX", rf"{_TABLE}DROP FOREIGN KEY\b", 10),
    ("DINDEX", rf"DROP INDEX\b|{_TABLE}DROP INDEX\b", 8),
    ("ALTER", rf"{_TABLE}ADD COLUMN (?:IF NOT EXISTS )?``", 5),
    ("ALTER", rf"{_TABLE}DROP COLUMN\b", 6),
    ("ALTER", rf"{_TABLE}(?:CHANGE|MODIFY|RENAME) COLUMN\b", 12),
    ("ALTER", rf"{_TABLE}ALTER COLUMN\b", 15),
    ("ALTER", rf"{_TABLE}COMMENT =", 17),
    ("ALTER", rf"{_TABLE}RENAME INDEX\b", 18),
    ("ALTER", rf"{_TABLE}CONVERT TO\b", 22),
    ("ALTER", rf"{_TABLE}ALTER INDEX\b", 41),
)


def action_of(word: str, query: str) -> int | None:
    """Return the action code of a DDL with Canal's `word`; None where several would fit."""
    if word in _ONLY:
        return _ONLY[word]
    bare = " ".join(_QUOTED.sub(lambda found: found[0][0] * 2, _COMMENT.sub(" ", query)).split())
    found = _first(_LISTS, word, bare)
    if found is not None:
        return found
    flat = _flat(bare)
    if "(" in flat:
        return None
    if "," in flat:
        return _MULTI if word == "ALTER" and flat.startswith("ALTER TABLE ") else None
    return _first(_SINGLE, word, flat)


def with_action(ddl: Ddl) -> Ddl:
    """Return `ddl` with its action code, read off word and text if it came as canal-json; without one where those do
    not say one action for certain."""
    return ddl if ddl.type is not None else msgspec.structs.replace(ddl, type=action_of(ddl.canal_type, ddl.query))


def _first(table: tuple[tuple[str, str, int], ...], word: str, text: str) -> int | None:
    return next((action for known, pattern, action in table if known == word and re.match(pattern, text)), None)


def _flat(text: str) -> str:
    """`text` without what stands in brackets; brackets that nest beyond reason stay."""
    for _ in range(_MAX_DEPTH):
        smaller = _BRACKETS.sub("", text)
        if smaller == text:
            break
        text = smaller
    return text
