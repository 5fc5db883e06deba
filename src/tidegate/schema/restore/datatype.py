"""Column and cast types: the many spellings of a type, and the one that TiDB prints."""

from typing import Final

from tidegate.expr.syntax.tokens import TokenKind, quote
from tidegate.schema.restore.reader import SqlReader, charset_name
from tidegate.schema.restore.template import template

_INTEGERS: Final = {
    "TINYINT": "TINYINT",
    "INT1": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT2": "SMALLINT",
    "MEDIUMINT": "MEDIUMINT",
    "INT3": "MEDIUMINT",
    "MIDDLEINT": "MEDIUMINT",
    "INTEGER": "INT",
    "INT4": "INT",
    "INT": "INT",
    "BIGINT": "BIGINT",
    "INT8": "BIGINT",
}
_DECIMALS: Final = {"DECIMAL": "DECIMAL", "NUMERIC": "DECIMAL", "DEC": "DECIMAL", "FIXED": "DECIMAL"}
_DOUBLES: Final = {"DOUBLE PRECISION": "DOUBLE", "DOUBLE": "DOUBLE", "FLOAT8": "DOUBLE"}
_PLAIN: Final = {"DATETIME": 1, "TIMESTAMP": 1, "DATE": 0, "TIME": 1, "JSON": 0}
_CHARS: Final = {
    **dict.fromkeys(["NATIONAL CHAR VARYING", "NATIONAL CHARACTER VARYING", "NATIONAL VARCHARACTER"], "VARCHAR"),
    **dict.fromkeys(["NATIONAL VARCHAR", "NCHAR VARYING", "NCHAR VARCHARACTER", "NCHAR VARCHAR"], "VARCHAR"),
    **dict.fromkeys(["NVARCHAR", "CHARACTER VARYING", "CHAR VARYING", "VARCHARACTER", "VARCHAR"], "VARCHAR"),
    **dict.fromkeys(["NATIONAL CHARACTER", "NATIONAL CHAR", "NCHAR", "CHARACTER", "CHAR"], "CHAR"),
}
_TEXTS: Final = {
    "TINYTEXT": "TINYTEXT",
    "MEDIUMTEXT": "MEDIUMTEXT",
    "LONGTEXT": "LONGTEXT",
    "TEXT": "TEXT",
    "LONG VARCHARACTER": "MEDIUMTEXT",
    "LONG VARCHAR": "MEDIUMTEXT",
    "LONG CHAR VARYING": "MEDIUMTEXT",
    "LONG": "MEDIUMTEXT",
}
_BLOBS: Final = {
    "TINYBLOB": "TINYBLOB",
    "MEDIUMBLOB": "MEDIUMBLOB",
    "LONGBLOB": "LONGBLOB",
    "BLOB": "BLOB",
    "LONG VARBINARY": "MEDIUMBLOB",
}
_OF_BYTES: Final = {"CHAR": "BINARY", "VARCHAR": "VARBINARY"}
_FLOAT_DIGITS_MAX: Final = 24


def column_type(r: SqlReader) -> str:
    """Return the type of a column; what a type says of charset, sign and zeros comes with it."""
    number = _number(r)
    if number:
        return number + _signs(r)
    if r.accept("SERIAL"):
        return "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE KEY"
    if r.accept("BIT"):
        return f"BIT{_length(r) or '(1)'}"
    if kind := r.accept(*_PLAIN):
        return kind + _length(r)
    if r.accept("YEAR", "SQL_TSI_YEAR"):
        return f"YEAR{_length(r)}"
    if r.accept("VECTOR"):
        return f"VECTOR{_dimension(r)}"
    if kind := r.accept("VARBINARY", "BINARY", *_BLOBS):
        return _BLOBS.get(kind, kind) + _length(r)
    if kind := r.accept("ENUM", "SET"):
        return kind + _elements(r) + (" BINARY" if "BINARY" in _charset(r, "").split(" CHARACTER SET")[0] else "")
    if kind := r.accept(*_CHARS):
        return _charset(r, _CHARS[kind] + _length(r))
    return _charset(r, _TEXTS[r.expect(*_TEXTS)] + _length(r))


def _number(r: SqlReader) -> str:
    """Return a type that has a sign; "" if none stands here."""
    if r.accept("BOOLEAN", "BOOL"):
        return "TINYINT(1)"
    if kind := r.accept(*_INTEGERS):
        return _INTEGERS[kind] + _length(r)
    if kind := r.accept(*_DECIMALS):
        return _DECIMALS[kind] + _length(r)
    kind = r.accept(*_DOUBLES, "REAL", "FLOAT4", "FLOAT")
    return _floating(r, kind) if kind else ""


def _element(r: SqlReader) -> str:
    token = r.peek()
    if token.kind is TokenKind.HEX:
        text = bytes.fromhex(r.next().text).decode(errors="replace")
    elif token.kind is TokenKind.BITS:
        text = int(r.next().text, 2).to_bytes((len(token.text) + 7) // 8, "big").decode(errors="replace")
    else:
        return quote(r.plain_string().rstrip(" "))
    return quote(text.rstrip(" "))


_elements: Final = template("(element,..)", element=_element)
_length: Final = template("[(integer,..)]")
"""`(10)` or `(10,2)`, if one stands here."""


def _dimension(r: SqlReader) -> str:
    if r.sign("<"):
        r.expect("FLOAT", "DOUBLE")
        r.expect_sign(">")
    return _length(r)


def _signs(r: SqlReader) -> str:
    found = set[str]()
    while word := r.accept("UNSIGNED", "SIGNED", "ZEROFILL"):
        found.add(word)
    return (" UNSIGNED" if found & {"UNSIGNED", "ZEROFILL"} else "") + (" ZEROFILL" if "ZEROFILL" in found else "")


def _floating(r: SqlReader, kind: str) -> str:
    length = _length(r)
    if kind in _DOUBLES:
        return _DOUBLES[kind] + length
    if kind == "REAL":
        return ("FLOAT" if "REAL_AS_FLOAT" in r.modes else "DOUBLE") + length
    if length and "," not in length:
        return "FLOAT" if int(length[1:-1]) <= _FLOAT_DIGITS_MAX else "DOUBLE"
    return "FLOAT" + length


def _charset(r: SqlReader, kind: str) -> str:
    """Return `kind` with the charset that follows, which may make bytes of it."""
    binary, charset = "", ""
    while True:
        if word := r.accept("ASCII", "BYTE", "UNICODE"):
            charset = {"ASCII": "LATIN1", "BYTE": "BINARY", "UNICODE": "UCS2"}[word]
        elif r.accept("CHARACTER SET", "CHARSET", "CHAR SET"):
            charset = charset_name(r.word_or_string())
        elif r.accept("BINARY"):
            binary = " BINARY"
        else:
            break
    if charset == "BINARY":
        word, bracket, length = kind.partition("(")
        return _OF_BYTES.get(word, word.replace("TEXT", "BLOB")) + bracket + length
    return kind + binary + (f" CHARACTER SET {charset}" if charset else "")


def cast_type(r: SqlReader) -> str:
    """Return the type of CAST and CONVERT."""
    if sign := r.accept("SIGNED", "UNSIGNED"):
        r.accept("INTEGER", "INT")
        return sign
    if r.accept("BINARY"):
        return f"BINARY{_length(r)}"
    if r.accept("NCHAR", "NATIONAL CHARACTER", "NATIONAL CHAR"):
        return f"CHAR{_length(r)}"
    if r.accept("CHARACTER", "CHAR"):
        text = _charset(r, f"CHAR{_length(r)}")
        return text.replace(" CHARACTER SET UTF8MB4", "").replace(" CHARACTER SET ", " CHARSET ")
    if r.accept(*_DECIMALS):
        return "DECIMAL" + (_length(r).replace(",", ", ") or "(10)")
    if kind := r.accept("DOUBLE PRECISION", "DOUBLE", "REAL", "FLOAT"):
        return _floating(r, kind).partition("(")[0]
    if r.accept("VECTOR"):
        _dimension(r)
        return "VECTOR"
    return r.expect("DATETIME", "DATE", "TIME", "YEAR", "JSON") + _length(r)
