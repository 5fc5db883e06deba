"""Indexes and foreign keys as TiDB stores them, from what a statement says.

    INDEX e ((a + 1), b(10))       parts _V$_e_0 (a hidden column that is computed as `a` + 1), b with 10 characters
    FOREIGN KEY (p) REFERENCES q   the key and, unless an index begins with its columns, an index of the same name

Names that are not given: the first column's, else expression_index, with _2, _3 .. while taken; foreign keys are fk_1,
fk_2 ..

The type of a hidden column is inferred from its expression (`infer_type`).

    a + 1                   bigint(20)                     cast(.. as signed)     bigint(22)
    lower(b), concat(..)    var_string of its arguments    cast(.. as char(9))    var_string(9)
    a / 2                   decimal                        anything else          double for reals, else var_string

Far from all that TiDB infers: what is not of these kinds is kept as text.

Source: TiDB pkg/ddl/index.go (buildIndexColumns, buildHiddenColumnInfo), foreign_key.go, create_table.go.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import Raw

from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.schema.change.draft import column_of, move_column
from tidegate.schema.change.restore import restore
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

_CAST: Final = re.compile(r"^cast\(.* as (?P<word>[a-z]+)(?:\((?P<size>\d+)(?:,\s*(?P<scale>\d+))?\))?", re.IGNORECASE)
_TEXT_CALL: Final = re.compile(
    r"^(lower|upper|lcase|ucase|trim|ltrim|rtrim|left|right|substr|substring|substring_index|reverse|concat|concat_ws|"
    r"replace|lpad|rpad|md5|sha1|sha2|hex|json_unquote|repeat|insert)\(",
    re.IGNORECASE,
)
_NUMBER_CALL: Final = re.compile(
    r"^(length|char_length|abs|year|month|day|dayofmonth|dayofweek|dayofyear|hour|minute|second|quarter|week|crc32|"
    r"floor|ceil|ceiling|mod|unix_timestamp|to_days|locate|instr|strcmp|ascii|ord|sign|bit_count)\(",
    re.IGNORECASE,
)
_NUMBERS: Final = frozenset({T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.YEAR, T.BIT})
_REALS: Final = frozenset({T.FLOAT, T.DOUBLE})
_CASTS: Final = {
    "signed": (T.LONGLONG, 22, 0, BINARY),
    "unsigned": (T.LONGLONG, 22, 0, BINARY | UNSIGNED),
    "date": (T.DATE, 10, 0, BINARY),
    "datetime": (T.DATETIME, 19, 0, BINARY),
    "time": (T.TIME, 10, 0, BINARY),
    "year": (T.YEAR, 4, 0, BINARY | UNSIGNED),
    "double": (T.DOUBLE, 22, -1, BINARY),
    "float": (T.FLOAT, 12, -1, BINARY),
    "json": (T.JSON, 4294967295, 0, BINARY),
}


def _bytes_type(code: T, flen: int, decimal: int, flag: int) -> StoredType:
    return StoredType(code, flag, flen, decimal, "binary", "binary")


def infer_type(text: str, columns: list[StoredColumn], charset: str, collate: str) -> StoredType:
    """Return the type of a restored expression over `columns`; texts that come of none have `charset` and `collate`."""
    cast = _CAST.match(text)
    if cast is not None:
        return _cast_type(cast, charset, collate)
    codes = {column.type.tp for column in columns}
    texts = [column.type for column in columns if column.type.charset != "binary"]
    if _TEXT_CALL.match(text):
        flen = sum(kind.flen for kind in texts) if texts else -1
        kind = texts[0] if texts else StoredType(T.VAR_STRING, charset=charset, collate=collate)
        return StoredType(T.VAR_STRING, 0, flen, -1, kind.charset, kind.collate)
    if _NUMBER_CALL.match(text) or (codes <= _NUMBERS and " / " not in text):
        unsigned = any(column.type.flag & UNSIGNED for column in columns)
        return _bytes_type(T.LONGLONG, 20, 0, BINARY | (UNSIGNED if unsigned else 0))
    if codes & _REALS:
        return _bytes_type(T.DOUBLE, 23, -1, BINARY)
    if codes <= _NUMBERS | {T.DECIMAL}:
        return _bytes_type(T.DECIMAL, 65, 4, BINARY)
    if texts:
        return StoredType(T.VAR_STRING, 0, texts[0].flen, -1, texts[0].charset, texts[0].collate)
    return StoredType(T.VAR_STRING, 0, -1, -1, charset, collate)


def _cast_type(cast: re.Match[str], charset: str, collate: str) -> StoredType:
    word, size = cast["word"].lower(), int(cast["size"] or -1)
    if word == "decimal":
        return _bytes_type(T.DECIMAL, size if size > 0 else 10, int(cast["scale"] or 0), BINARY)
    if word == "binary":
        return _bytes_type(T.VAR_STRING, size, -1, BINARY)
    if word in _CASTS:
        code, flen, decimal, flag = _CASTS[word]
        if word in ("datetime", "time") and size > 0:
            flen, decimal = flen + 1 + size, size
        return _bytes_type(code, flen, decimal, flag)
    return StoredType(T.VAR_STRING, 0, size, -1, charset, collate)


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


def _hidden(table: StoredTable, expression: str, name: str) -> StoredColumn:
    found = restore(expression)
    columns = [column_of(table, used) for used in found.columns]
    unknown = next((used for used, column in zip(found.columns, columns, strict=True) if column is None), None)
    if unknown is not None:
        raise SqlRefused(1054, f"Unknown column '{unknown}' in 'expression index'", "42S22")
    kind = infer_type(found.text, [column for column in columns if column], table.charset, table.collate)
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
