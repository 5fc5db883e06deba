"""Indexes and foreign keys as TiDB stores them, from what a statement says.

    INDEX e ((a + 1), b(10))       parts _V$_e_0 (a hidden column that is computed as `a` + 1), b with 10 characters
    FOREIGN KEY (p) REFERENCES q   the key and, unless an index begins with its columns, an index of the same name

Names that are not given: the first column's, else expression_index, with _2, _3 .. while taken; foreign keys are fk_1,
fk_2 ..

The type of a hidden column is that of its compiled expression, with the lengths that TiDB gives:

    a + 1                   bigint(20)                     cast(.. as signed)     bigint(22)
    lower(b), concat(..)    var_string of its columns      cast(.. as char(9))    var_string(9)

Source: TiDB pkg/ddl/index.go (buildIndexColumns, buildHiddenColumnInfo), foreign_key.go, create_table.go.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import Raw

from tidegate.expr.compiler import compile_text
from tidegate.expr.scope import Scope, Slot
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import INTEGERS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.schema.charset import character_bytes
from tidegate.schema.definition import IndexDef
from tidegate.schema.stored.definition import (
    Name,
    StoredColumn,
    StoredForeignKey,
    StoredIndex,
    StoredPart,
    StoredTable,
    StoredType,
)
from tidegate.schema.stored.flags import BINARY, UNSIGNED
from tidegate.schema.stored.layout import column_type
from tidegate_upstream.change.draft import column_of, move_column
from tidegate_upstream.change.restore import Restored, restore

_LONGEST_BYTES: Final = 3072
"""TiDB's default for the bytes of an index entry's key, the limit of InnoDB."""
_LARGE: Final = frozenset({T.TINY_BLOB, T.BLOB, T.MEDIUM_BLOB, T.LONG_BLOB})
_PREFIXED: Final = _LARGE | {T.STRING, T.VARCHAR, T.VAR_STRING}
_ACTIONS: Final = {"": 0, "RESTRICT": 1, "CASCADE": 2, "SET NULL": 3, "NO ACTION": 4, "SET DEFAULT": 5}


def chosen_name(index: IndexDef, taken: Iterable[str]) -> str:
    """Return the index's name, or one that is not among `taken` (in lower case)."""
    if index.primary:
        return "PRIMARY"
    if index.name is not None:
        return index.name
    base = (index.columns[0] if index.columns else "") or "expression_index"
    used = {*taken, "primary"}
    name, number = base, 2
    while lowered(name) in used:
        name, number = f"{base}_{number}", number + 1
    return name


def make_index(table: StoredTable, index: IndexDef, name: str) -> tuple[StoredIndex, list[StoredColumn]]:
    """(the index, the hidden columns of its expressions), neither with ids; parts name columns of `table`."""
    if not index.primary and lowered(name) == "primary":
        raise SqlRefused(1280, f"Incorrect index name '{name}'", "42000")
    if len(name) > 64:
        raise SqlRefused(1059, f"Identifier name '{name}' is too long", "42000")
    lengths = index.detail.lengths or (-1,) * len(index.columns)
    expressions = index.detail.expressions or ("",) * len(index.columns)
    parts, hidden = [], []
    for place, (column, length, expression) in enumerate(zip(index.columns, lengths, expressions, strict=True)):
        if column:
            parts.append(_part(table, column, length))
            continue
        if index.primary:
            raise SqlRefused(3756, "The primary key cannot be an expression index", "HY000")
        hidden.append(_hidden(table, expression, f"_V$_{name}_{place}"))
        parts.append(StoredPart(hidden[-1].name))
    check_parts(table, parts)
    null = Raw(b"null")
    made = StoredIndex(
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
    return made, hidden


def _part(table: StoredTable, name: str, length: int) -> StoredPart:
    column = column_of(table, name)
    if column is None or column.hidden:
        raise SqlRefused(1072, f"Key column '{name}' doesn't exist in table", "42000")
    kind = column.type
    if kind.tp == T.JSON:
        raise SqlRefused(3152, f"JSON column '{name}' cannot be used in key specification.", "42000")
    if length < 0 and kind.tp in _LARGE:
        raise SqlRefused(1170, f"BLOB/TEXT column '{name}' used in key specification without a key length", "42000")
    if length == 0:
        raise SqlRefused(1391, f"Key part '{name}' length cannot be 0", "HY000")
    if length > 0 and (kind.tp not in _PREFIXED or (kind.tp not in _LARGE and length > kind.flen)):
        message = (
            "Incorrect prefix key; the used key part isn't a string, the used length is longer than the key part, "
            "or the storage engine doesn't support unique prefix keys"
        )
        raise SqlRefused(1089, message, "HY000")
    return StoredPart(column.name, column.offset, -1 if length == kind.flen else length)


def check_parts(table: StoredTable, parts: list[StoredPart]) -> None:
    """SqlRefused 1060 for a column twice, 1071 for a key that is too long."""
    names = [part.name.lower for part in parts]
    twice = next((part for part in parts if names.count(part.name.lower) > 1), None)
    if twice is not None:
        raise SqlRefused(1060, f"Duplicate column name '{twice.name.original}'", "42S21")
    size = 0
    for part in parts:
        column = column_of(table, part.name.lower)
        if column is not None and column.type.tp in _PREFIXED:
            characters = part.length if part.length >= 0 else column.type.flen
            size += characters * character_bytes(column.type.charset)
    if size > _LONGEST_BYTES:
        message = f"Specified key was too long ({size} bytes); max key length is {_LONGEST_BYTES} bytes"
        raise SqlRefused(1071, message, "42000")


def check_indexes(table: StoredTable, old: StoredColumn, new: StoredColumn) -> None:
    """SqlRefused where an index on the column could not be on its new type: 1170, 1089, 3152, 1071."""
    for index in table.index_info or ():
        if any(part.offset == old.offset for part in index.idx_cols):
            changed = move_column(table, msgspec.structs.replace(new, id=old.id), old.offset)
            parts = [
                _part(changed, new.name.original, part.length) if part.offset == old.offset else part
                for part in index.idx_cols
            ]
            check_parts(changed, parts)


def _expression_type(expression: Restored, table: StoredTable) -> StoredType:
    """The type of an expression over a table's columns; SqlRefused for one that is not computed here."""
    columns = table.cols or ()
    slots = [Slot(at, one.name.original, column_type(one.type), one.type.collate) for at, one in enumerate(columns)]
    found = compile_text(expression.text, Scope(tuple(slots), collation=table.collate, clause="expression index"))
    kind = found.type
    if kind.code in INTEGERS or kind.code is T.NULL:
        flag, flen = BINARY | (UNSIGNED if kind.unsigned else 0), 22 if expression.text.startswith("cast(") else 20
        return StoredType(T.LONGLONG, flag, flen, 0, "binary", "binary")
    if kind.charset == "binary":
        flen = 23 if kind.code is T.DOUBLE else kind.flen
        return StoredType(kind.code, BINARY, flen, kind.decimal, "binary", "binary")
    used = [one.type for one in columns if one.name.lower in expression.columns]
    flen = sum(one.flen for one in used if one.charset != "binary") or -1
    return StoredType(T.VAR_STRING, 0, flen if kind.flen < 0 else kind.flen, -1, kind.charset, found.collation)


def _hidden(table: StoredTable, expression: str, name: str) -> StoredColumn:
    found = restore(expression)
    columns = [column_of(table, used) for used in found.columns]
    unknown = next((used for used, column in zip(found.columns, columns, strict=True) if column is None), None)
    if unknown is not None:
        raise SqlRefused(1054, f"Unknown column '{unknown}' in 'expression index'", "42S22")
    kind = _expression_type(found, table)
    return StoredColumn(
        0,
        Name.of(name),
        generated_expr_string=found.text,
        dependences={used: Raw(b"{}") for used in sorted(found.columns)},
        type=kind,
        hidden=True,
    )


def covers(table: StoredTable, columns: tuple[str, ...]) -> bool:
    """Return whether the row key or an index of the table begins with these columns."""
    wanted = [lowered(name) for name in columns]
    if table.pk_is_handle and len(wanted) == 1:
        column = column_of(table, wanted[0])
        if column is not None and column.type.flag & 2:
            return True
    return any(
        [part.name.lower for part in index.idx_cols[: len(wanted)]] == wanted for index in table.index_info or ()
    )


def make_foreign_key(
    schema: str, table: StoredTable, index: IndexDef, number: int
) -> tuple[StoredForeignKey, IndexDef]:
    """(the foreign key without id, the index of the same name that it brings along).

    SqlRefused 1072 for a column that is not there, 1239 for unequal numbers of columns."""
    references = index.detail.references
    assert references is not None
    name = index.name or f"fk_{number}"
    columns = [column_of(table, column) for column in index.columns]
    missing = next((one for one, column in zip(index.columns, columns, strict=True) if column is None), None)
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
