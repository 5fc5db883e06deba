"""ALTER TABLE: its clauses in order, joined by `, `; partitioning comes last, after a blank."""

from typing import Final

from tidegate.schema.parse.key import is_constraint
from tidegate.schema.restore.call import order_item
from tidegate.schema.restore.column import placed_column
from tidegate.schema.restore.expression import default_value
from tidegate.schema.restore.key import split_at
from tidegate.schema.restore.partition import definition, partitioning
from tidegate.schema.restore.reader import SqlReader, placement
from tidegate.schema.restore.table import (
    NOTHING,
    constraint,
    default_or_text,
    dropped,
    elements,
    table_option,
)
from tidegate.schema.restore.template import bracketed, by_words, one_of, template


def alter_table(r: SqlReader) -> str:
    """Return the rest of ALTER TABLE, after that word; "" if nothing is left of it."""
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
            raise r.error("not a clause of ALTER TABLE that we know")
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
    """Return the clause here: NOTHING if it prints nothing, None if it is none."""
    forced = r.looking_at("FORCE AUTO_INCREMENT") or r.looking_at("FORCE AUTO_RANDOM_BASE")
    found = None if forced else r.first_of(_CLAUSES)
    return _options(r) if found is None else found


def _options(r: SqlReader) -> str | None:
    """Return table options that stand side by side; exactly charset then collate print another way."""
    at = r.at
    parts: list[str] = []
    while (option := table_option(r)) is not None:
        if option != NOTHING:
            parts.append(option)
    if r.at == at:
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
    """All partitions, or a list of them."""
    return r.accept("ALL") or r.list_of(SqlReader.one_name, ",")


def _one_partition(r: SqlReader) -> str:
    """ALTER TABLE t PARTITION p ..: options of placement, which print nothing."""
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
        "EXCHANGE PARTITION name WITH TABLE table<WITH VALIDATION>[ WITHOUT VALIDATION]",
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
