r"""Column types and defaults: from DDL text to a complete `ColumnType`, and back to the words of information_schema.

    "FLOAT(30)"  --read_type-->  TypeDef(FLOAT, flen=30)  --complete_type(charset)-->  ColumnType(DOUBLE)
    ColumnType(LONG, flen=11)  --render_type-->  "int(11)"          parse_type("int unsigned") does both steps

A complete type has no open ends: integers, YEAR, BIT and DECIMAL carry their display length or precision, times their
fsp, TEXT(n) its family's type, text types their charset; every other type has charset "binary".  Lengths of FLOAT,
DOUBLE, JSON, texts, ENUM and SET stay -1 unless written.

Character sets and collations are those that TiDB knows (utf8mb4 with utf8mb4_bin as its default, gbk with
gbk_chinese_ci, ..).  A collation of MySQL that TiDB lacks is refused (1273).

Tables store defaults as text, or as bytes where the column holds bytes:

    column            written            stored
    INT               7, TRUE, 0x1f      "7", "1", "31"
    DECIMAL, DOUBLE   3.1400, 1.5e+10    "3.1400", "1.5e+10"
    BIT(10)           b'1000000001', 5   b"\x02\x01", b"\x00\x05"      (flen + 7) // 8 bytes
    BINARY(4)         'ab', x'6162'      b"ab\0\0"                      padded
    VARBINARY, BLOB   'ab'               b"ab"
    CHAR, ENUM, ..    'ab', x'6162'      "ab"
    DATETIME(3)       CURRENT_TIMESTAMP  "CURRENT_TIMESTAMP(3)", an expression

The origin default is the value of rows that were written before their column was added: the default at that moment,
with CURRENT_TIMESTAMP standing for the commit of the DDL.  None means NULL or, for NOT NULL, the zero value.

Source: TiDB parser/parser.y (StringType, NumericType, ..), types/field_type.go (InfoSchemaStr), adjustBlobTypesFlen,
pkg/ddl (getDefaultValue, generateOriginDefaultValue); TiDB documentation, "Character Set and Collation".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from tidegate.expr.tokens import TokenKind
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import (
    BLOB_LIMITS,
    CHARS,
    FLOATS,
    INTEGERS,
    NAMED,
    STRINGS,
    TYPES,
    UNDECLARED,
    Size,
    default_length,
    sql_name,
)
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.schema.cursor import Cursor
from tidegate.schema.statement import Blob, Default, DefaultNumber, DefaultText, Expression, Now, Null, TypeDef

_NUMBERS: Final = INTEGERS | FLOATS | {T.DECIMAL, T.YEAR}


def keep_default(default: Default | None, column_type: ColumnType) -> tuple[str | bytes | None, bool]:
    """Return (value, is expression) of a written default for a column of that type."""
    match default:
        case None | Null():
            return None, False
        case Expression(sql):
            return sql, True
        case Now(fsp):
            fsp = max(fsp, column_type.decimal)
            return f"CURRENT_TIMESTAMP({fsp})" if fsp else "CURRENT_TIMESTAMP", True
        case DefaultText(value):
            return _text(value, column_type), False
        case DefaultNumber(text):
            return _number(text, column_type), False
        case Blob(value):
            return _blob(value, column_type), False


def _text(value: str, column_type: ColumnType) -> str | bytes:
    if column_type.code is T.BIT:
        return _fit_bits(value.encode(), column_type)
    if _is_bytes(column_type):
        return _pad(value.encode("utf-8", "surrogatepass"), column_type)
    return value


def _number(text: str, column_type: ColumnType) -> str | bytes:
    if column_type.code is T.BIT and all_digits(text) and len(text) <= 20:
        return _fit_bits(int(text).to_bytes(9, "big"), column_type)
    return _pad(text.encode(), column_type) if _is_bytes(column_type) else text


def _blob(value: bytes, column_type: ColumnType) -> str | bytes:
    if column_type.code is T.BIT:
        return _fit_bits(value, column_type)
    if column_type.code in _NUMBERS:
        return str(int.from_bytes(value[-8:], "big"))
    if _is_bytes(column_type):
        return _pad(value, column_type)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _is_bytes(column_type: ColumnType) -> bool:
    return column_type.code in STRINGS and column_type.charset == "binary"


def _pad(value: bytes, column_type: ColumnType) -> bytes:
    """BINARY(n) fills up with zero bytes; VARBINARY and BLOB stay."""
    return value.ljust(column_type.flen, b"\0") if column_type.code is T.STRING else value


def _fit_bits(value: bytes, column_type: ColumnType) -> bytes:
    size_bytes = (max(column_type.flen, 1) + 7) // 8
    return value[-size_bytes:].rjust(size_bytes, b"\0")


def origin_default(default: Default | None, column_type: ColumnType) -> str | bytes | None:
    """Return the default of rows written before a column with that default was added.

    CURRENT_TIMESTAMP stays unchanged: its value needs the time zone, which the schema does not know (literal.py)."""
    kept, is_expression = keep_default(default, column_type)
    return kept if isinstance(default, Now) or not is_expression else None


def is_moment(default: str | float | None) -> bool:
    """Return whether a stored default is CURRENT_TIMESTAMP."""
    return isinstance(default, str) and default.upper().startswith("CURRENT_TIMESTAMP")


class Charset(NamedTuple):
    """A character set; `bytes_max` is the maximum number of bytes of a character."""

    name: str
    default: str
    bytes_max: int


CHARSETS: Final = {
    charset.name: charset
    for charset in (
        Charset("ascii", "ascii_bin", 1),
        Charset("binary", "binary", 1),
        Charset("gb18030", "gb18030_chinese_ci", 4),
        Charset("gbk", "gbk_chinese_ci", 2),
        Charset("latin1", "latin1_bin", 1),
        Charset("utf8", "utf8_bin", 3),
        Charset("utf8mb4", "utf8mb4_bin", 4),
    )
}
COLLATIONS: Final = frozenset(
    {charset.default for charset in CHARSETS.values()}
    | {"gb18030_bin", "gbk_bin", "utf8_general_ci", "utf8_unicode_ci"}
    | {"utf8mb4_0900_ai_ci", "utf8mb4_0900_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci"}
)


def character_bytes(charset: str) -> int:
    """Return the maximum number of bytes of a character; 1 for a charset that TiDB lacks."""
    return CHARSETS[charset].bytes_max if charset in CHARSETS else 1


def charset_named(name: str) -> str:
    """Return the charset in its usual form; SqlRefused 1115 for one that TiDB lacks."""
    charset = normal_charset(name)
    if charset not in CHARSETS:
        raise SqlRefused(1115, f"Unknown character set: '{name}'", "42000")
    return charset


def collation_named(name: str) -> str:
    """Return the collation in lower case; SqlRefused 1273 for one that TiDB lacks."""
    folded = name.lower().replace("utf8mb3_", "utf8_", 1)
    if folded not in COLLATIONS:
        raise SqlRefused(1273, f"Unknown collation: '{name}'", "HY000")
    assert charset_of_collation(folded) in CHARSETS, folded
    return folded


def default_collation(charset: str) -> str:
    """Return TiDB's default collation of a charset; SqlRefused 1115 for one that it does not know."""
    if charset not in CHARSETS:
        raise SqlRefused(1115, f"Unknown character set: '{charset}'", "42000")
    return CHARSETS[charset].default


def implied_collation(charset: str) -> str:
    """Return the collation of a text with a known charset only; `_bin` for a charset that TiDB lacks."""
    normal = normal_charset(charset)
    return CHARSETS[normal].default if normal in CHARSETS else f"{normal}_bin"


def own_collation(collation: str | None, charset: str) -> str:
    """Return the collation as tables store it: "" for the default of its charset."""
    normal = (collation or "").lower().replace("utf8mb3_", "utf8_", 1)
    return "" if charset == "binary" or normal == implied_collation(charset) else normal


@dataclass(frozen=True, slots=True)
class _Word:
    """Type, arguments and charset of a type name; `charset` is None for text, "binary" for all other types."""

    code: T
    size: Size
    charset: str | None = "binary"
    flen: int = -1


def _words() -> dict[str, _Word]:
    table: dict[str, _Word] = {
        "BOOL": _Word(T.TINY, Size.NONE, flen=1),
        "BOOLEAN": _Word(T.TINY, Size.NONE, flen=1),
    }
    for code, record in TYPES.items():
        charset = None if code in STRINGS | NAMED else "binary"
        for names, its_charset in ((record.names, charset), (record.binary, "binary")):
            if names and code not in UNDECLARED:
                table.update(dict.fromkeys(names.split(", "), _Word(code, record.size, its_charset)))
    return table


_WORDS: Final[Mapping[str, _Word]] = _words()
_LONGEST_FIRST: Final = tuple(sorted(_WORDS, key=lambda words: -len(words.split())))

_WIDTHS: Final = frozenset({T.BIT, T.STRING})
_OPEN_WHEN_SHORT: Final = frozenset({T.DECIMAL, T.BIT, T.STRING, T.TIME, T.DATETIME, T.TIMESTAMP})
_TIMES: Final = frozenset({T.TIME, T.DATETIME, T.TIMESTAMP})
_CHARSET_BYTES: Final = {"binary": 1, "ascii": 1, "latin1": 1, "gbk": 2, "utf8": 3}

_SIZED: Final = STRINGS - {T.VAR_STRING}
_ELEM_ESCAPES: Final = str.maketrans({"\0": "\\0", "'": "''", "\n": "\\n", "\r": "\\r"})


def normal_charset(name: str) -> str:
    """Return the charset's name in lower case, utf8mb3 as TiDB's utf8."""
    folded = name.lower()
    return "utf8" if folded == "utf8mb3" else folded


def charset_of_collation(collation: str) -> str:
    """Return the charset that a collation belongs to: the part before its first underscore."""
    return normal_charset(collation.split("_", 1)[0])


_CHARSET_WORDS: Final = ("CHARACTER SET", "CHAR SET", "CHARSET")
_ATTRIBUTES: Final[Mapping[str, Mapping[str, object]]] = {
    "UNSIGNED": {"unsigned": True},
    "SIGNED": {},
    "ZEROFILL": {"unsigned": True, "zerofill": True},
    "BINARY": {"binary": True},
    "BYTE": {"charset": "binary"},
    "ASCII": {"charset": "latin1"},
    "UNICODE": {"charset": "ucs2"},
}
"""Attributes of a type, and the fields of TypeDef that they set."""


def read_type(cursor: Cursor) -> TypeDef:
    """Return the type at the cursor, its attributes included, moving past it."""
    words = cursor.accept(*_LONGEST_FIRST)
    if not words:
        raise cursor.error("expected a column type")
    word = _WORDS[words]
    if word.code is T.VECTOR and cursor.sign("<"):
        cursor.word("a type")
        cursor.expect_sign(">")
    definition = TypeDef(word.code, flen=word.flen, charset=word.charset)
    if cursor.is_sign("(") and word.size is not Size.NONE:
        definition = _read_arguments(cursor, word, definition)
    while attribute := cursor.accept(*_ATTRIBUTES, *_CHARSET_WORDS):
        charset = {"charset": normal_charset(read_charset_name(cursor))} if attribute in _CHARSET_WORDS else {}
        definition = replace(definition, **_ATTRIBUTES.get(attribute, charset))  # type: ignore[arg-type]
    return definition


def _read_arguments(cursor: Cursor, word: _Word, definition: TypeDef) -> TypeDef:
    if word.size is Size.LIST:
        return replace(definition, elems=cursor.group(_read_elem))
    cursor.expect_sign("(")
    if word.size is Size.FSP:
        definition = replace(definition, decimal=cursor.integer("fractional digits"))
    else:
        definition = replace(definition, flen=cursor.integer("a length"))
        if word.size in (Size.EXACT, Size.FLOAT) and cursor.sign(","):
            definition = replace(definition, decimal=cursor.integer("a scale"))
    cursor.expect_sign(")")
    return definition


def _read_elem(cursor: Cursor) -> str:
    if cursor.peek().word.startswith("_") and cursor.peek(1).kind in (TokenKind.STRING, TokenKind.HEX):
        cursor.next()
    token = cursor.next()
    if token.kind is TokenKind.HEX:
        return bytes.fromhex(token.text.rjust((len(token.text) + 1) // 2 * 2, "0")).decode("utf-8", "replace")
    if token.kind is TokenKind.BITS:
        return int(token.text, 2).to_bytes((len(token.text) + 7) // 8, "big").decode("utf-8", "replace")
    if token.kind is not TokenKind.STRING:
        raise cursor.error("expected a string")
    return token.text.rstrip(" ")


def read_charset_name(cursor: Cursor) -> str:
    """Return the charset or collation name at the cursor: a word, a name or a string, moving past it."""
    cursor.sign("=")
    if cursor.peek().kind is TokenKind.STRING:
        return cursor.next().text
    return cursor.word("a charset")


def complete_type(definition: TypeDef, table_charset: str) -> ColumnType:
    """Return the complete type of a definition in a table whose charset is `table_charset`."""
    code, flen, decimal = definition.code, definition.flen, definition.decimal
    charset = table_charset if definition.charset is None else definition.charset
    if code not in STRINGS | NAMED:
        charset = "binary"
    if code in INTEGERS or code in _WIDTHS:
        flen = default_length(code, unsigned=definition.unsigned) if flen < 0 else flen
    elif code is T.DECIMAL:
        flen, decimal = flen if flen > 0 else 10, max(decimal, 0)
    elif code is T.FLOAT and decimal < 0:
        code, flen = (T.DOUBLE if flen > 24 else T.FLOAT), -1
    elif code is T.DOUBLE and decimal < 0:
        flen = -1
    elif code is T.YEAR:
        flen = 4
    elif code in _TIMES:
        decimal = max(decimal, 0)
    elif code is T.BLOB and flen >= 0:
        size_bytes = flen * _CHARSET_BYTES.get(charset, 4)
        code = next((family for family, limit in BLOB_LIMITS.items() if size_bytes <= limit), T.LONG_BLOB)
        flen = -1
    return ColumnType(code, flen, decimal, definition.unsigned, definition.zerofill, charset, definition.elems)


def render_type(column_type: ColumnType) -> str:
    """Return the type as TiDB's information_schema.COLUMN_TYPE prints it: "int(10) unsigned", "enum('a','b')"."""
    code, flen, decimal = column_type.code, column_type.flen, column_type.decimal
    name = sql_name(code, binary=column_type.charset == "binary" and code in _SIZED)
    if code in _SIZED:
        sized = code in CHARS and flen >= 0
        return f"{name}({flen})" if sized else name
    if code in NAMED:
        if column_type.elems is None:
            return name
        elems = ",".join("'" + elem.translate(_ELEM_ESCAPES) + "'" for elem in column_type.elems)
        return f"{name}({elems})"
    if code in _TIMES:
        return f"{name}({decimal})" if decimal > 0 else name
    if code in INTEGERS:
        name = f"{name}({flen if flen >= 0 else default_length(code, unsigned=column_type.unsigned)})"
    elif code is T.DECIMAL:
        name = f"{name}({flen},{max(decimal, 0)})" if flen > 0 else name
    elif code in FLOATS:
        name = f"{name}({flen},{decimal})" if flen >= 0 and decimal >= 0 else name
    elif code is T.YEAR:
        return "year(4)"
    elif TYPES[code].size is Size.WIDTH or code is T.VAR_STRING:
        return f"{name}({flen})" if flen >= 0 else name
    return f"{name} unsigned" if column_type.unsigned else name


def parse_type(text: str, charset: str = "utf8mb4") -> ColumnType:
    """Return the complete type of a text such as canal-json's mysqlType, short ("int unsigned") or full ("int(10)
    unsigned").

    What the short form leaves out stays unknown: no length of CHAR and VARCHAR, no precision of DECIMAL, no fsp, no
    length of BIT, no elements of ENUM.  Raises SqlError."""
    cursor = Cursor(text)
    definition = read_type(cursor)
    if not cursor.done() or cursor.is_sign(";"):
        raise cursor.error("unexpected text after a column type")
    complete = complete_type(definition, charset)
    if complete.code in _OPEN_WHEN_SHORT:
        return msgspec.structs.replace(complete, flen=definition.flen, decimal=definition.decimal)
    return complete
