"""DDL texts as TiCDC sends them: `restore_ddl`, ALTER TABLE, and the statements other than CREATE TABLE.

    create table T (a int key) ttl = `d` + interval 1 day
    CREATE TABLE `T` (`a` INT PRIMARY KEY) /*T![ttl] TTL = `d` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE = 'OFF' */

Placement rules are left out, TTL is off, keywords are upper case and names in backquotes; syntax that only TiDB
understands is in comments that other servers skip.  A text of placement alone becomes "", which TiCDC sends unchanged.
The clauses of ALTER TABLE keep their order, joined by `, `; partitioning comes last, after a blank.

Source: TiCDC cdc/owner/ddl_sink.go (which flags), TiDB parser/ast (what each node prints); recorded answers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidegate.expr.tokens import quote, quote_name
from tidegate.model.errors import SqlError
from tidegate.schema.cursor import is_constraint
from tidegate.schema.restore_expression import default_value, expression, operand, order_item, query
from tidegate.schema.restore_reader import (
    Grammar,
    PrintedName,
    Rule,
    SqlReader,
    bracketed,
    by_words,
    one_of,
    placement,
    template,
)
from tidegate.schema.restore_table import (
    NOTHING,
    constraint,
    create_table,
    default_or_text,
    definition,
    dropped,
    elements,
    index_options,
    key_parts,
    partitioning,
    placed_column,
    split_at,
    table_option,
)


def alter_table(r: SqlReader) -> str:
    """Return the rest of ALTER TABLE, after these words; "" if no clause is left."""
    named = r.table()
    if r.accept("ANALYZE PARTITION"):
        return f"ANALYZE TABLE {named} PARTITION {_analyze(r)}"
    parts: list[str] = []
    empty = True
    while not r.done():
        if r.accept("PARTITION BY"):
            return _with_tail(named, parts, partitioning(r))
        if r.accept("REMOVE PARTITIONING"):
            return _with_tail(named, parts, "REMOVE PARTITIONING")
        clause = _clause(r)
        if clause is None:
            raise r.error("not a known clause of ALTER TABLE")
        if clause != NOTHING:
            parts.append(clause)
        empty = False
        if not r.sign(",") and not r.done() and r.peek().word not in ("PARTITION", "REMOVE"):
            raise r.error("expected `,`")
    if empty or parts == [_GONE]:
        return ""
    return _with_tail(named, parts, "")


def _with_tail(named: str, parts: list[str], tail: str) -> str:
    text = f"ALTER TABLE {named}"
    if parts:
        text += " " + ", ".join(parts)
    return f"{text} {tail}" if tail else text


def _clause(r: SqlReader) -> str | None:
    """Return the clause here: NOTHING if it is not printed, None if there is no clause."""
    forced = r.looking_at("FORCE AUTO_INCREMENT") or r.looking_at("FORCE AUTO_RANDOM_BASE")
    clause = None if forced else r.first_of(_CLAUSES)
    return _options(r) if clause is None else clause


def _options(r: SqlReader) -> str | None:
    """Return adjacent table options; exactly charset and collation, in this order, have a form of their own."""
    position = r.position
    parts: list[str] = []
    while (option := table_option(r)) is not None:
        if option != NOTHING:
            parts.append(option)
    if r.position == position:
        return None
    options = [part.partition(" = ") for part in parts]
    if [option for option, _, _ in options] == ["DEFAULT CHARACTER SET", "DEFAULT COLLATE"]:
        return f"CHARACTER SET {options[0][2]} COLLATE {options[1][2]}"
    return " ".join(parts) if any(parts) else NOTHING


def _add(r: SqlReader) -> str:
    if is_constraint(r):
        return f"ADD {constraint(r)}"
    r.accept("COLUMN")
    exists = "/*T! IF NOT EXISTS  */" if r.accept("IF NOT EXISTS") else ""
    return f"ADD COLUMN {exists}{elements(r, ', ') if r.is_sign('(') else placed_column(r)}"


def _binlog(r: SqlReader) -> str:
    return " NO_WRITE_TO_BINLOG" if r.accept("NO_WRITE_TO_BINLOG", "LOCAL") else ""


def _partitions(r: SqlReader) -> str:
    return r.accept("ALL") or r.list_of(SqlReader.one_name, ",")


def _one_partition(r: SqlReader) -> str:
    """Read the placement options of ALTER TABLE t PARTITION p, which are not printed."""
    named = r.one_name()
    if r.accept("ATTRIBUTES"):
        return dropped(r)
    if r.accept("PLACEMENT POLICY"):
        placement(r)
    elif not r.looking_at("COMMENT"):
        raise r.error("expected an option of a partition")
    return f"/*T![placement] PARTITION {named} {_comment(r)} */" if r.looking_at("COMMENT") else _GONE


def _less_than(r: SqlReader) -> str:
    binlog = _binlog(r)
    text = bracketed(r)
    r.accept("IF EXISTS")
    return text + (binlog or _binlog(r))


_comment: Final = template("COMMENT = string")
_analyze: Final = template("name,..[ INDEX[ name,..]]")

_GONE: Final = "\1"
"""A clause about the placement of a partition alone: nothing of the statement is left."""
TIFLASH: Final = by_words(
    "SET TIFLASH REPLICA|SET HYPO TIFLASH REPLICA: 'SET TIFLASH REPLICA 'integer[ LOCATION LABELS string, ..]"
)
_CLAUSES: Final = (
    by_words(
        "ADD PARTITION[/*T!  IF NOT EXISTS */]~binlog[ PARTITIONS integer][ (definition, ..)]",
        "ADD STATS_EXTENDED [IF NOT EXISTS ]name {CARDINALITY|DEPENDENCY|CORRELATION}(path, ..)",
        "DROP PRIMARY KEY",
        "DROP PARTITION [/*T! IF EXISTS  */]name,..",
        "DROP STATS_EXTENDED [IF EXISTS ]name",
        "DROP FOREIGN KEY [/*T! IF EXISTS  */]name",
        "DROP INDEX|DROP KEY: 'DROP INDEX '[/*T! IF EXISTS  */]name",
        "DROP CHECK|DROP CONSTRAINT: 'DROP CHECK '[/*T! IF EXISTS  */]name",
        "DROP FIRST PARTITION LESS THAN: 'FIRST PARTITION LESS THAN '(expression)",
        "DROP COLUMN|DROP: 'DROP COLUMN '[/*T! IF EXISTS  */]path<RESTRICT|CASCADE>",
        "MODIFY COLUMN|MODIFY: 'MODIFY COLUMN '[/*T! IF EXISTS  */]placed_column",
        "CHANGE COLUMN|CHANGE: 'CHANGE COLUMN '[/*T! IF EXISTS  */]path placed_column",
        "ALTER INDEX name {VISIBLE|INVISIBLE}",
        "ALTER CHECK|ALTER CONSTRAINT: 'ALTER CHECK 'name {NOT ENFORCED|ENFORCED}",
        "ALTER COLUMN|ALTER: 'ALTER COLUMN 'path column_default",
        "RENAME COLUMN path TO path",
        "RENAME INDEX|RENAME KEY: 'RENAME INDEX 'name TO name",
        "RENAME: 'RENAME AS '<TO|AS><=>beside",
        "CONVERT TO CHARACTER SET|CONVERT TO CHARSET|CONVERT TO CHAR SET: 'CONVERT TO CHARACTER SET 'charset"
        "[ COLLATE upper]",
        "ALGORITHM = word",
        "LOCK = word",
        "ENABLE KEYS",
        "DISABLE KEYS",
        "WITH VALIDATION",
        "WITHOUT VALIDATION",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD",
        "READ ONLY",
        "READ WRITE",
        "NOCACHE",
        "CACHE",
        "FORCE: 'FORCE /* AlterTableForce is not supported */ '",
        "ORDER BY order_item,..",
        "TRUNCATE PARTITION~binlog partitions",
        "CHECK PARTITION~binlog partitions",
        "OPTIMIZE PARTITION~binlog partitions",
        "REPAIR PARTITION~binlog partitions",
        "REBUILD PARTITION~binlog partitions",
        "DISCARD TABLESPACE",
        "DISCARD PARTITION partitions TABLESPACE",
        "IMPORT TABLESPACE",
        "IMPORT PARTITION partitions TABLESPACE",
        "EXCHANGE PARTITION exchanged WITH TABLE table<WITH VALIDATION>[ WITHOUT VALIDATION]",
        "REORGANIZE PARTITION~binlog[ name,.. INTO (definition, ..)]",
        "COALESCE PARTITION~binlog integer",
        "COMPACT[ PARTITION name,..][ TIFLASH REPLICA]",
        "FIRST PARTITION LESS THAN less_than",
        "LAST PARTITION LESS THAN less_than",
        "MERGE FIRST PARTITION LESS THAN less_than",
        "SPLIT MAXVALUE PARTITION LESS THAN (expression)",
        "SPLIT PARTITION name",
        "SPLIT split_at",
        "STATS_OPTIONS=default_or_text",
        "/*T![ttl] REMOVE TTL */",
        "ADD: add",
        "PARTITION: one_partition",
        "ATTRIBUTES: dropped",
        add=_add,
        one_partition=_one_partition,
        dropped=dropped,
        binlog=_binlog,
        definition=definition,
        placed_column=placed_column,
        column_default=one_of(
            by_words("DROP DEFAULT", "SET DEFAULT value", value=lambda r: default_value(r, altered=True))
        ),
        order_item=order_item,
        partitions=_partitions,
        less_than=_less_than,
        split_at=split_at,
        default_or_text=default_or_text,
    )
    | TIFLASH
)


_GRAMMAR: Final = Grammar(expression, operand, query)


class RestoredDdl(NamedTuple):
    """A text as TiCDC sends it; it `loses` if parsing it again gives other strings, as with TiCDC's. `named` are the
    tables, databases and functions in it."""

    text: str
    loses: bool
    named: Sequence[PrintedName] = ()


def restore_ddl(sql: str, modes: Iterable[str] = (), charset: str = "", *, exact: bool = False) -> RestoredDdl:
    """Return `sql`, one DDL statement, as TiCDC sends it.

    `modes` are the SQL modes and `charset` the connection's charset of the job ("" for utf8mb4).  An `exact` text never
    `loses`: it has backslashes doubled where TiCDC's has not.  Raises SqlError for a text that is not one statement, or
    not one that becomes a DDL job."""
    reader = SqlReader(sql, frozenset(mode.upper() for mode in modes), charset, _GRAMMAR, exact=exact)
    while reader.sign(";"):
        pass
    text = reader.first_of(_STATEMENTS)
    if text is None:
        raise reader.error("not a known DDL statement")
    while reader.sign(";"):
        pass
    if not reader.done():
        raise reader.error("unexpected text")
    return RestoredDdl(text, reader.loses, reader.named)


def settled_ddl(sql: str) -> RestoredDdl:
    """Return `sql`, one DDL statement, in a form to send to a server: printed repeatedly until the text stays the same,
    so that every reader under no SQL mode parses the same, and `named` is all that it names.

    Raises SqlError for an unreadable text, or one that does not settle."""
    text = _exact(sql)
    for _ in range(_READINGS):
        if not text:
            return RestoredDdl("", loses=False)
        restored = restore_ddl(text, exact=True)
        if restored.text == text and not any(map(_is_open, _COMMENTS.findall(text))):
            return restored
        text = restored.text
    raise SqlError(f"no text that reads as it is printed: {sql[:500]!r}")


_READINGS: Final = 3
QUOTED: Final = r"""'(?:[^'\\]++|\\.|'')*+'|`(?:[^`]++|``)*+`"""
"""The pattern of a string or name in a printed text."""
_COMMENTS: Final = re.compile(rf"{QUOTED}|(/\*.*?\*/)", re.DOTALL)


def _is_open(comment: str) -> bool:
    """Return True if a comment ends inside a string or name that a server would take as part of the comment."""
    return any(sign in re.sub(QUOTED, "", comment, flags=re.DOTALL) for sign in "'`")


def _exact(sql: str) -> str:
    try:
        return restore_ddl(sql, exact=True).text
    except SqlError:
        if "\\" not in sql:
            raise
    return restore_ddl(sql, ("NO_BACKSLASH_ESCAPES",), exact=True).text


# ---------------------------------------------------------------------------------------------------- databases


def _charset(r: SqlReader) -> str:
    charset = r.word_or_string().lower()
    return "utf8" if charset == "utf8mb3" else charset


_DATABASE: Final = {
    **by_words(
        "CHARACTER SET|CHARSET|CHAR SET: 'CHARACTER SET' = charset",
        "COLLATE = lower",
        "ENCRYPTION = string",
        "PLACEMENT POLICY: placement",
        charset=_charset,
        placement=placement,
    ),
    **TIFLASH,
}


def _database_options(r: SqlReader) -> list[str]:
    parts: list[str] = []
    while True:
        r.accept("DEFAULT")
        if (part := r.first_of(_DATABASE)) is None:
            return parts
        parts.append(part)


def _alter_database(r: SqlReader) -> str:
    named = r.is_name() and not (
        (r.looking_at("DEFAULT") and not r.done() and _is_database_option(r, 1)) or _is_database_option(r, 0)
    )
    parts = [r.database()] if named else []
    if not named:
        r.of_session()
    options = _database_options(r)
    if not any(options):
        return ""
    return " ".join(["ALTER DATABASE", *parts, *options])


def _is_database_option(r: SqlReader, ahead: int) -> bool:
    return any(r.looking_at(words, ahead) for words in _DATABASE)


# ---------------------------------------------------------------------------------------------------- views


def _view(r: SqlReader) -> str:
    """Return a view with its options; three of them are always printed."""
    settings = {"ALGORITHM": "UNDEFINED", "DEFINER": "CURRENT_USER", "SQL SECURITY": "DEFINER"}
    while option := r.accept(*settings):
        if option != "SQL SECURITY":
            r.expect_sign("=")
        settings[option] = _VIEW_OPTIONS[option](r)
    options = "ALGORITHM = {} DEFINER = {} SQL SECURITY {} ".format(*settings.values())
    return options + _viewed(r)


def _user(r: SqlReader) -> str:
    if r.accept("CURRENT_USER"):
        if r.sign("("):
            r.expect_sign(")")
        return "CURRENT_USER"
    user = r.word_or_string()
    host = r.word_or_string() if r.sign("@") else "%"
    return f"{quote_name(user)}@{quote_name(host)}"


_VIEW_OPTIONS: Final[Mapping[str, Rule]] = {
    "ALGORITHM": template("{UNDEFINED|MERGE|TEMPTABLE}"),
    "DEFINER": _user,
    "SQL SECURITY": template("{DEFINER|INVOKER}"),
}
_viewed: Final = template("VIEW table[ (name,..)] AS query<WITH CASCADED CHECK OPTION>[ WITH LOCAL CHECK OPTION]")


# ---------------------------------------------------------------------------------------------------- indexes


def _index(r: SqlReader) -> str:
    """Return a new index; its type may be written before ON or after the columns."""
    named = _new_index(r)
    method = r.next().word if r.accept("USING", "TYPE") else ""
    return named + _indexed(r) + index_options(r, method) + _lock_and_algorithm(r)


_new_index: Final = template("[/*T! IF NOT EXISTS  */]name")
_indexed: Final = template(" ON table key_parts", key_parts=key_parts)


def _lock_and_algorithm(r: SqlReader) -> str:
    clauses: dict[str, str] = {}
    while word := r.accept("ALGORITHM", "LOCK"):
        r.sign("=")
        clauses[word] = r.next().word
    return "".join(f" {word} = {value}" for word, value in sorted(clauses.items()) if value != "DEFAULT")


# ---------------------------------------------------------------------------------------------------- sequences


_SEQUENCE: Final = by_words(
    "INCREMENT: 'INCREMENT BY '<BY|WITH><=>signed",
    "START: 'START WITH '<BY|WITH><=>signed",
    "MINVALUE <BY|WITH><=>signed",
    "NOMINVALUE|NO MINVALUE: 'NO MINVALUE'",
    "MAXVALUE <BY|WITH><=>signed",
    "NOMAXVALUE|NO MAXVALUE: 'NO MAXVALUE'",
    "CACHE <BY|WITH><=>signed",
    "NOCACHE|NO CACHE: 'NOCACHE'",
    "CYCLE",
    "NOCYCLE|NO CYCLE: 'NOCYCLE'",
    "RESTART<WITH><=>number",
    number=lambda r: "" if r.done() or r.is_name() else f" WITH {r.signed()}",
)


def _settings(r: SqlReader) -> str:
    parts = r.every(_SEQUENCE)
    while (option := table_option(r)) is not None:
        parts += [option, *r.every(_SEQUENCE)]
    return "".join(f" {part}" for part in parts)


# ---------------------------------------------------------------------------------------------------- placement


def _policy_settings(r: SqlReader) -> str:
    """Skip the settings of a placement policy; only the blanks between them are printed."""
    count = 0
    while not r.done():
        r.name()
        r.sign("=")
        r.sign("-")
        r.next()
        r.sign(",")
        count += 1
    return " " * (count - 1)


def _alter_policy(r: SqlReader) -> str:
    r.accept("IF EXISTS")
    r.name()
    _policy_settings(r)
    return ""


# ---------------------------------------------------------------------------------------------------- resource groups


def _limits(settings: Mapping[str, Rule], joint: str) -> Rule:
    def rule(r: SqlReader) -> str:
        if r.accept("NULL"):
            return "NULL"
        r.expect_sign("(")
        parts = r.every(settings, commas=True)
        r.expect_sign(")")
        return f"({joint.join(parts)})" if parts else "NULL"

    return rule


def _duration(r: SqlReader) -> str:
    if not r.accept("DURATION"):
        return "UNLIMITED"
    r.sign("=")
    duration = quote(r.string()) if r.is_string() else r.next().word
    return "UNLIMITED" if duration == "'unlimited'" else duration


_RUNAWAY: Final = by_words(
    "EXEC_ELAPSED = string",
    "PROCESSED_KEYS = integer",
    "RU = integer",
    "ACTION = word[(name)]",
    "WATCH = word 'DURATION = 'duration",
    duration=_duration,
)
_BACKGROUND: Final = by_words("TASK_TYPES = string", "UTILIZATION_LIMIT = integer")
_BURSTABLE: Final = {
    "OFF": "OFF",
    "UNLIMITED": "UNLIMITED",
    "MODERATED": "MODERATED",
    "TRUE": "MODERATED",
    "FALSE": "OFF",
    "": "MODERATED",
}
_RESOURCES: Final = by_words(
    "RU_PER_SEC = rate",
    "PRIORITY = word",
    "BURSTABLE: 'BURSTABLE = '<=>burstable",
    "QUERY_LIMIT = query_limit",
    "BACKGROUND = background",
    rate=lambda r: r.accept("UNLIMITED") or str(r.integer()),
    burstable=lambda r: _BURSTABLE[r.accept(*_BURSTABLE)],
    query_limit=_limits(_RUNAWAY, " "),
    background=_limits(_BACKGROUND, ", "),
)


_STATEMENTS: Final = by_words(
    "CREATE DATABASE|CREATE SCHEMA: 'CREATE DATABASE '[IF NOT EXISTS ]database~options",
    "ALTER DATABASE|ALTER SCHEMA: alter_database",
    "DROP DATABASE|DROP SCHEMA: 'DROP DATABASE '[IF EXISTS ]database",
    "CREATE TABLE new_table",
    "CREATE TEMPORARY TABLE new_table",
    "CREATE GLOBAL TEMPORARY TABLE new_table",
    "ALTER TABLE|ALTER IGNORE TABLE: alter_table",
    "DROP TABLES|DROP TABLE: 'DROP TABLE 'dropped",
    "DROP TEMPORARY TABLES|DROP TEMPORARY TABLE: 'DROP TEMPORARY TABLE 'dropped",
    "DROP GLOBAL TEMPORARY TABLE dropped",
    "DROP VIEW dropped",
    "TRUNCATE: 'TRUNCATE TABLE '<TABLE>table",
    "RENAME TABLES|RENAME TABLE: 'RENAME TABLE 'pair, ..",
    "RECOVER TABLE BY JOB integer",
    "RECOVER TABLE table[ integer]",
    "FLASHBACK DATABASE|FLASHBACK SCHEMA: 'FLASHBACK DATABASE 'database, ..~moment",
    "FLASHBACK TABLE table, ..~moment",
    "FLASHBACK CLUSTER~moment",
    "CREATE INDEX index",
    "CREATE UNIQUE INDEX index",
    "CREATE FULLTEXT INDEX index",
    "CREATE SPATIAL INDEX index",
    "CREATE VECTOR INDEX index",
    "CREATE COLUMNAR INDEX index",
    "DROP INDEX [/*T! IF EXISTS  */]name ON table~lock",
    "CREATE SEQUENCE [IF NOT EXISTS ]table~settings",
    "ALTER SEQUENCE [IF EXISTS ]table~settings",
    "DROP SEQUENCE [IF EXISTS ]table, ..",
    "/*T![placement] CREATE OR REPLACE PLACEMENT POLICY [IF NOT EXISTS ]name policy */",
    "/*T![placement] CREATE PLACEMENT POLICY [IF NOT EXISTS ]name policy */",
    "ALTER PLACEMENT POLICY: alter_policy",
    "/*T![placement] DROP PLACEMENT POLICY [IF EXISTS ]name */",
    "/*T![resource_group] CREATE RESOURCE GROUP [IF NOT EXISTS ]name resources */",
    "/*T![resource_group] ALTER RESOURCE GROUP [IF EXISTS ]name resources */",
    "/*T![resource_group] DROP RESOURCE GROUP [IF EXISTS ]name */",
    "CREATE OR REPLACE view",
    "CREATE view",
    options=lambda r: "".join(f" {option}" for option in _database_options(r)),
    alter_database=_alter_database,
    new_table=create_table,
    alter_table=alter_table,
    dropped=template("[IF EXISTS ]table, ..<RESTRICT|CASCADE>"),
    pair=template("table TO beside"),
    moment=template("[ TO TIMESTAMP text][ TO TSO integer][ TO name]", text=lambda r: quote(r.string())),
    index=_index,
    lock=_lock_and_algorithm,
    settings=_settings,
    policy=_policy_settings,
    alter_policy=_alter_policy,
    view=_view,
    resources=lambda r: ", ".join(r.every(_RESOURCES, commas=True)),
)
