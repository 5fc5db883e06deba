"""Stored definitions of columns, indexes, foreign keys and partitionings, built from the clauses of a statement.

    "v VARCHAR(20) NOT NULL DEFAULT 'x'"      type 15, flags NotNull, 20 characters, the table's charset, default "x"
    "d INT NOT NULL"                          type 3, flags NotNull NoDefault, display width 11
    INDEX e ((a + 1), b(10))       parts _V$_e_0 (a hidden column that is computed as `a` + 1), b with 10 characters
    FOREIGN KEY (p) REFERENCES q   the key and, unless an index begins with its columns, an index of the same name
    PARTITION BY RANGE (year(d)) (PARTITION p0 VALUES LESS THAN (2000), ..)
        type 1, expr "YEAR(`d`)", definitions p0 ["2000"], ..         num = the number of definitions

Defaults of DATE, DATETIME and TIMESTAMP are stored in one form, those of TIMESTAMP in UTC; the bytes of BIT are stored
in `default_bit`, since JSON cannot hold them.

    '2020-1-2'          DATETIME(3)             "2020-01-02 00:00:00.000"
    '2020-01-01 8:00'   TIMESTAMP, zone +08     "2020-01-01 00:00:00"

The origin default is the value of rows that were written before the column was added:

    column has a default    that default (CURRENT_TIMESTAMP: the time of the DDL)
    NOT NULL, no default    the zero value: 0, "", 0000-00-00 00:00:00, the first member of an ENUM
    else                    NULL

An index without a name takes that of its first column, else expression_index, with _2, _3 .. while that is taken;
foreign keys are named fk_1, fk_2 ..  A hidden column has the type of its compiled expression, with TiDB's lengths:

    a + 1                   bigint(20)                     cast(.. as signed)     bigint(22)
    lower(b), concat(..)    var_string of its columns      cast(.. as char(9))    var_string(9)

Source: TiDB pkg/ddl/add_column.go (buildColumnAndConstraint, columnDefToCol), pkg/types/field_type_builder.go,
pkg/ddl/index.go (buildIndexColumns, buildHiddenColumnInfo), foreign_key.go, create_table.go, partition.go
(buildTablePartitionInfo, checkRangePartitionValue, checkPartitionKeysConstraint).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

import msgspec
from msgspec import Raw

from tidegate.expr.compiler import compile_text
from tidegate.expr.scope import Scope, Slot
from tidegate.model.errors import SqlRefused, TidegateError
from tidegate.model.mysql import BLOBS, CHARS, INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits, lowered
from tidegate.model.table import ColumnType, PartitionDef, PartitionInfo
from tidegate.schema.columns import character_bytes, complete_type, default_collation, is_moment, keep_default
from tidegate.schema.expression import compile_expression, integer_of
from tidegate.schema.statement import ColumnDef, Default, DefaultText, Expression, IndexDef, Now, Null, TypeDef
from tidegate.schema.stored.definition import (
    AUTO_INCREMENT,
    BINARY,
    NO_DEFAULT,
    NOT_NULL,
    ON_UPDATE_NOW,
    PARTITION_METHODS,
    PRIMARY,
    UNSIGNED,
    ZEROFILL,
    Name,
    StoredColumn,
    StoredForeignKey,
    StoredIndex,
    StoredPart,
    StoredPartition,
    StoredPartitionDef,
    StoredTable,
    StoredType,
    column_type,
)
from tidegate_upstream.change.draft import column_of, move_column
from tidegate_upstream.change.restore import Restored, restore, restore_bound
from tidegate_upstream.change.session import DdlSession

MOMENTS: Final = frozenset({T.DATE, T.DATETIME, T.TIMESTAMP})
_MOMENT: Final = re.compile(r"^(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d+)?)?)?$")
STRICT: Final = frozenset({"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"})


def kept_moment(kind: StoredType, value: str, session: DdlSession, refused: SqlRefused) -> str:
    """Return `value` in the definition's form; raises `refused` for an invalid time, or a zero date forbidden by
    sql_mode.

    Forms without signs between the numbers ("20200102") are kept as they were written."""
    text = value.strip()
    if text.startswith("0000-00-00"):
        if "NO_ZERO_DATE" in session.sql_mode and session.sql_mode & STRICT:
            raise refused
        return value
    match = _MOMENT.match(text)
    if match is None:
        if not all_digits(text[:1]):
            raise refused
        return value
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=session.zone)
    except ValueError:
        raise refused from None
    if kind.tp == T.DATE:
        return moment.date().isoformat()
    digits = max(kind.decimal, 0)
    fraction = Decimal("0" + (match[7] or ".0")).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    if fraction == 1:
        moment, fraction = moment + timedelta(seconds=1), Decimal(0)
    if kind.tp == T.TIMESTAMP:
        moment = moment.astimezone(UTC)
    shown = f"{moment.year:04d}-{moment:%m-%d %H:%M:%S}"
    return f"{shown}.{int(fraction.scaleb(digits)):0{digits}d}" if digits else shown


_ZEROS: Final[Mapping[int, str]] = {
    **dict.fromkeys((T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.FLOAT, T.DOUBLE, T.DECIMAL), "0"),
    T.YEAR: "0000",
    T.DATE: "0000-00-00",
    T.TIME: "00:00:00",
    T.BIT: "\0",
    T.JSON: "null",
}


def zero_default(column: StoredColumn) -> str | None:
    """Return the zero value as a definition writes it."""
    kind = column.type
    if kind.tp in (T.DATETIME, T.TIMESTAMP):
        return "0000-00-00 00:00:00" + ("." + "0" * kind.decimal if kind.decimal > 0 else "")
    if kind.tp == T.ENUM:
        return kind.elems[0] if kind.elems else ""
    if kind.tp == T.STRING and kind.charset == "binary":
        return "\0" * kind.flen
    return _ZEROS.get(kind.tp, "")


def with_origin(column: StoredColumn, moment: str) -> StoredColumn:
    """`column` with the origin default for a column added at `moment` (UTC, as text)."""
    if column.generated_expr_string:
        return column
    default, bits = column.default, column.default_bit
    if is_moment(default):
        default = moment
    elif column.default_is_expr:
        default = None
    if default is None and column.type.flag & NOT_NULL:
        default = zero_default(column)
        bits = b"\0" * ((max(column.type.flen, 1) + 7) // 8) if column.type.tp == T.BIT else None
    return msgspec.structs.replace(column, origin_default=default, origin_default_bit=bits)


_FLENS: Final[Mapping[int, int]] = {
    T.FLOAT: 12,
    T.DOUBLE: 22,
    T.DATE: 10,
    T.TIME: 10,
    T.DATETIME: 19,
    T.TIMESTAMP: 19,
    T.TINY_BLOB: 255,
    T.BLOB: 65535,
    T.MEDIUM_BLOB: 16777215,
    T.LONG_BLOB: 4294967295,
    T.JSON: 4294967295,
}
_FRACTIONAL: Final = frozenset({T.TIME, T.DATETIME, T.TIMESTAMP})
_BITS_ONLY: Final[Mapping[int, int]] = {T.YEAR: UNSIGNED | ZEROFILL, T.BIT: UNSIGNED}
_NUMBERS: Final = frozenset({T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.DECIMAL, T.FLOAT, T.DOUBLE})
_LARGE: Final = BLOBS | {T.JSON, T.GEOMETRY}
_INVALID: Final = "�"
_LONGEST: Final = {T.STRING: 255, T.VARCHAR: 65535}


def make_type(name: str, definition: TypeDef, charset: str, collate: str, own_collate: str | None) -> StoredType:
    """Return the complete type of column `name` in a table of that charset and collation."""
    kind = complete_type(definition, charset)
    if definition.charset is None and own_collate is None and kind.charset == charset and not definition.binary:
        chosen = collate
    else:
        chosen = own_collate or default_collation(kind.charset)
    if kind.charset == "binary":
        chosen = "binary"
    elif definition.binary:
        chosen = f"{kind.charset}_bin"
    if kind.charset != chosen.split("_", 1)[0]:
        raise SqlRefused(1253, f"COLLATION '{chosen}' is not valid for CHARACTER SET '{kind.charset}'", "42000")
    flen = _length(name, kind)
    elems = None if kind.elems is None else list(kind.elems)
    decimal = kind.decimal if kind.code in (T.FLOAT, T.DOUBLE) else max(kind.decimal, 0)
    flag = BINARY if kind.charset == "binary" else 0
    if kind.code in _NUMBERS:
        flag = (UNSIGNED if kind.unsigned else 0) | (ZEROFILL if kind.zerofill else 0)
    flag = _BITS_ONLY.get(kind.code, flag)
    return StoredType(kind.code, flag, flen, decimal, kind.charset, chosen, elems)


def _length(name: str, kind: ColumnType) -> int:
    if kind.code in _LONGEST and kind.flen > _LONGEST[kind.code]:
        raise SqlRefused(
            1074,
            f"Column length too big for column '{name}' (max = {_LONGEST[kind.code]}); use BLOB or TEXT instead",
            "42000",
        )
    if kind.code in _FRACTIONAL:
        if kind.decimal > 6:
            raise SqlRefused(1426, f"Too big precision {kind.decimal} specified for '{name}'. Maximum is 6.", "42000")
        return _FLENS[kind.code] + (1 + kind.decimal if kind.decimal > 0 else 0)
    if kind.elems is not None:
        sizes = [len(elem.encode()) for elem in kind.elems]
        return max(sizes) if kind.code is T.ENUM else sum(sizes) + len(sizes) - 1
    return _FLENS.get(kind.code, -1) if kind.flen < 0 else kind.flen


def make_column(
    definition: ColumnDef, offset: int, charset: str, collate: str, session: DdlSession, *, in_key: bool = False
) -> StoredColumn:
    """Return the stored column of a definition, public and without id; `in_key`: the primary key contains it."""
    kind = make_type(definition.name, definition.type, charset, collate, definition.detail.collate)
    never_null = definition.nullable is False or definition.primary or definition.auto_increment or in_key
    flag = kind.flag
    if never_null:
        flag |= NOT_NULL
    if definition.auto_increment:
        flag |= AUTO_INCREMENT
    if definition.detail.on_update is not None:
        flag |= ON_UPDATE_NOW
    column = StoredColumn(
        0,
        Name.of(definition.name),
        offset=offset,
        type=msgspec.structs.replace(kind, flag=flag),
        comment=definition.comment,
    )
    if definition.generated is not None:
        expression = restore(definition.generated)
        return msgspec.structs.replace(
            column,
            generated_expr_string=expression.text,
            generated_stored=definition.stored,
            dependences={name: Raw(b"{}") for name in sorted(expression.columns)},
        )
    return with_default(column, definition.default, session)


_NAME: Final = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_NEXT_VALUE: Final = re.compile(rf"(?i)\bNEXT\s+VALUE\s+FOR\s+({_NAME}(?:\s*\.\s*{_NAME})?)")


def with_default(column: StoredColumn, default: Default | None, session: DdlSession) -> StoredColumn:
    """`column` with that default, and the flag that says whether it has none where it needs one."""
    kind, name = column.type, column.name.original
    if isinstance(default, Null) and kind.flag & NOT_NULL:
        raise SqlRefused(1067, f"Invalid default value for '{name}'", "42000")
    if kind.tp in _LARGE and isinstance(default, DefaultText | Now):
        raise SqlRefused(1101, f"BLOB/TEXT/JSON column '{name}' can't have a default value", "42000")
    value, bits, is_expression = _kept(column, default, session)
    needs = kind.flag & NOT_NULL and default is None and not kind.flag & AUTO_INCREMENT
    flag = (kind.flag & ~NO_DEFAULT) | (NO_DEFAULT if needs else 0)
    return msgspec.structs.replace(
        column,
        default=value,
        default_bit=bits,
        default_is_expr=is_expression,
        type=msgspec.structs.replace(kind, flag=flag),
    )


def _kept(column: StoredColumn, default: Default | None, session: DdlSession) -> tuple[str | None, bytes | None, bool]:
    if isinstance(default, Now):
        if column.type.tp not in (T.DATETIME, T.TIMESTAMP, T.DATE):
            raise SqlRefused(1067, f"Invalid default value for '{column.name.original}'", "42000")
        return "CURRENT_DATE" if column.type.tp == T.DATE else "CURRENT_TIMESTAMP", None, False
    if isinstance(default, Expression):
        return restore(_NEXT_VALUE.sub(r"NEXTVAL(\1)", default.sql)).text, None, True
    kind = ColumnType(
        T(column.type.tp),
        column.type.flen,
        column.type.decimal,
        charset=column.type.charset,
        elems=None if column.type.elems is None else tuple(column.type.elems),
    )
    value, _ = keep_default(default, kind)
    if value is None:
        return None, None, False
    if isinstance(value, bytes):
        return _go_text(value), value if kind.code is T.BIT else None, False
    return _checked(column, value, session), None, False


def _go_text(value: bytes) -> str:
    """Bytes as Go writes them into JSON: every byte that is no UTF-8 becomes one replacement character."""
    return value.decode("utf-8", "surrogateescape").translate(dict.fromkeys(range(56448, 56576), _INVALID))


def _checked(column: StoredColumn, value: str, session: DdlSession) -> str:
    """Return `value` if the column can hold it, TIMESTAMP in UTC; SqlRefused 1067 if not."""
    kind, name = column.type, column.name.original
    refused = SqlRefused(1067, f"Invalid default value for '{name}'", "42000")
    if kind.tp in _NUMBERS:
        try:
            float(value)
        except ValueError:
            raise refused from None
    if (
        kind.tp == T.ENUM
        and kind.elems is not None
        and value.lower() not in {element.lower() for element in kind.elems}
    ):
        raise refused
    if kind.tp in CHARS and len(value) > kind.flen >= 0:
        raise refused
    return kept_moment(kind, value, session, refused) if kind.tp in MOMENTS else value


_LONGEST_BYTES: Final = 3072
"""TiDB's default for the bytes of an index entry's key, the limit of InnoDB."""
_ACTIONS: Final = {"": 0, "RESTRICT": 1, "CASCADE": 2, "SET NULL": 3, "NO ACTION": 4, "SET DEFAULT": 5}


def chosen_name(index: IndexDef, names: Iterable[str]) -> str:
    """Return the index's name, or one that is not among `taken` (in lower case)."""
    if index.primary:
        return "PRIMARY"
    if index.name is not None:
        return index.name
    base = (index.columns[0] if index.columns else "") or "expression_index"
    used = {*names, "primary"}
    name, number = base, 2
    while lowered(name) in used:
        name, number = f"{base}_{number}", number + 1
    return name


def make_index(table: StoredTable, index: IndexDef, name: str) -> tuple[StoredIndex, list[StoredColumn]]:
    """Return (the index, the hidden columns of its expressions), both without ids; parts name columns of `table`."""
    if not index.primary and lowered(name) == "primary":
        raise SqlRefused(1280, f"Incorrect index name '{name}'", "42000")
    if len(name) > 64:
        raise SqlRefused(1059, f"Identifier name '{name}' is too long", "42000")
    lengths = index.detail.lengths or (-1,) * len(index.columns)
    expressions = index.detail.expressions or ("",) * len(index.columns)
    parts, hidden = [], []
    for number, (column, length, expression) in enumerate(zip(index.columns, lengths, expressions, strict=True)):
        if column:
            parts.append(_part(table, column, length))
            continue
        if index.primary:
            raise SqlRefused(3756, "The primary key cannot be an expression index", "HY000")
        hidden.append(_hidden(table, expression, f"_V$_{name}_{number}"))
        parts.append(StoredPart(hidden[-1].name))
    check_parts(table, parts)
    null = Raw(b"null")
    stored = StoredIndex(
        0,
        Name.of(name),
        idx_cols=parts,
        comment=index.detail.comment,
        index_type=index.detail.using,
        is_unique=index.unique,
        is_primary=index.primary,
        is_invisible=not index.visible,
        vector_index=null,
        inverted_index=null,
        full_text_index=null,
        condition_expr_string="",
    )
    return stored, hidden


def _part(table: StoredTable, name: str, length: int) -> StoredPart:
    column = column_of(table, name)
    if column is None or column.hidden:
        raise SqlRefused(1072, f"Key column '{name}' doesn't exist in table", "42000")
    kind = column.type
    if kind.tp == T.JSON:
        raise SqlRefused(3152, f"JSON column '{name}' cannot be used in key specification.", "42000")
    if length < 0 and kind.tp in BLOBS:
        raise SqlRefused(1170, f"BLOB/TEXT column '{name}' used in key specification without a key length", "42000")
    if length == 0:
        raise SqlRefused(1391, f"Key part '{name}' length cannot be 0", "HY000")
    if length > 0 and (kind.tp not in STRINGS or (kind.tp not in BLOBS and length > kind.flen)):
        message = (
            "Incorrect prefix key; the used key part isn't a string, the used length is longer than the key part, "
            "or the storage engine doesn't support unique prefix keys"
        )
        raise SqlRefused(1089, message, "HY000")
    return StoredPart(column.name, column.offset, -1 if length == kind.flen else length)


def check_parts(table: StoredTable, parts: list[StoredPart]) -> None:
    """Raise SqlRefused 1060 for a duplicate column, 1071 for a key that is too long."""
    names = [part.name.lower for part in parts]
    twice = next((part for part in parts if names.count(part.name.lower) > 1), None)
    if twice is not None:
        raise SqlRefused(1060, f"Duplicate column name '{twice.name.original}'", "42S21")
    size = 0
    for part in parts:
        column = column_of(table, part.name.lower)
        if column is not None and column.type.tp in STRINGS:
            characters = part.length if part.length >= 0 else column.type.flen
            size += characters * character_bytes(column.type.charset)
    if size > _LONGEST_BYTES:
        message = f"Specified key was too long ({size} bytes); max key length is {_LONGEST_BYTES} bytes"
        raise SqlRefused(1071, message, "42000")


def check_indexes(table: StoredTable, old: StoredColumn, new: StoredColumn) -> None:
    """Raise SqlRefused if an index on the column is not allowed on its new type: 1170, 1089, 3152, 1071."""
    for index in table.index_info or ():
        if any(part.offset == old.offset for part in index.idx_cols):
            changed = move_column(table, msgspec.structs.replace(new, id=old.id), old.offset)
            parts = [
                _part(changed, new.name.original, part.length) if part.offset == old.offset else part
                for part in index.idx_cols
            ]
            check_parts(changed, parts)


def _expression_type(expression: Restored, table: StoredTable) -> StoredType:
    """Return the type of an expression over a table's columns; SqlRefused for one that cannot be computed here."""
    columns = table.cols or ()
    slots = [
        Slot(index, column.name.original, column_type(column.type), column.type.collate)
        for index, column in enumerate(columns)
    ]
    compiled = compile_text(expression.text, Scope(tuple(slots), collation=table.collate, clause="expression index"))
    kind = compiled.type
    if kind.code in INTEGERS or kind.code is T.NULL:
        flag, flen = BINARY | (UNSIGNED if kind.unsigned else 0), 22 if expression.text.startswith("cast(") else 20
        return StoredType(T.LONGLONG, flag, flen, 0, "binary", "binary")
    if kind.charset == "binary":
        flen = 23 if kind.code is T.DOUBLE else kind.flen
        return StoredType(kind.code, BINARY, flen, kind.decimal, "binary", "binary")
    used = [column.type for column in columns if column.name.lower in expression.columns]
    flen = sum(column.flen for column in used if column.charset != "binary") or -1
    return StoredType(T.VAR_STRING, 0, flen if kind.flen < 0 else kind.flen, -1, kind.charset, compiled.collation)


def _hidden(table: StoredTable, expression: str, name: str) -> StoredColumn:
    restored = restore(expression)
    columns = [column_of(table, used) for used in restored.columns]
    unknown = next((used for used, column in zip(restored.columns, columns, strict=True) if column is None), None)
    if unknown is not None:
        raise SqlRefused(1054, f"Unknown column '{unknown}' in 'expression index'", "42S22")
    kind = _expression_type(restored, table)
    return StoredColumn(
        0,
        Name.of(name),
        generated_expr_string=restored.text,
        dependences={used: Raw(b"{}") for used in sorted(restored.columns)},
        type=kind,
        hidden=True,
    )


def covers(table: StoredTable, columns: tuple[str, ...]) -> bool:
    """Return whether the row key or an index of the table begins with these columns."""
    names = [lowered(name) for name in columns]
    if table.pk_is_handle and len(names) == 1:
        column = column_of(table, names[0])
        if column is not None and column.type.flag & 2:
            return True
    return any([part.name.lower for part in index.idx_cols[: len(names)]] == names for index in table.index_info or ())


def make_foreign_key(
    schema: str, table: StoredTable, index: IndexDef, number: int
) -> tuple[StoredForeignKey, IndexDef]:
    """Return (the foreign key without id, its index of the same name).

    Raises SqlRefused 1072 for an unknown column, 1239 for unequal numbers of columns."""
    references = index.detail.references
    assert references is not None
    name = index.name or f"fk_{number}"
    columns = [column_of(table, column) for column in index.columns]
    missing = next((name for name, column in zip(index.columns, columns, strict=True) if column is None), None)
    if missing is not None:
        raise SqlRefused(1072, f"Key column '{missing}' doesn't exist in table", "42000")
    if len(references.columns) != len(index.columns):
        message = f"Incorrect foreign key definition for '{name}': Key reference and table reference don't match"
        raise SqlRefused(1239, message, "42000")
    key = StoredForeignKey(
        0,
        Name.of(name),
        Name.of(references.schema or schema),
        Name.of(references.table),
        [Name.of(column) for column in references.columns],
        [column.name for column in columns if column is not None],
        _ACTIONS[references.on_delete],
        _ACTIONS[references.on_update],
    )
    brought = replace(index, name=name, foreign=False)
    return key, brought


_TYPES: Final = {method: number for number, method in PARTITION_METHODS.items()}
MOST_PARTITIONS: Final = 8192
"""MySQL's and TiDB's limit."""


def make_partition(info: PartitionInfo, table: StoredTable) -> StoredPartition:
    """Return the partitioning of a table, partitions without ids.

    Raises SqlRefused 1054 for an unknown column, 1492 without partitions, and 1503, 1517 and 1493 by the checks
    below."""
    columns = list(info.columns)
    empty = info.method == "KEY" and not columns
    if empty:
        columns = [column.name.original for column in table.cols or () if column.type.flag & PRIMARY]
    expr = restore(info.expr, upper=True, introducers=False) if info.expr else None
    for name in (*columns, *(expr.columns if expr else ())):
        if column_of(table, name) is None:
            raise SqlRefused(1054, f"Unknown column '{name}' in 'partition function'", "42S22")
    if not info.definitions:
        raise SqlRefused(1492, f"For {info.method} partitions each partition must be defined", "HY000")
    names = [column.name for name in columns if (column := column_of(table, name)) is not None]
    partition = StoredPartition(
        _TYPES[info.method],
        "" if expr is None else expr.text,
        names or None,
        is_empty_columns=empty,
        definitions=make_definitions(info.definitions, by_columns=expr is None),
        num=len(info.definitions),
    )
    check_names(partition.definitions or [])
    check_order(partition, partition.definitions or [])
    check_keys(table, partition)
    return partition


def make_definitions(definitions: Sequence[PartitionDef], *, by_columns: bool) -> list[StoredPartitionDef]:
    """Return partitions without ids; bounds that are expressions are evaluated."""
    stored = []
    for definition in definitions:
        less_than = [_bound(value, by_columns=by_columns) for value in definition.less_than]
        in_values = [[_bound(value, by_columns=by_columns) for value in values] for values in definition.in_values]
        stored.append(StoredPartitionDef(0, Name.of(definition.name), less_than or None, in_values or None))
    return stored


def _bound(value: str, *, by_columns: bool) -> str:
    if value in ("MAXVALUE", "DEFAULT", "NULL") or by_columns:
        return restore_bound(value) if value not in ("MAXVALUE", "DEFAULT", "NULL") else value
    try:
        number = integer_of(compile_expression(value, ())({}))
    except TidegateError:
        number = None
    return restore_bound(value) if number is None else str(number)


def check_names(definitions: Iterable[StoredPartitionDef]) -> None:
    """Raise SqlRefused 1517 for a duplicate name, 1499 for too many partitions."""
    names = [definition.name for definition in definitions]
    if len(names) > MOST_PARTITIONS:
        raise SqlRefused(1499, "Too many partitions (including subpartitions) were defined", "HY000")
    seen: set[str] = set()
    for name in names:
        if name.lower in seen:
            raise SqlRefused(1517, f"Duplicate partition name {name.original}", "HY000")
        seen.add(name.lower)


def check_order(partition: StoredPartition, definitions: Sequence[StoredPartitionDef]) -> None:
    """Raise SqlRefused 1493 if ranges are not ascending, 1481 if MAXVALUE is not last."""
    if partition.type != 1:
        return
    least: int | None = None
    for position, definition in enumerate(definitions):
        bound = (definition.less_than or [""])[0]
        if bound == "MAXVALUE" and len(definition.less_than or ()) == 1 and position + 1 < len(definitions):
            raise SqlRefused(1481, "MAXVALUE can only be used in last partition definition", "HY000")
        if partition.columns or not all_digits(bound.removeprefix("-")):
            continue
        if least is not None and int(bound) <= least:
            message = "VALUES LESS THAN value must be strictly increasing for each partition"
            raise SqlRefused(1493, message, "HY000")
        least = int(bound)


def check_keys(table: StoredTable, partition: StoredPartition) -> None:
    """Raise SqlRefused 1503 for a unique key that lacks a partitioning column: local indexes could not enforce it."""
    used = {name.lower for name in partition.columns or ()}
    if partition.expr:
        used |= set(restore(partition.expr).columns)
    keys = [
        ({part.name.lower for part in index.idx_cols}, "PRIMARY KEY" if index.is_primary else "UNIQUE INDEX")
        for index in table.index_info or ()
        if index.is_unique and not index.is_global
    ]
    if table.pk_is_handle:
        handle = {column.name.lower for column in table.cols or () if column.type.flag & PRIMARY}
        keys.append((handle, "PRIMARY KEY"))
    for columns, what in keys:
        if not used <= columns:
            message = f"A {what} must include all columns in the table's partitioning function"
            raise SqlRefused(1503, message, "HY000")
