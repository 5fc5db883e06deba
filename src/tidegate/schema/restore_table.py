"""CREATE TABLE as TiDB prints it: columns, keys, constraints, table options and partitions.

Each rule reads one part with a `SqlReader` and returns its printed text (restore_reader.py).  ALTER TABLE prints
columns, keys, options and partitions by the same rules.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Final

from tidegate.expr.tokens import quote
from tidegate.schema.cursor import is_constraint
from tidegate.schema.restore_expression import default_value
from tidegate.schema.restore_reader import (
    Rule,
    SqlReader,
    bracketed,
    by_words,
    column_type,
    escaped,
    fixed,
    literal,
    now,
    one_of,
    placement,
    template,
)

clustered: Final = template("[ /*T![clustered_index] CLUSTERED */][ /*T![clustered_index] NONCLUSTERED */]")
"""CLUSTERED or NONCLUSTERED, after a blank, if one of them follows."""
global_or_local: Final = template("[ GLOBAL]<LOCAL>")
"""GLOBAL, after a blank, if it follows; LOCAL is not printed."""


def _part(r: SqlReader) -> str:
    if r.is_sign("("):
        text = bracketed(r)
    else:
        text = r.path()
        if r.sign("("):
            length = r.integer()
            text += f"({length})" if length else ""
            r.expect_sign(")")
    return f"{text} DESC" if r.accept("ASC", "DESC") == "DESC" else text


key_parts: Final = template("(part, ..)", part=_part)
"""Columns and expressions of a key, in brackets."""
_BORDERS: Final = one_of(
    by_words(
        "BETWEEN (expression,..) AND (expression,..) REGIONS integer",
        "BY values,..",
        values=template("(expression,..)"),
    )
)
_borders_in_brackets: Final = template("(borders)", borders=_BORDERS)
split_at: Final = template("[INDEX name ][PRIMARY KEY ]borders", borders=_BORDERS)
"""The rest of SPLIT: an index, if one is named, and borders."""


def pre_split(r: SqlReader) -> str:
    """Return the value of PRE_SPLIT_REGIONS: a number, or borders in brackets."""
    return _borders_in_brackets(r) if r.is_sign("(") else str(r.integer())


def _comment(r: SqlReader) -> str:
    text = r.plain_text()
    return f"COMMENT {text}" if text != "''" else ""


_OPTIONS: Final = by_words(
    "/*T![clustered_index] CLUSTERED */",
    "/*T![clustered_index] NONCLUSTERED */",
    "ADD_COLUMNAR_REPLICA_ON_DEMAND",
    "KEY_BLOCK_SIZE=integer",
    "USING|TYPE: 'USING 'word",
    "WITH PARSER name",
    "COMMENT: comment",
    "/*T![global_index] GLOBAL */",
    "LOCAL: ''",
    "VISIBLE",
    "INVISIBLE",
    "/*T![pre_split] PRE_SPLIT_REGIONS = pre_split */",
    "SECONDARY_ENGINE_ATTRIBUTE = string",
    "WHERE expression",
    comment=_comment,
    pre_split=pre_split,
)
"""In TiDB's order."""
_REPLACED: Final = {"NONCLUSTERED": "CLUSTERED", "TYPE": "USING", "LOCAL": "GLOBAL", "INVISIBLE": "VISIBLE"}
"""Options that replace another one."""


def index_options(r: SqlReader, kind: str = "", *, first: bool = False) -> str:
    """Return the options of an index in TiDB's order, each after a blank.

    `kind` is the type of USING before the columns; with `first` it takes precedence over the options.  A columnar
    replica without other options is not printed."""
    written: dict[str, str] = {}
    while words := r.accept(*_OPTIONS):
        written[_REPLACED.get(words, words)] = _OPTIONS[words](r)
    if kind and (first or "USING" not in written):
        written["USING"] = f"USING {kind}"
    if set(written) == {"ADD_COLUMNAR_REPLICA_ON_DEMAND"}:
        return ""
    return "".join(f" {written[option]}" for option in _OPTIONS if written.get(option))


_ACTIONS: Final = ("CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION")
_ON: Final = [f"ON {moment} {action}" for moment in ("DELETE", "UPDATE") for action in _ACTIONS]


_referenced: Final = template("'REFERENCES 'beside[(part, ..)][ {MATCH FULL|MATCH PARTIAL|MATCH SIMPLE}]", part=_part)


def references(r: SqlReader) -> str:
    """Return the rest of a foreign key, after REFERENCES; deletes come before updates."""
    text = _referenced(r)
    actions: dict[str, str] = {}
    while clause := r.accept(*_ON):
        moment, action = clause[: len("ON DELETE")], clause[len("ON DELETE ") :]
        actions[moment] = action
    return text + "".join(f" {moment} {actions[moment]}" for moment in sorted(actions))


def _on_update(r: SqlReader) -> str:
    text = now(r)
    if text is None and r.accept("CURRENT_DATE", "CURDATE"):
        text = "CURRENT_DATE()"
        if r.sign("("):
            r.expect_sign(")")
    if text is None:
        raise r.error("expected CURRENT_TIMESTAMP")
    return "ON UPDATE " + text


check_rest: Final = template(
    "(expression) enforced", enforced=lambda r: r.accept("NOT ENFORCED", "ENFORCED") or "ENFORCED"
)
"""A check with whether it is enforced, after the word CHECK."""
_COLUMN_OPTIONS: Final[Mapping[str, Rule]] = by_words(
    "NOT NULL",
    "NULL",
    "AUTO_INCREMENT",
    "PRIMARY KEY|KEY: 'PRIMARY KEY'clustered~scope",
    "UNIQUE: 'UNIQUE KEY'<KEY>scope",
    "DEFAULT default",
    "SERIAL DEFAULT VALUE: 'NOT NULL AUTO_INCREMENT UNIQUE KEY'",
    "ON UPDATE: on_update",
    "COMMENT: comment",
    "GENERATED ALWAYS AS|AS: 'GENERATED ALWAYS AS'(expression) kind",
    "CONSTRAINT CHECK|CHECK: 'CHECK'check",
    "CONSTRAINT name CHECK~check",
    "COLLATE lower",
    "REFERENCES: references",
    "/*T![auto_rand] AUTO_RANDOM[(integer, ..)] */",
    "COLUMN_FORMAT word",
    "STORAGE word",
    "SECONDARY_ENGINE_ATTRIBUTE = string",
    clustered=clustered,
    scope=global_or_local,
    default=default_value,
    on_update=_on_update,
    comment=lambda r: f"COMMENT {quote(escaped(r.string()))}",
    kind=lambda r: r.accept("VIRTUAL", "STORED") or "VIRTUAL",
    check=check_rest,
    references=references,
)


def column_rest(r: SqlReader) -> str:
    """Return a column's type and options."""
    return " ".join([column_type(r), *r.every(_COLUMN_OPTIONS)])


column: Final = template("path rest", rest=column_rest)
"""A column's name and definition."""
placed_column: Final = template("column[ FIRST][ AFTER path]", column=column)
"""A column with FIRST or AFTER x, if one follows."""


def partitioning(r: SqlReader) -> str:
    """Return the partitioning after PARTITION BY."""
    text, counted = _method(r)
    if r.accept("PARTITIONS"):
        counted = str(r.integer())
    below, below_count = "", ""
    if r.accept("SUBPARTITION BY"):
        below, _ = _method(r)
        if r.accept("SUBPARTITIONS"):
            below_count = str(r.integer())
    position = r.position
    parts = _definitions(r) if r.is_sign("(") else ""
    if parts and below:
        words = r.words[position : r.position]
        below_count = str(words.count("SUBPARTITION") // words.count("PARTITION") or below_count)
    if counted and not parts:
        text += f" PARTITIONS {counted}"
    if below:
        text += f" SUBPARTITION BY {below}" + (f" SUBPARTITIONS {below_count}" if below_count else "")
    text += f" {parts}" if parts else ""
    return "PARTITION BY " + text + update_indexes(r)


def _method(r: SqlReader) -> tuple[str, str]:
    """Return the method with its columns, and its default number of partitions."""
    linear = "LINEAR " if r.accept("LINEAR") else ""
    text = _KINDS(r)
    return linear + text, "1" if text.startswith(("HASH", "KEY")) else ""


_KINDS: Final = one_of(
    by_words(
        "SYSTEM_TIME[ INTERVAL expression word][ LIMIT integer]",
        "KEY[ ALGORITHM = integer] ([path,..])",
        "RANGE COLUMNS|RANGE FIELDS: 'RANGE COLUMNS '([path,..])interval",
        "LIST COLUMNS|LIST FIELDS: 'LIST COLUMNS '([path,..])",
        "HASH (expression)",
        "RANGE (expression)interval",
        "LIST (expression)",
        interval=template(
            "[ INTERVAL (expression[ word])"
            "[ FIRST PARTITION LESS THAN (expression) LAST PARTITION LESS THAN (expression)]"
            "[ NULL PARTITION][ MAXVALUE PARTITION]]"
        ),
    )
)


def _values(r: SqlReader) -> str:
    return f" {value}" if (value := r.first_of(_VALUES)) else ""


def _in(r: SqlReader) -> str:
    values = _IN(r)
    return "DEFAULT" if values == "(DEFAULT)" else f"VALUES IN {values}"


def _value(r: SqlReader) -> str:
    if word := r.accept("MAXVALUE", "DEFAULT"):
        return word
    return _tuple(r) if r.is_sign("(") else r.read_expression()


def _tuple(r: SqlReader) -> str:
    position = r.position
    text = _IN(r)
    if r.is_sign(",") or r.is_sign(")"):
        return text
    r.position = position
    return r.read_expression()


_IN: Final = template("(value, ..)", value=_value)
_VALUES: Final = by_words(
    "VALUES LESS THAN MAXVALUE: 'VALUES LESS THAN (MAXVALUE)'",
    "VALUES LESS THAN (value, ..)",
    "VALUES IN: values_in",
    "DEFAULT",
    "HISTORY",
    "CURRENT",
    value=_value,
    values_in=_in,
)


def _options(r: SqlReader) -> str:
    parts: list[str] = []
    while (part := r.first_of(_PARTITION_OPTIONS)) is not None:
        parts.append(part)
    return "".join(f" {part}" for part in parts)


_PARTITION_OPTIONS: Final = by_words(
    "STORAGE ENGINE|ENGINE: 'ENGINE' = text",
    "COMMENT = string",
    "DATA DIRECTORY = string",
    "INDEX DIRECTORY = string",
    "MAX_ROWS = integer",
    "MIN_ROWS = integer",
    "TABLESPACE = name",
    "NODEGROUP = integer",
    "INSERT_METHOD = upper",
    "PLACEMENT POLICY: placement",
    placement=placement,
)
definition: Final = template(
    "PARTITION name~values~options[ (subpartition,..)]",
    values=_values,
    options=_options,
    subpartition=template("SUBPARTITION name~options", options=_options),
)
"""The definition of a partition."""
_definitions: Final = template("(definition,..)", definition=definition)
update_indexes: Final = template("[ UPDATE INDEXES (index,..)]", index=template("name {GLOBAL|LOCAL}"))
"""UPDATE INDEXES (..), after a blank, if it follows."""


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
        return f"{f'CONSTRAINT {named} ' if named else ''}CHECK{check_rest(r)}"
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
    parts = r.group(lambda _: (True, constraint(r)) if is_constraint(r) else (False, column(r)))
    return f"({joint.join(text for _, text in sorted(parts, key=itemgetter(0)))})"


def table_options(r: SqlReader) -> list[str]:
    """Return the table options here, in order; those that print nothing as "" where a blank stays."""
    parts: list[str] = []
    while (option := table_option(r)) is not None:
        if option != NOTHING:
            parts.append(option)
        if r.is_sign(",") and not any(r.looking_at(words, 1) for words in TABLE_OPTIONS):
            break
        r.sign(",")
    return parts


NOTHING: Final = "\0"
"""Result of an option that prints nothing, not even its blank."""


def table_option(r: SqlReader) -> str | None:
    """Return the table option here: "" if it prints nothing but its blank; None if none follows."""
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
