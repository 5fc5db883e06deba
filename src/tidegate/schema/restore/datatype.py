"""Column and cast types: one name for the many spellings of a type (`columns.py` reads them), as TiDB prints it."""

from typing import Final

from tidegate.model.mysql import MysqlType, sql_name
from tidegate.schema.columns import read_type
from tidegate.schema.definition import TypeDef
from tidegate.schema.restore.reader import SqlReader

_CAST_TO: Final = frozenset(
    """BINARY NCHAR NATIONAL CHARACTER CHAR DECIMAL NUMERIC DEC FIXED DOUBLE REAL FLOAT VECTOR DATETIME DATE TIME YEAR
    JSON""".split()  # noqa: SIM905
)
_FLOAT_DIGITS_MAX: Final = 24


def column_type(r: SqlReader) -> str:
    """Return the type of a column; what a type says of charset, sign and zeros comes with it."""
    if r.accept("SERIAL"):
        return "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE KEY"
    is_real = r.looking_at("REAL")
    found = read_type(r)
    code, flen = found.code, found.flen
    if is_real and "REAL_AS_FLOAT" in r.modes:
        code = MysqlType.FLOAT
    elif code is MysqlType.FLOAT and found.decimal < 0:
        code, flen = MysqlType.FLOAT if flen <= _FLOAT_DIGITS_MAX else MysqlType.DOUBLE, -1
    elif code is MysqlType.BIT:
        flen = max(flen, 1)
    inside = [str(number) for number in (flen, found.decimal) if number >= 0]
    if found.elems is not None:
        inside = [r.printed(element) for element in found.elems]
    name = sql_name(code, binary=found.charset == "binary").upper()
    return name + (f"({','.join(inside)})" if inside else "") + _attributes(found)


def _attributes(found: TypeDef) -> str:
    sign = (" UNSIGNED" if found.unsigned else "") + (" ZEROFILL" if found.zerofill else "")
    if found.charset == "binary":
        return sign
    charset = "" if found.charset is None or found.elems is not None else f" CHARACTER SET {found.charset.upper()}"
    return sign + (" BINARY" if found.binary else "") + charset


def cast_type(r: SqlReader) -> str:
    """Return the type of CAST and CONVERT."""
    if sign := r.accept("SIGNED", "UNSIGNED"):
        r.accept("INTEGER", "INT")
        return sign
    if r.peek().word not in _CAST_TO:
        raise r.error("expected a type to cast to")
    text = column_type(r)
    name, bracket, length = text.partition("(")
    if name == "DECIMAL":
        return f"DECIMAL({length.replace(',', ', ')}" if bracket else "DECIMAL(10)"
    if name in ("FLOAT", "DOUBLE", "VECTOR"):
        return name
    return text.replace(" CHARACTER SET UTF8MB4", "").replace(" CHARACTER SET ", " CHARSET ")
