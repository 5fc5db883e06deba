"""Grammar of ALTER TABLE's specs: one function per leading word, chosen by a table.

    ALTER TABLE t  ADD ..., DROP ..., MODIFY ..., COMMENT = 'x'  PARTITION BY ...
                   ^ RULES[first word]        ^ no rule: a table option

Source: TiDB parser/parser.y (AlterTableSpec, AlterTablePartitionOpt).
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind
from tidegate.model.table import COLUMNS_MAX
from tidegate.schema.columns import charset_of_collation, normal_charset, read_charset_name
from tidegate.schema.cursor import Cursor
from tidegate.schema.definition import (
    AddCheck,
    AlterCheck,
    CheckDef,
    DropConstraint,
    DropForeignKey,
    Position,
    RemoveTtl,
)
from tidegate.schema.parse.column import read_column, read_default
from tidegate.schema.parse.create import read_body
from tidegate.schema.parse.key import is_constraint, read_constraint
from tidegate.schema.parse.table import read_options, read_partition_by, read_partition_definitions
from tidegate.schema.spec import (
    AddColumns,
    AddForeignKey,
    AddIndex,
    AddPartitions,
    CoalescePartitions,
    ConvertCharset,
    DropColumn,
    DropIndex,
    DropPartitions,
    DropPrimaryKey,
    ExchangePartition,
    ModifyColumn,
    NoChange,
    NotSupported,
    PartitionBy,
    RemovePartitioning,
    RenameColumn,
    RenameIndex,
    RenameTo,
    ReorganizePartitions,
    SetDefault,
    SetVisibility,
    Spec,
    TruncatePartitions,
)


def read_specs(cursor: Cursor, default_schema: str) -> tuple[Spec, ...]:
    """Return the specs up to the end of the statement, moving past them."""
    specs: list[Spec] = []
    while not cursor.done():
        if len(specs) >= COLUMNS_MAX:
            raise cursor.error(f"an ALTER TABLE of more than {COLUMNS_MAX} changes")
        specs.append(_read_spec(cursor, default_schema))
        if not cursor.sign(",") and not cursor.looking_at("PARTITION BY") and not cursor.looking_at("REMOVE"):
            break
    return tuple(specs)


def _read_spec(cursor: Cursor, default_schema: str) -> Spec:
    word = cursor.peek().word
    if word == "RENAME":
        return _rename(cursor, default_schema)
    if word == "EXCHANGE":
        return _exchange(cursor, default_schema)
    rule = _RULES.get(word)
    if rule is not None:
        return rule(cursor)
    options, count = read_options(cursor, commas=False)
    if not count:
        raise cursor.error("unknown ALTER TABLE specification")
    return options


def _position(cursor: Cursor) -> Position | None:
    match cursor.accept("FIRST", "AFTER"):
        case "FIRST":
            return Position(None)
        case "AFTER":
            return Position(cursor.name("a column name"))
    return None


def _if_exists(cursor: Cursor) -> bool:
    return cursor.accept("IF EXISTS") != ""


def _partition_names(cursor: Cursor) -> tuple[str, ...]:
    return () if cursor.accept("ALL") else cursor.names()


def _add(cursor: Cursor) -> Spec:
    cursor.expect("ADD")
    if cursor.looking_at("PARTITION") and not _is_type_after_name(cursor):
        return _add_partition(cursor)
    if cursor.accept("STATS_EXTENDED"):
        return _pass(cursor, "ADD STATS_EXTENDED")
    if is_constraint(cursor):
        index, if_not_exists = read_constraint(cursor)
        if isinstance(index, CheckDef):
            return NoChange("ADD CHECK", AddCheck(index))
        return AddForeignKey(index) if index.foreign else AddIndex(index, if_not_exists)
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    if not cursor.is_sign("("):
        column = read_column(cursor)
        return AddColumns((column,), (), _position(cursor), if_not_exists)
    columns, indexes, _ = read_body(cursor)
    return AddColumns(tuple(columns), tuple(indexes), None, if_not_exists)


def _is_type_after_name(cursor: Cursor) -> bool:
    """True for `ADD partition INT`: a column whose name is the word PARTITION."""
    following = cursor.peek(1)
    return following.kind is TokenKind.WORD and following.word not in (
        "IF",
        "PARTITIONS",
        "NO_WRITE_TO_BINLOG",
        "LOCAL",
    )


def _add_partition(cursor: Cursor) -> Spec:
    cursor.expect("PARTITION")
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    cursor.accept("NO_WRITE_TO_BINLOG", "LOCAL")
    if cursor.accept("PARTITIONS"):
        return AddPartitions((), cursor.integer("the number of partitions"), if_not_exists)
    return AddPartitions(read_partition_definitions(cursor), 0, if_not_exists)


def _drop(cursor: Cursor) -> Spec:
    cursor.expect("DROP")
    match cursor.accept(
        "PRIMARY KEY", "FOREIGN KEY", "INDEX", "KEY", "CONSTRAINT", "CHECK", "PARTITION", "STATS_EXTENDED"
    ):
        case "PRIMARY KEY":
            return DropPrimaryKey()
        case "FOREIGN KEY" | "CONSTRAINT" | "CHECK" | "STATS_EXTENDED" as what:
            if_exists = _if_exists(cursor)
            kind = {"FOREIGN KEY": DropForeignKey, "STATS_EXTENDED": None}.get(what, DropConstraint)
            name = cursor.name()
            return NoChange(f"DROP {what}", None if kind is None else kind(name, if_exists))
        case "INDEX" | "KEY":
            if_exists = _if_exists(cursor)
            return DropIndex(cursor.name("an index name"), if_exists)
        case "PARTITION":
            if_exists = _if_exists(cursor)
            return DropPartitions(cursor.names(), if_exists)
    cursor.accept("COLUMN")
    if_exists = _if_exists(cursor)
    name = cursor.name("a column name")
    cursor.accept("RESTRICT", "CASCADE")
    return DropColumn(name, if_exists)


def _modify(cursor: Cursor) -> Spec:
    cursor.expect("MODIFY")
    cursor.accept("COLUMN")
    if_exists = _if_exists(cursor)
    column = read_column(cursor)
    return ModifyColumn(column.name, column, _position(cursor), if_exists)


def _change(cursor: Cursor) -> Spec:
    cursor.expect("CHANGE")
    cursor.accept("COLUMN")
    if_exists = _if_exists(cursor)
    old = cursor.name("a column name")
    column = read_column(cursor)
    return ModifyColumn(old, column, _position(cursor), if_exists)


def _rename(cursor: Cursor, default_schema: str) -> Spec:
    cursor.expect("RENAME")
    if cursor.looking_at("COLUMN") and not cursor.done():
        cursor.next()
        old = cursor.name("a column name")
        cursor.expect("TO")
        return RenameColumn(old, cursor.name("a column name"))
    if cursor.accept("INDEX", "KEY"):
        old = cursor.name("an index name")
        cursor.expect("TO")
        return RenameIndex(old, cursor.name("an index name"))
    if not cursor.accept("TO", "AS"):
        cursor.sign("=")
    new = cursor.qualified()
    return RenameTo(new.within(default_schema), new.schema is not None)


def _alter(cursor: Cursor) -> Spec:
    cursor.expect("ALTER")
    if cursor.accept("INDEX", "KEY"):
        _if_exists(cursor)
        name = cursor.name("an index name")
        return SetVisibility(name, cursor.expect("VISIBLE", "INVISIBLE", "NOT INVISIBLE") != "INVISIBLE")
    if cursor.accept("CHECK", "CONSTRAINT"):
        name = cursor.name()
        return NoChange("ALTER CHECK", AlterCheck(name, cursor.expect("ENFORCED", "NOT ENFORCED") == "ENFORCED"))
    cursor.accept("COLUMN")
    _if_exists(cursor)
    name = cursor.name("a column name")
    match cursor.expect("SET DEFAULT", "DROP DEFAULT", "SET VISIBLE", "SET INVISIBLE"):
        case "SET DEFAULT":
            return SetDefault(name, read_default(cursor))
        case "DROP DEFAULT":
            return SetDefault(name, None)
    return NoChange("column visibility")


def _convert(cursor: Cursor) -> Spec:
    cursor.expect("CONVERT TO")
    cursor.expect("CHARACTER SET", "CHAR SET", "CHARSET")
    cursor.sign("=")
    charset = None if cursor.accept("DEFAULT") else normal_charset(read_charset_name(cursor))
    collation = read_charset_name(cursor).lower() if cursor.accept("COLLATE") else None
    if charset is None and collation is not None:
        charset = charset_of_collation(collation)
    return ConvertCharset(charset, collation)


def _truncate(cursor: Cursor) -> Spec:
    cursor.expect("TRUNCATE PARTITION")
    return TruncatePartitions(_partition_names(cursor))


def _reorganize(cursor: Cursor) -> Spec:
    cursor.expect("REORGANIZE PARTITION")
    cursor.accept("NO_WRITE_TO_BINLOG", "LOCAL")
    if cursor.done():
        return NoChange("REORGANIZE PARTITION")
    names = cursor.names()
    cursor.expect("INTO")
    return ReorganizePartitions(names, read_partition_definitions(cursor))


def _coalesce(cursor: Cursor) -> Spec:
    cursor.expect("COALESCE PARTITION")
    cursor.accept("NO_WRITE_TO_BINLOG", "LOCAL")
    return CoalescePartitions(cursor.integer("the number of partitions"))


def _exchange(cursor: Cursor, default_schema: str) -> Spec:
    cursor.expect("EXCHANGE PARTITION")
    name = cursor.name("a partition name")
    cursor.expect("WITH TABLE")
    table = cursor.qualified().within(default_schema)
    validated = cursor.accept("WITH VALIDATION", "WITHOUT VALIDATION") != "WITHOUT VALIDATION"
    return ExchangePartition(name, table, validated)


def _remove(cursor: Cursor) -> Spec:
    return (
        RemovePartitioning()
        if cursor.expect("REMOVE PARTITIONING", "REMOVE TTL") == "REMOVE PARTITIONING"
        else NoChange("TTL", RemoveTtl())
    )


def _partition(cursor: Cursor) -> Spec:
    cursor.expect("PARTITION")
    if not cursor.accept("BY"):
        cursor.name("a partition name")
        return _pass(cursor, "attributes of a partition")
    partition, not_supported = read_partition_by(cursor)
    return NotSupported(not_supported) if not_supported else PartitionBy(partition)


def _interval(cursor: Cursor) -> Spec:
    what = cursor.expect(
        "FIRST PARTITION", "LAST PARTITION", "MERGE FIRST PARTITION", "SPLIT MAXVALUE PARTITION", "SPLIT"
    )
    _pass(cursor, what)
    return NotSupported(what)


def _pass(cursor: Cursor, what: str) -> Spec:
    """Move to the next spec; the one passed over changes nothing that we follow."""
    cursor.skip_balanced(",")
    return NoChange(what)


def _other(cursor: Cursor) -> Spec:
    what = cursor.peek().word
    _pass(cursor, what)
    # Lists of columns (ORDER BY a, b) and of labels ('a', 'b') go on after a comma; a new spec starts with its word.
    while cursor.is_sign(",") and (cursor.peek(1).kind is TokenKind.STRING or (what == "ORDER" and _is_column(cursor))):
        cursor.next()
        _pass(cursor, what)
    return NoChange(what)


def _is_column(cursor: Cursor) -> bool:
    following = cursor.peek(1)
    return following.kind is TokenKind.NAME or (following.word != "" and following.word not in _STARTS)


_PASSED: Final = frozenset(
    [
        "ORDER",
        "ENABLE",
        "DISABLE",
        "FORCE",
        "LOCK",
        "ALGORITHM",
        "WITH",
        "WITHOUT",
        "ATTRIBUTES",
        "CACHE",
        "NOCACHE",
        "SET",
        "DISCARD",
        "IMPORT",
        "OPTIMIZE",
        "REBUILD",
        "REPAIR",
        "ANALYZE",
        "CHECK",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD",
        "COMPACT",
        "READ",
    ]
)
_STARTS: Final = _PASSED | {
    "ADD",
    "DROP",
    "MODIFY",
    "CHANGE",
    "ALTER",
    "CONVERT",
    "RENAME",
    "COMMENT",
    "ENGINE",
    "DEFAULT",
    "CHARACTER",
    "CHARSET",
    "AUTO_INCREMENT",
}
_RULES: Final[Mapping[str, Callable[[Cursor], Spec]]] = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "ALTER": _alter,
    "CONVERT": _convert,
    "TRUNCATE": _truncate,
    "REORGANIZE": _reorganize,
    "COALESCE": _coalesce,
    "REMOVE": _remove,
    "PARTITION": _partition,
    "FIRST": _interval,
    "LAST": _interval,
    "MERGE": _interval,
    "SPLIT": _interval,
    **dict.fromkeys(_PASSED, _other),
}
