"""CREATE TABLE: columns, constraints, table options, partitions."""

from operator import itemgetter
from typing import Final

from tidegate.expr.syntax.tokens import quote
from tidegate.schema.parse.key import is_constraint
from tidegate.schema.restore.column import check_rest, column
from tidegate.schema.restore.key import index_options, key_parts, pre_split, references, split_at
from tidegate.schema.restore.literal import literal
from tidegate.schema.restore.partition import partitioning
from tidegate.schema.restore.reader import SqlReader, fixed, placement
from tidegate.schema.restore.template import by_words, template

_KEYS: Final = {
    "PRIMARY KEY": "PRIMARY KEY",
    "UNIQUE INDEX": "UNIQUE",
    "UNIQUE KEY": "UNIQUE",
    "UNIQUE": "UNIQUE",
    "FULLTEXT INDEX": "FULLTEXT",
    "FULLTEXT KEY": "FULLTEXT",
    "FULLTEXT": "FULLTEXT",
    "VECTOR INDEX": "VECTOR INDEX",
    "COLUMNAR INDEX": "COLUMNAR INDEX",
    "INDEX": "INDEX",
    "KEY": "INDEX",
}


def constraint(r: SqlReader) -> str:
    """Return a key, foreign key or check of a table."""
    named = ""
    if r.accept("CONSTRAINT") and not is_constraint(r):
        named = r.one_name()
    if r.accept("CHECK"):
        return (f"CONSTRAINT {named} " if named else "") + check_rest(r)
    if r.accept("FOREIGN KEY"):
        exists = _if_not_exists(r)
        own = "" if r.is_sign("(") else r.one_name()
        named = named or own
        columns = key_parts(r)
        r.expect("REFERENCES")
        return f"CONSTRAINT {named + ' ' if named else ''}FOREIGN KEY {exists}{columns} {references(r)}"
    kind = _KEYS[r.expect(*_KEYS)]
    exists = "/*T!  IF NOT EXISTS */" if r.accept("IF NOT EXISTS") else ""
    own = r.one_name() if r.is_name() and r.peek().word not in ("USING", "TYPE") else ""
    if not own and r.looking_at("TYPE") and r.is_sign("(", 1):
        own = r.one_name()
    named = named or own
    method = r.next().word if r.accept("USING", "TYPE") else ""
    parts = key_parts(r)
    options = index_options(r, method, first=True)
    return f"{kind}{exists}{' ' + named if named else ' ' if exists else ''}{parts}{options}"


_if_not_exists: Final = template("[/*T! IF NOT EXISTS  */]")
_named: Final = template("[IF NOT EXISTS ]table")


def create_table(r: SqlReader) -> str:
    """Return the rest of a CREATE TABLE, after that word."""
    text = _named(r)
    if r.accept("LIKE"):
        return f"{text} LIKE {r.table()}{_temporary_end(r)}"
    if r.is_sign("(") and r.looking_at("LIKE", 1):
        r.next()
        r.expect("LIKE")
        text += f" LIKE {r.table()}"
        r.expect_sign(")")
        return text + _temporary_end(r)
    if r.is_sign("(") and r.peek(1).word not in ("SELECT", "WITH"):
        text += f" {elements(r, ',')}"
    text += "".join(f" {option}" for option in table_options(r))
    if r.accept("PARTITION BY"):
        text += " " + partitioning(r)
    while r.accept("SPLIT"):
        text += f" SPLIT {split_at(r)}"
    if duplicate := r.accept("IGNORE", "REPLACE"):
        text += f" {duplicate}"
    if r.accept("AS") or r.peek().word in ("SELECT", "WITH", "VALUES", "TABLE") or r.is_sign("("):
        r.filled()
        text += " AS " + r.read_query()
    return text + _temporary_end(r)


_temporary_end: Final = template("[ {ON COMMIT DELETE ROWS|ON COMMIT PRESERVE ROWS}]")


def elements(r: SqlReader, joint: str) -> str:
    """Return columns and constraints in brackets: columns first, whatever their order was."""
    found = r.group(lambda _: (True, constraint(r)) if is_constraint(r) else (False, column(r)))
    return f"({joint.join(text for _, text in sorted(found, key=itemgetter(0)))})"


def table_options(r: SqlReader) -> list[str]:
    """Return the table options here, in order; those that print nothing as "" where a blank stays."""
    parts: list[str] = []
    while (option := table_option(r)) is not None:
        if option != NOTHING:
            parts.append(option)
        if r.is_sign(",") and not _is_option(r, 1):
            break
        r.sign(",")
    return parts


NOTHING: Final = "\0"
"""What an option gives that leaves not even its blank."""


def _is_option(r: SqlReader, ahead: int) -> bool:
    return any(r.looking_at(words, ahead) for words in TABLE_OPTIONS)


def table_option(r: SqlReader) -> str | None:
    """Return the table option here: "" if it prints nothing but its blank; None if none stands here."""
    return r.first_of(TABLE_OPTIONS)


def dropped(r: SqlReader) -> str:
    """Move past an option's value, and print nothing."""
    r.sign("=")
    r.next()
    return NOTHING


def _skipped(r: SqlReader) -> str:
    r.next()
    return ""


def default_or_text(r: SqlReader) -> str:
    """Return DEFAULT, or a string."""
    return r.accept("DEFAULT") or quote(r.string())


TABLE_OPTIONS: Final = by_words(
    "DEFAULT CHARACTER SET|DEFAULT CHARSET|DEFAULT CHAR SET|CHARACTER SET|CHARSET|CHAR SET: "
    "'DEFAULT CHARACTER SET' = charset",
    "DEFAULT COLLATE|COLLATE: 'DEFAULT COLLATE' = upper",
    "STORAGE ENGINE|ENGINE: 'ENGINE' = text",
    "SECONDARY_ENGINE_ATTRIBUTE = string",
    "SECONDARY_ENGINE = null_or_text",
    "FORCE AUTO_INCREMENT: '/*T![force_inc] FORCE  */AUTO_INCREMENT' = integer",
    "FORCE AUTO_RANDOM_BASE: '/*T![force_inc] FORCE  *//*T![auto_rand_base] AUTO_RANDOM_BASE' = integer */",
    "AUTO_INCREMENT = integer",
    "/*T![auto_rand_base] AUTO_RANDOM_BASE = integer */",
    "/*T![auto_id_cache] AUTO_ID_CACHE = integer */",
    "/*T! SHARD_ROW_ID_BITS = integer */",
    "/*T! PRE_SPLIT_REGIONS = pre_split */",
    "COMMENT = string",
    "AVG_ROW_LENGTH = integer",
    "CHECKSUM = integer",
    "TABLE_CHECKSUM = integer",
    "PASSWORD = string",
    "COMPRESSION = string",
    "CONNECTION = string",
    "KEY_BLOCK_SIZE = integer",
    "MAX_ROWS = integer",
    "MIN_ROWS = integer",
    "DELAY_KEY_WRITE = integer",
    "ROW_FORMAT = upper",
    "STATS_PERSISTENT: 'STATS_PERSISTENT = DEFAULT /* TableOptionStatsPersistent is not supported */ '<=>skipped",
    "STATS_AUTO_RECALC = default_or_integer",
    "STATS_SAMPLE_PAGES = default_or_integer",
    "STATS_BUCKETS = default_or_integer",
    "STATS_TOPN = default_or_integer",
    "STATS_SAMPLE_RATE = default_or_decimal",
    "STATS_COL_CHOICE = default_or_text",
    "STATS_COL_LIST = default_or_text",
    "PACK_KEYS: 'PACK_KEYS = DEFAULT /* TableOptionPackKeys is not supported */ '<=>skipped",
    "TABLESPACE = name",
    "NODEGROUP = integer",
    "DATA DIRECTORY = string",
    "INDEX DIRECTORY = string",
    "STORAGE {MEMORY|DISK}",
    "INSERT_METHOD = upper",
    "UNION = ([table,..])",
    "ENCRYPTION = string",
    "PAGE_CHECKSUM = integer",
    "PAGE_COMPRESSED = integer",
    "PAGE_COMPRESSION_LEVEL = integer",
    "TRANSACTIONAL = integer",
    "IETF_QUOTES = text",
    "SEQUENCE = integer",
    "/*T![affinity] AFFINITY = quoted */",
    "AUTOEXTEND_SIZE = text",
    "PLACEMENT POLICY: placement",
    "TTL_ENABLE: dropped",
    "/*T![ttl] TTL_JOB_INTERVAL = string */",
    "/*T![ttl] TTL = path + INTERVAL expression word */ /*T![ttl] 'TTL_ENABLE = 'off */",
    null_or_text=lambda r: r.accept("NULL") or quote(r.word_or_string()),
    pre_split=pre_split,
    skipped=_skipped,
    default_or_integer=lambda r: r.accept("DEFAULT") or str(r.integer()),
    default_or_decimal=lambda r: r.accept("DEFAULT") or literal(r),
    default_or_text=default_or_text,
    placement=placement,
    dropped=dropped,
    off=fixed("'OFF'"),
)
