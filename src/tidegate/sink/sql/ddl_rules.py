"""The parts of TiDB's DDL that targets do not support: the tables of ddl_rewrite.py, and their token patterns.

    TEXT   words anywhere in a statement     CHECK(..) ENFORCED, WITH PARSER p, ENGINE = e, COLLATE c ..
    WHOLE  statements by their first words   CREATE SEQUENCE, RECOVER TABLE ..
    PARTS  clauses of ALTER TABLE, keys of CREATE TABLE, by their first words     SET TIFLASH .., VECTOR INDEX ..
    ADDED  words anywhere in an ADD COLUMN   DEFAULT (UUID()) ..

    "CHECK group [ NOT ] ENFORCED"        CHECK(`a`>0) NOT ENFORCED

    WORD A|B      that word, or one of these, not quoted          name   one name             path    a.b.c
    [ .. ]        optional                                        group  (..) with its ends   value   a group or a token
    = and other signs stand for themselves; = is optional

The rules apply to texts of schema/restore_ddl: names are quoted there, so a bare word is never a name.  `becomes`
replaces the words: "" removes them, None is an error, `KEEP` leaves them.  A rule applies to the targets in `on`.
Removed clauses do not affect rows: the upstream has checked its rows, and every value is sent.

Source: MySQL 8.0 Reference Manual, "SQL Statements"; MariaDB Knowledge Base, "Data Definition"; TiDB documentation,
"MySQL Compatibility", pkg/ddl (generateOriginDefaultValue); tried on MariaDB.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegate.expr.tokens import TokenKind
from tidegate.schema.cursor import Cursor
from tidegate.sink.sql.connection import ServerKind, TargetServer

Step: TypeAlias = "str | list[Step]"


class TokenPattern:
    """One pattern; `first` are the words that it may begin with."""

    def __init__(self, text: str) -> None:
        self.steps = _steps(iter(text.split()))
        self.first = _first(self.steps)

    def move(self, cursor: Cursor) -> bool:
        """Return True if the pattern matches here, moving past the match; else the cursor stays."""
        if cursor.peek().word not in self.first:
            return False
        position = cursor.position
        if _move(cursor, self.steps) and cursor.position > position:
            return True
        cursor.position = position
        return False


def _steps(words: Iterator[str]) -> list[Step]:
    steps: list[Step] = []
    for word in words:
        if word == "]":
            break
        steps.append(_steps(words) if word == "[" else word)
    return steps


def _first(steps: list[Step]) -> frozenset[str]:
    words: set[str] = set()
    for step in steps:
        if isinstance(step, str):
            return frozenset(words | set(step.split("|")))
        words |= _first(step)
    return frozenset(words)


def _move(cursor: Cursor, steps: list[Step]) -> bool:
    for step in steps:
        position = cursor.position
        if isinstance(step, list):
            if not _move(cursor, step):
                cursor.position = position
        elif not _step(cursor, step):
            return False
    return True


def _step(cursor: Cursor, step: str) -> bool:
    match step:
        case "name":
            return cursor.peek().kind is TokenKind.NAME and cursor.next() is not None
        case "path":
            if not _step(cursor, "name"):
                return False
            while cursor.sign("."):
                cursor.next()
            return True
        case "group":
            return cursor.is_sign("(") and cursor.skip_group() is not None
        case "value":
            return _value(cursor)
        case "=":
            return cursor.sign("=") or True
        case _ if step[0].isalpha() or step[0] == "_":
            return cursor.accept(*step.split("|")) != ""
        case _:
            return cursor.sign(step)


def _value(cursor: Cursor) -> bool:
    if cursor.is_sign("("):
        return cursor.skip_group() is not None
    cursor.sign("-")
    return cursor.next().kind not in (TokenKind.END, TokenKind.SIGN)


def split(text: str) -> list[str]:
    """Return the parts of a list, cut at its outer commas, without blanks around them."""
    cursor, parts, start = Cursor(text), [], 0
    while cursor.peek().kind is not TokenKind.END:
        cursor.skip_balanced(",")
        token = cursor.peek()
        parts.append(text[start : token.start].strip())
        start = token.end
        cursor.next()
    return parts


KEEP: Final = "\0"
"""Words that stay unchanged: no later rule applies to them."""


def _any(_: TargetServer) -> bool:
    return True


def _not_tidb(target: TargetServer) -> bool:
    return target.kind is not ServerKind.TIDB


def _tidb(target: TargetServer) -> bool:
    return target.kind is ServerKind.TIDB


def _mariadb(target: TargetServer) -> bool:
    return target.kind is ServerKind.MARIADB


def _mysql(target: TargetServer) -> bool:
    return target.kind is ServerKind.MYSQL


def _mysql_before_8(target: TargetServer) -> bool:
    return _mysql(target) and target.version < (8,)


def _no_ignored_keys(target: TargetServer) -> bool:
    return _mysql_before_8(target) or (_mariadb(target) and target.version < (10, 6))


@dataclass(frozen=True, slots=True)
class DdlRule:
    """One row: a token pattern, its replacement, the targets, and the reason (a phrase for users)."""

    words: TokenPattern
    becomes: str | None
    why: str = ""
    on: Callable[[TargetServer], bool] = _not_tidb


def _row(words: str, becomes: str | None, reason: str = "", on: Callable[[TargetServer], bool] = _not_tidb) -> DdlRule:
    return DdlRule(TokenPattern(words), becomes, reason, on)


_ACTION: Final = "[ ON DELETE|UPDATE CASCADE|RESTRICT|SET|NO [ NULL|ACTION|DEFAULT ] ]"
_REFERENCES: Final = f"REFERENCES path [ group ] [ MATCH FULL|PARTIAL|SIMPLE ] {_ACTION} {_ACTION}"
_UNHEEDED: Final = (
    *"ENGINE CHECKSUM TABLE_CHECKSUM PASSWORD COMPRESSION CONNECTION MAX_ROWS MIN_ROWS AVG_ROW_LENGTH".split(),  # noqa: SIM905
    *"DELAY_KEY_WRITE TABLESPACE NODEGROUP INSERT_METHOD UNION ENCRYPTION PAGE_CHECKSUM PAGE_COMPRESSED".split(),  # noqa: SIM905
    *"PAGE_COMPRESSION_LEVEL TRANSACTIONAL IETF_QUOTES AUTOEXTEND_SIZE STATS_PERSISTENT PACK_KEYS".split(),  # noqa: SIM905
    *"STATS_AUTO_RECALC STATS_SAMPLE_PAGES STATS_BUCKETS STATS_TOPN STATS_SAMPLE_RATE STATS_COL_CHOICE".split(),  # noqa: SIM905
    *"STATS_COL_LIST STATS_OPTIONS SECONDARY_ENGINE_ATTRIBUTE SECONDARY_ENGINE ROW_FORMAT KEY_BLOCK_SIZE".split(),  # noqa: SIM905
)
"""Options that TiDB reads and does not heed, or that only TiDB has."""

TEXT: Final = (
    _row("DEFAULT ( NEXT VALUE FOR path )", "", "a default of a sequence, which is not replicated", _any),
    _row("DEFAULT ( NEXTVAL group )", "", "a default of a sequence, which is not replicated", _any),
    _row("DEFAULT NEXT VALUE FOR path", "", "a default of a sequence, which is not replicated", _any),
    _row(f"FOREIGN KEY group {_REFERENCES}", KEEP),
    _row(_REFERENCES, "", "REFERENCES in a column, which TiDB does not heed"),
    _row("CONSTRAINT [ name ] CHECK group NOT|ENFORCED [ ENFORCED ]", "", "a CHECK: the upstream checks its rows"),
    _row("CHECK group NOT|ENFORCED [ ENFORCED ]", "", "a CHECK: the upstream checks its rows"),
    _row("WITH PARSER name", "", "the parser of a full-text index"),
    _row("ADD_COLUMNAR_REPLICA_ON_DEMAND", "", "a columnar replica"),
    _row("LINEAR", "", "LINEAR, which TiDB does not heed"),
    _row("GLOBAL TEMPORARY", KEEP),
    _row("GLOBAL", None, "a GLOBAL index: a unique key of a partitioned table has all its partitioning columns there"),
    _row("UPDATE INDEXES ( name LOCAL )", "", "UPDATE INDEXES"),
    _row("INTERVAL ( value [ DAY|MONTH|YEAR|HOUR|WEEK|MINUTE|SECOND|QUARTER ] ) FIRST", None, "INTERVAL partitioning"),
    _row("VALUES IN ( DEFAULT )", None, "a DEFAULT partition", _mysql),
    _row("PARTITION name DEFAULT", None, "a DEFAULT partition", _mysql),
    _row(
        "WITHOUT VALIDATION",
        "",
        "WITHOUT VALIDATION: rows of the table are checked",
        lambda target: _mariadb(target) and target.version < (11, 4),
    ),
    _row("VECTOR INDEX|KEY", KEEP),
    _row("VECTOR [ group ] [ DEFAULT value ]", "LONGTEXT", "a VECTOR column, as text"),
    _row("INVISIBLE", "", "INVISIBLE", _no_ignored_keys),
    _row("VISIBLE", "", "VISIBLE", _no_ignored_keys),
    _row("INVISIBLE", "IGNORED", "INVISIBLE, here IGNORED", _mariadb),
    _row("VISIBLE", "NOT IGNORED", "VISIBLE, here NOT IGNORED", _mariadb),
    _row("COLUMN_FORMAT FIXED|DYNAMIC|DEFAULT", "", "COLUMN_FORMAT, which TiDB does not heed"),
    _row("STORAGE DISK|MEMORY|DEFAULT", "", "STORAGE, which TiDB does not heed"),
    _row("DATA|INDEX DIRECTORY = value", "", "a directory, which TiDB does not heed"),
    *(_row(f"{option} = value", "", f"{option}, which TiDB does not heed") for option in _UNHEEDED),
    *(
        _row(f"COLLATE = {collation}", None, f"collation {collation.lower()}, of MySQL 8", _mysql_before_8)
        for collation in ("UTF8MB4_0900_AI_CI", "UTF8MB4_0900_BIN")
    ),
)
"""Words anywhere in a statement, the first row that matches."""

ADDED: Final = (
    _row(
        "DEFAULT ( UUID|RAND|UUID_TO_BIN|REPLACE|UPPER|JSON_OBJECT|JSON_ARRAY|JSON_QUOTE|VEC_FROM_TEXT group )",
        None,
        "a default that a function computes, in a column that is added: a TiDB answers 1674",
        _tidb,
    ),
)
"""Words anywhere in an ADD COLUMN."""

SKIPPED: Final = ""
WHOLE: Final = (
    _row("CREATE|ALTER|DROP SEQUENCE", SKIPPED, "sequences are not replicated", _any),
    _row("CREATE|ALTER|DROP PLACEMENT", SKIPPED, "placement is the upstream's", _any),
    _row("CREATE|ALTER|DROP RESOURCE", SKIPPED, "resource groups are the upstream's", _any),
    _row("CREATE|DROP TEMPORARY", SKIPPED, "temporary tables have no rows for others", _any),
    _row("CREATE|DROP GLOBAL TEMPORARY", SKIPPED, "temporary tables have no rows for others", _any),
    _row("CREATE VECTOR|FULLTEXT|SPATIAL|COLUMNAR INDEX", SKIPPED, "an index of TiDB's own kind"),
    _row("RECOVER TABLE", None, "the target keeps no rows of dropped and truncated tables"),
    _row("FLASHBACK TABLE", None, "the target keeps no rows of dropped and truncated tables"),
    _row("FLASHBACK DATABASE|SCHEMA|CLUSTER", None, "no event tells which rows it brings back", _any),
)
"""Statements by their first words."""
LOADED: Final = (_row("CREATE SEQUENCE", SKIPPED, "a sequence, which it cannot have", _mysql), *WHOLE[1:])
"""Those of a load, which makes sequences that begin at their next values."""

PARTS: Final = (
    _row("VECTOR INDEX", "", "a vector index"),
    _row("COLUMNAR INDEX", "", "a columnar index"),
    _row("FULLTEXT", "", "a full-text index"),
    _row("ADD VECTOR|COLUMNAR|FULLTEXT", "", "an index of TiDB's own kind"),
    _row("SET TIFLASH", "", "a TiFlash replica", _any),
    _row("ADD|DROP STATS_EXTENDED", "", "extended statistics", _any),
    _row("DROP|ALTER CHECK", "", "a CHECK: the upstream checks its rows"),
    _row("CACHE|NOCACHE", "", "a cached table", _any),
    _row("COMPACT", "", "COMPACT", _any),
    _row("SPLIT", "", "SPLIT of regions", _any),
    _row("ALGORITHM|LOCK", "", "ALGORITHM and LOCK, which are about the upstream", _any),
    _row("ENABLE|DISABLE KEYS", "", "ENABLE and DISABLE KEYS, which TiDB does not heed", _any),
    _row("FORCE", "", "FORCE, which TiDB does not heed"),
    _row("ORDER BY", "", "ORDER BY, which TiDB does not heed"),
    _row("SECONDARY_LOAD|SECONDARY_UNLOAD", "", "a secondary engine", _any),
    _row("READ ONLY|WRITE", "", "READ ONLY", _any),
    _row("CHECK|OPTIMIZE|REPAIR|REBUILD PARTITION", "", "upkeep of partitions", _any),
    _row("DISCARD|IMPORT", "", "tablespaces, which TiDB does not have", _any),
    _row("FIRST|LAST PARTITION", None, "INTERVAL partitioning"),
    _row("MERGE FIRST", None, "INTERVAL partitioning"),
    _row("SPLIT MAXVALUE", None, "INTERVAL partitioning"),
)
"""Clauses of ALTER TABLE and keys of CREATE TABLE by their first words."""

EXPRESSION_KEY: Final = _row(
    "",
    "",
    "a key on an expression",
    lambda target: _mariadb(target) or (_mysql(target) and target.version < (8, 0, 13)),
)
PARTIAL_KEY: Final = _row("", "", "a key with WHERE")

_MARIADB_COLLATIONS: Final = {
    "utf8mb4_0900_ai_ci": ("utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_unicode_520_nopad_ci"),
    "utf8mb4_0900_bin": ("utf8mb4_nopad_bin", "utf8mb4_nopad_bin"),
    "gb18030_chinese_ci": ("utf8mb4_bin", "utf8mb4_bin"),
    "gb18030_bin": ("utf8mb4_bin", "utf8mb4_bin"),
}
"""TiDB's collations that MariaDB lacks: (since 10.10, before)."""


def collation_for(target: TargetServer, collation: str) -> str:
    """Return the target's name for a collation of TiDB; the nearest that never takes more texts for equal but where
    Unicode grew, if it lacks the collation."""
    if not _mariadb(target):
        return collation
    new, old = _MARIADB_COLLATIONS.get(collation.lower(), (collation, collation))
    return new if target.version >= (10, 10) else old


def charset_for(target: TargetServer, charset: str) -> str:
    """Return the target's charset for one of TiDB: MariaDB has no gb18030."""
    return "utf8mb4" if _mariadb(target) and charset.lower() == "gb18030" else charset
