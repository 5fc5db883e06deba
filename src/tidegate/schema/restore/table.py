"""CREATE TABLE: columns, constraints, table options, partitions."""

from collections.abc import Mapping
from typing import Final

from tidegate.expr.syntax.tokens import quote
from tidegate.schema.restore.column import check_rest, column
from tidegate.schema.restore.datatype import charset_name
from tidegate.schema.restore.expression import expression
from tidegate.schema.restore.key import index_options, key_parts, pre_split, references, split_at, using
from tidegate.schema.restore.literal import literal
from tidegate.schema.restore.partition import partitioning
from tidegate.schema.restore.reader import (
    Rule,
    SqlReader,
    comment,
    number_option,
    placement,
    text_option,
    word_option,
)

_TTL_OFF: Final = comment("ttl", "TTL_ENABLE = 'OFF'")
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
_BEGINNINGS: Final = ("CONSTRAINT", *_KEYS, "FOREIGN KEY", "CHECK")


def is_constraint(r: SqlReader) -> bool:
    """Return True if a key, foreign key or check stands here, not a column."""
    return any(r.looking_at(words) for words in _BEGINNINGS)


def constraint(r: SqlReader) -> str:
    """Return a key, foreign key or check of a table."""
    named = ""
    if r.accept("CONSTRAINT") and not any(r.looking_at(words) for words in _BEGINNINGS[1:]):
        named = r.one_name()
    if r.accept("CHECK"):
        return (f"CONSTRAINT {named} " if named else "") + check_rest(r)
    if r.accept("FOREIGN KEY"):
        exists = "/*T! IF NOT EXISTS  */" if r.accept("IF NOT EXISTS") else ""
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
    method = using(r) if r.accept("USING", "TYPE") else ""
    parts = key_parts(r)
    options = index_options(r, method, first=True)
    return f"{kind}{exists}{' ' + named if named else ' ' if exists else ''}{parts}{options}"


def create_table(r: SqlReader) -> str:
    """Return the rest of a CREATE TABLE, after that word."""
    text = "IF NOT EXISTS " if r.accept("IF NOT EXISTS") else ""
    text += r.path()
    if r.accept("LIKE"):
        return f"{text} LIKE {r.path()}{_temporary_end(r)}"
    if r.is_sign("(") and r.looking_at("LIKE", 1):
        r.next()
        r.expect("LIKE")
        text += f" LIKE {r.path()}"
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
        text += " AS " + r.read_query()
    return text + _temporary_end(r)


def _temporary_end(r: SqlReader) -> str:
    found = r.accept("ON COMMIT DELETE ROWS", "ON COMMIT PRESERVE ROWS")
    return f" {found}" if found else ""


def elements(r: SqlReader, joint: str) -> str:
    """Return columns and constraints in brackets: columns first, whatever their order was."""
    columns: list[str] = []
    constraints: list[str] = []
    r.expect_sign("(")
    while True:
        if is_constraint(r):
            constraints.append(constraint(r))
        else:
            columns.append(column(r))
        if not r.sign(","):
            break
    r.expect_sign(")")
    return f"({joint.join(columns + constraints)})"


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
    return any(r.looking_at(words, ahead) for words in _TABLE_OPTIONS)


def table_option(r: SqlReader) -> str | None:
    """Return the table option here: "" if it prints nothing but its blank; None if none stands here."""
    return r.first_of(_TABLE_OPTIONS)


def _unsupported(option: str, name: str) -> Rule:
    def rule(r: SqlReader) -> str:
        r.sign("=")
        r.next()
        return f"{option} = DEFAULT /* {name} is not supported */ "

    return rule


def _ttl(r: SqlReader) -> str:
    r.sign("=")
    text = f"{r.path()} + INTERVAL "
    r.expect_sign("+")
    r.expect("INTERVAL")
    text += f"{expression(r)} {r.next().word}"
    return f"{comment('ttl', 'TTL = ' + text)} {_TTL_OFF}"


def dropped(r: SqlReader) -> str:
    """Move past an option's value, and print nothing."""
    r.sign("=")
    r.next()
    return NOTHING


def _force(r: SqlReader) -> str:
    r.sign("=")
    return f"/*T![force_inc] FORCE  */AUTO_INCREMENT = {r.integer()}"


def _force_base(r: SqlReader) -> str:
    r.sign("=")
    return f"/*T![force_inc] FORCE  *//*T![auto_rand_base] AUTO_RANDOM_BASE = {r.integer()} */"


def _union(r: SqlReader) -> str:
    r.sign("=")
    r.expect_sign("(")
    names = "" if r.is_sign(")") else r.list_of(SqlReader.path, ",")
    r.expect_sign(")")
    return f"UNION = ({names})"


def _charset(r: SqlReader) -> str:
    r.sign("=")
    return f"DEFAULT CHARACTER SET = {charset_name(r.word_or_string())}"


def text_or_default(option: str) -> Rule:
    """Return the rule of `[=] 'x'` or `[=] DEFAULT`."""

    def rule(r: SqlReader) -> str:
        r.sign("=")
        return f"{option} = {'DEFAULT' if r.accept('DEFAULT') else quote(r.string())}"

    return rule


def _affinity(r: SqlReader) -> str:
    r.sign("=")
    return comment("affinity", f"AFFINITY = {quote(r.word_or_string())}")


def _decimal_or_default(option: str) -> Rule:
    def rule(r: SqlReader) -> str:
        r.sign("=")
        return f"{option} = {'DEFAULT' if r.accept('DEFAULT') else literal(r)}"

    return rule


def _storage(r: SqlReader) -> str:
    return "STORAGE " + r.expect("MEMORY", "DISK")


_COLLATE: Final = word_option("DEFAULT COLLATE", str.upper)
_TABLE_OPTIONS: Final[Mapping[str, Rule]] = {
    "DEFAULT CHARACTER SET": _charset,
    "DEFAULT CHARSET": _charset,
    "DEFAULT CHAR SET": _charset,
    "CHARACTER SET": _charset,
    "CHARSET": _charset,
    "CHAR SET": _charset,
    "DEFAULT COLLATE": _COLLATE,
    "COLLATE": _COLLATE,
    "STORAGE ENGINE": word_option("ENGINE"),
    "ENGINE": word_option("ENGINE"),
    "SECONDARY_ENGINE_ATTRIBUTE": text_option("SECONDARY_ENGINE_ATTRIBUTE"),
    "SECONDARY_ENGINE": lambda r: (
        r.sign("="),
        "SECONDARY_ENGINE = " + ("NULL" if r.accept("NULL") else quote(r.word_or_string())),
    )[1],
    "FORCE AUTO_INCREMENT": _force,
    "FORCE AUTO_RANDOM_BASE": _force_base,
    "AUTO_INCREMENT": number_option("AUTO_INCREMENT"),
    "AUTO_RANDOM_BASE": number_option("AUTO_RANDOM_BASE", "auto_rand_base"),
    "AUTO_ID_CACHE": number_option("AUTO_ID_CACHE", "auto_id_cache"),
    "SHARD_ROW_ID_BITS": number_option("SHARD_ROW_ID_BITS", ""),
    "PRE_SPLIT_REGIONS": lambda r: comment("", f"PRE_SPLIT_REGIONS = {pre_split(r)}"),
    "COMMENT": text_option("COMMENT"),
    "AVG_ROW_LENGTH": number_option("AVG_ROW_LENGTH"),
    "CHECKSUM": number_option("CHECKSUM"),
    "TABLE_CHECKSUM": number_option("TABLE_CHECKSUM"),
    "PASSWORD": text_option("PASSWORD"),
    "COMPRESSION": text_option("COMPRESSION"),
    "CONNECTION": text_option("CONNECTION"),
    "KEY_BLOCK_SIZE": number_option("KEY_BLOCK_SIZE"),
    "MAX_ROWS": number_option("MAX_ROWS"),
    "MIN_ROWS": number_option("MIN_ROWS"),
    "DELAY_KEY_WRITE": number_option("DELAY_KEY_WRITE"),
    "ROW_FORMAT": word_option("ROW_FORMAT", str.upper),
    "STATS_PERSISTENT": _unsupported("STATS_PERSISTENT", "TableOptionStatsPersistent"),
    "STATS_AUTO_RECALC": number_option("STATS_AUTO_RECALC", default=True),
    "STATS_SAMPLE_PAGES": number_option("STATS_SAMPLE_PAGES", default=True),
    "STATS_BUCKETS": number_option("STATS_BUCKETS", default=True),
    "STATS_TOPN": number_option("STATS_TOPN", default=True),
    "STATS_SAMPLE_RATE": _decimal_or_default("STATS_SAMPLE_RATE"),
    "STATS_COL_CHOICE": text_or_default("STATS_COL_CHOICE"),
    "STATS_COL_LIST": text_or_default("STATS_COL_LIST"),
    "PACK_KEYS": _unsupported("PACK_KEYS", "TableOptionPackKeys"),
    "TABLESPACE": lambda r: (r.sign("="), f"TABLESPACE = {r.one_name()}")[1],
    "NODEGROUP": number_option("NODEGROUP"),
    "DATA DIRECTORY": text_option("DATA DIRECTORY"),
    "INDEX DIRECTORY": text_option("INDEX DIRECTORY"),
    "STORAGE": _storage,
    "INSERT_METHOD": word_option("INSERT_METHOD", str.upper),
    "UNION": _union,
    "ENCRYPTION": text_option("ENCRYPTION"),
    "PAGE_CHECKSUM": number_option("PAGE_CHECKSUM"),
    "PAGE_COMPRESSED": number_option("PAGE_COMPRESSED"),
    "PAGE_COMPRESSION_LEVEL": number_option("PAGE_COMPRESSION_LEVEL"),
    "TRANSACTIONAL": number_option("TRANSACTIONAL"),
    "IETF_QUOTES": word_option("IETF_QUOTES"),
    "SEQUENCE": number_option("SEQUENCE"),
    "AFFINITY": _affinity,
    "AUTOEXTEND_SIZE": word_option("AUTOEXTEND_SIZE"),
    "PLACEMENT POLICY": placement,
    "TTL_ENABLE": dropped,
    "TTL_JOB_INTERVAL": text_option("TTL_JOB_INTERVAL", "ttl"),
    "TTL": _ttl,
}
