"""ALTER TABLE: its clauses in order, joined by `, `; partitioning comes last, after a blank."""

from collections.abc import Mapping
from typing import Final

from tidegate.schema.restore.call import order_item
from tidegate.schema.restore.column import column, column_place
from tidegate.schema.restore.datatype import charset_name
from tidegate.schema.restore.expression import default_value
from tidegate.schema.restore.key import split_at
from tidegate.schema.restore.partition import bound, definitions, partitioning
from tidegate.schema.restore.reader import Rule, SqlReader, comment, fixed, placement, text_option
from tidegate.schema.restore.table import (
    NOTHING,
    constraint,
    dropped,
    elements,
    is_constraint,
    table_option,
    text_or_default,
)

_IF_EXISTS: Final = "/*T! IF EXISTS  */"
_IF_NOT_EXISTS: Final = "/*T! IF NOT EXISTS  */"


def alter_table(r: SqlReader) -> str:
    """Return the rest of ALTER TABLE, after that word; "" if nothing is left of it."""
    table = r.path()
    if r.accept("ANALYZE PARTITION"):
        return _analyze(r, table)
    if r.accept("COMPACT"):
        return f"ALTER TABLE {table} {_compact(r)}"
    parts: list[str] = []
    empty = True
    while not r.done():
        if r.accept("PARTITION BY"):
            return _with_tail(table, parts, partitioning(r))
        if r.accept("REMOVE PARTITIONING"):
            return _with_tail(table, parts, "REMOVE PARTITIONING")
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
    return _with_tail(table, parts, "")


def _with_tail(table: str, parts: list[str], tail: str) -> str:
    text = f"ALTER TABLE {table}"
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


def _analyze(r: SqlReader, table: str) -> str:
    text = f"ANALYZE TABLE {table} PARTITION {r.list_of(SqlReader.one_name, ',')}"
    if r.accept("INDEX"):
        text += " INDEX" + ("" if r.done() else " " + r.list_of(SqlReader.one_name, ","))
    return text


def _compact(r: SqlReader) -> str:
    text = "COMPACT"
    if r.accept("PARTITION"):
        text += " PARTITION " + r.list_of(SqlReader.one_name, ",")
    return text + (" TIFLASH REPLICA" if r.accept("TIFLASH REPLICA") else "")


def _add(r: SqlReader) -> str:
    if r.accept("PARTITION"):
        return _add_partitions(r)
    if is_constraint(r):
        return f"ADD {constraint(r)}"
    if r.accept("STATS_EXTENDED"):
        exists = "IF NOT EXISTS " if r.accept("IF NOT EXISTS") else ""
        named = r.one_name()
        kind = r.expect("CARDINALITY", "DEPENDENCY", "CORRELATION")
        return f"ADD STATS_EXTENDED {exists}{named} {kind}{r.in_brackets(SqlReader.path)}"
    r.accept("COLUMN")
    exists = _IF_NOT_EXISTS if r.accept("IF NOT EXISTS") else ""
    if r.is_sign("("):
        return f"ADD COLUMN {exists}{elements(r, ', ')}"
    return f"ADD COLUMN {exists}{column(r)}{column_place(r)}"


def _binlog(r: SqlReader) -> str:
    return "NO_WRITE_TO_BINLOG " if r.accept("NO_WRITE_TO_BINLOG", "LOCAL") else ""


def _add_partitions(r: SqlReader) -> str:
    exists = "/*T!  IF NOT EXISTS */" if r.accept("IF NOT EXISTS") else ""
    binlog = _binlog(r).strip()
    text = f"ADD PARTITION{exists}{' ' + binlog if binlog else ''}"
    if r.accept("PARTITIONS"):
        return f"{text} PARTITIONS {r.integer()}"
    return f"{text} {definitions(r, ', ')}" if r.is_sign("(") else text


def _drop(r: SqlReader) -> str:
    if r.accept("PRIMARY KEY"):
        return "DROP PRIMARY KEY"
    if r.accept("PARTITION"):
        exists = _IF_EXISTS if r.accept("IF EXISTS") else ""
        return f"DROP PARTITION {exists}{r.list_of(SqlReader.one_name, ',')}"
    if r.accept("STATS_EXTENDED"):
        exists = "IF EXISTS " if r.accept("IF EXISTS") else ""
        return f"DROP STATS_EXTENDED {exists}{r.one_name()}"
    kinds = {"FOREIGN KEY": "FOREIGN KEY", "INDEX": "INDEX", "KEY": "INDEX", "CHECK": "CHECK", "CONSTRAINT": "CHECK"}
    if found := r.accept(*kinds):
        exists = _IF_EXISTS if r.accept("IF EXISTS") else ""
        return f"DROP {kinds[found]} {exists}{r.one_name()}"
    if r.accept("FIRST PARTITION LESS THAN"):
        return f"FIRST PARTITION LESS THAN {bound(r)}"
    r.accept("COLUMN")
    exists = _IF_EXISTS if r.accept("IF EXISTS") else ""
    text = f"DROP COLUMN {exists}{r.path()}"
    r.accept("RESTRICT", "CASCADE")
    return text


def _modify(r: SqlReader) -> str:
    r.accept("COLUMN")
    exists = _IF_EXISTS if r.accept("IF EXISTS") else ""
    return f"MODIFY COLUMN {exists}{column(r)}{column_place(r)}"


def _change(r: SqlReader) -> str:
    r.accept("COLUMN")
    exists = _IF_EXISTS if r.accept("IF EXISTS") else ""
    return f"CHANGE COLUMN {exists}{r.path()} {column(r)}{column_place(r)}"


def _alter(r: SqlReader) -> str:
    if r.accept("INDEX"):
        return f"ALTER INDEX {r.one_name()} {r.expect('VISIBLE', 'INVISIBLE')}"
    if r.accept("CHECK", "CONSTRAINT"):
        return f"ALTER CHECK {r.one_name()} {r.expect('NOT ENFORCED', 'ENFORCED')}"
    r.accept("COLUMN")
    text = f"ALTER COLUMN {r.path()} "
    if r.accept("DROP DEFAULT"):
        return text + "DROP DEFAULT"
    r.expect("SET DEFAULT")
    return f"{text}SET DEFAULT {default_value(r, altered=True)}"


def _rename(r: SqlReader) -> str:
    if r.accept("COLUMN"):
        old = r.path()
        r.expect("TO")
        return f"RENAME COLUMN {old} TO {r.path()}"
    if r.looking_at("INDEX") or r.looking_at("KEY"):
        r.next()
        old = r.one_name()
        r.expect("TO")
        return f"RENAME INDEX {old} TO {r.one_name()}"
    r.accept("TO", "AS")
    r.sign("=")
    return f"RENAME AS {r.path()}"


def _convert(r: SqlReader) -> str:
    r.expect("CHARACTER SET", "CHARSET", "CHAR SET")
    charset = "DEFAULT" if r.accept("DEFAULT") else charset_name(r.word_or_string())
    text = f"CONVERT TO CHARACTER SET {charset}"
    return f"{text} COLLATE {r.word_or_string().upper()}" if r.accept("COLLATE") else text


def _equal_word(option: str) -> Rule:
    def rule(r: SqlReader) -> str:
        r.sign("=")
        return f"{option} = {r.next().word}"

    return rule


def tiflash_replica(r: SqlReader) -> str:
    """Return SET TIFLASH REPLICA with its number and labels, after these words."""
    text = f"SET TIFLASH REPLICA {r.integer()}"
    return f"{text} LOCATION LABELS {r.list_of(SqlReader.plain_text)}" if r.accept("LOCATION LABELS") else text


def _partitions(text: str) -> Rule:
    """A clause about all partitions or a list of them."""

    def rule(r: SqlReader) -> str:
        return f"{text} {_binlog(r)}{'ALL' if r.accept('ALL') else r.list_of(SqlReader.one_name, ',')}"

    return rule


def _tablespace(word: str) -> Rule:
    def rule(r: SqlReader) -> str:
        if r.accept("TABLESPACE"):
            return f"{word} TABLESPACE"
        r.expect("PARTITION")
        names = "ALL" if r.accept("ALL") else r.list_of(SqlReader.one_name, ",")
        r.expect("TABLESPACE")
        return f"{word} PARTITION {names} TABLESPACE"

    return rule


def _exchange(r: SqlReader) -> str:
    text = f"EXCHANGE PARTITION {r.one_name()}"
    r.expect("WITH TABLE")
    text += f" WITH TABLE {r.path()}"
    validation = r.accept("WITHOUT VALIDATION", "WITH VALIDATION")
    return f"{text} {validation}" if validation == "WITHOUT VALIDATION" else text


def _reorganize(r: SqlReader) -> str:
    text = f"REORGANIZE PARTITION {_binlog(r)}"
    if r.done():
        return text.rstrip()
    names = r.list_of(SqlReader.one_name, ",")
    r.expect("INTO")
    return f"{text}{names} INTO {definitions(r, ', ')}"


def _coalesce(r: SqlReader) -> str:
    return f"COALESCE PARTITION {_binlog(r)}{r.integer()}"


def _one_partition(r: SqlReader) -> str:
    """ALTER TABLE t PARTITION p ..: options of placement, which print nothing."""
    named = r.one_name()
    if r.accept("ATTRIBUTES"):
        return dropped(r)
    parts: list[str] = []
    if r.accept("PLACEMENT POLICY"):
        placement(r)
    elif not r.looking_at("COMMENT"):
        raise r.error("expected an option of a partition")
    if r.accept("COMMENT"):
        parts.append(text_option("COMMENT")(r))
    return comment("placement", f"PARTITION {named} {' '.join(parts)}") if parts else _GONE


def _order(r: SqlReader) -> str:
    return "ORDER BY " + r.list_of(order_item, ",")


def _less_than(words: str) -> Rule:
    def rule(r: SqlReader) -> str:
        binlog = "NO_WRITE_TO_BINLOG" if r.accept("LOCAL", "NO_WRITE_TO_BINLOG") else ""
        text = f"{words} {bound(r)}"
        r.accept("IF EXISTS")
        binlog = binlog or ("NO_WRITE_TO_BINLOG" if r.accept("LOCAL", "NO_WRITE_TO_BINLOG") else "")
        return f"{text} {binlog}" if binlog else text

    return rule


def _split(r: SqlReader) -> str:
    if r.accept("MAXVALUE PARTITION LESS THAN"):
        return f"SPLIT MAXVALUE PARTITION LESS THAN {bound(r)}"
    if r.accept("PARTITION"):
        return "SPLIT PARTITION " + r.one_name()
    return f"SPLIT {split_at(r)}"


_GONE: Final = "\1"
"""A clause about the placement of a partition alone: nothing of the statement is left."""
_WORDS: Final = (
    *("ENABLE KEYS", "DISABLE KEYS", "WITH VALIDATION", "WITHOUT VALIDATION", "SECONDARY_LOAD", "SECONDARY_UNLOAD"),
    *("READ ONLY", "READ WRITE", "NOCACHE", "CACHE"),
)
_CLAUSES: Final[Mapping[str, Rule]] = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "ALTER": _alter,
    "RENAME": _rename,
    "CONVERT TO": _convert,
    "ALGORITHM": _equal_word("ALGORITHM"),
    "LOCK": _equal_word("LOCK"),
    **{words: fixed(words) for words in _WORDS},
    "FORCE": fixed("FORCE /* AlterTableForce is not supported */ "),
    "ORDER BY": _order,
    "SET TIFLASH REPLICA": tiflash_replica,
    "SET HYPO TIFLASH REPLICA": tiflash_replica,
    "TRUNCATE PARTITION": _partitions("TRUNCATE PARTITION"),
    "CHECK PARTITION": _partitions("CHECK PARTITION"),
    "OPTIMIZE PARTITION": _partitions("OPTIMIZE PARTITION"),
    "REPAIR PARTITION": _partitions("REPAIR PARTITION"),
    "REBUILD PARTITION": _partitions("REBUILD PARTITION"),
    "DISCARD": _tablespace("DISCARD"),
    "IMPORT": _tablespace("IMPORT"),
    "EXCHANGE PARTITION": _exchange,
    "REORGANIZE PARTITION": _reorganize,
    "COALESCE PARTITION": _coalesce,
    "PARTITION": _one_partition,
    "ATTRIBUTES": dropped,
    "FIRST PARTITION LESS THAN": _less_than("FIRST PARTITION LESS THAN"),
    "LAST PARTITION LESS THAN": _less_than("LAST PARTITION LESS THAN"),
    "MERGE FIRST PARTITION LESS THAN": _less_than("MERGE FIRST PARTITION LESS THAN"),
    "SPLIT": _split,
    "STATS_OPTIONS": lambda r: text_or_default("STATS_OPTIONS")(r).replace(" = ", "=", 1),
    "REMOVE TTL": fixed(comment("ttl", "REMOVE TTL")),
}
