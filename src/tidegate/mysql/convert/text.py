"""Character and byte strings, ENUM and SET, as TiDB fits values into them.

    CHAR(n), VARCHAR(n)   n characters; CHAR drops trailing spaces
    TEXT family           255, 65535, 2**24 - 1, 2**32 - 1 bytes, cut between characters
    BINARY(n)             n bytes, padded with NUL
    VARBINARY(n), BLOB    n bytes; the family's limits as for TEXT
    ENUM                  a name; '' (index 0) for what names nothing
    SET                   names in definition order, each once

Text becomes bytes, and bytes text, in the column's character set; UTF-8 stands for all of TiDB's but GBK and GB18030.
Names are looked up exactly first, then without trailing spaces and case, then as a number; a value is a name, so
appending names leaves it as it is.
Source: TiDB's types package (ProduceStrWithSpecifiedTp, ParseEnum, ParseSet) and table.CastValue (CHAR trims).
"""

from collections.abc import Callable
from typing import Final

from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType

UNLIMITED: Final = 1 << 32
BLOB_LIMITS: Final = {
    MysqlType.TINY_BLOB: (1 << 8) - 1,
    MysqlType.BLOB: (1 << 16) - 1,
    MysqlType.MEDIUM_BLOB: (1 << 24) - 1,
    MysqlType.LONG_BLOB: (1 << 32) - 1,
}
CODECS: Final = {"gbk": "gbk", "gb18030": "gb18030"}


def capacity(kind: ColumnType) -> int:
    """Return the most characters (CHAR, VARCHAR) or bytes (all others) that the type holds."""
    if kind.code in BLOB_LIMITS:
        return BLOB_LIMITS[kind.code]
    if kind.flen >= 0:
        return kind.flen
    return 1 if kind.code is MysqlType.STRING else UNLIMITED


def encode_text(text: str, charset: str) -> bytes:
    """Return the bytes of `text` in a column's character set."""
    return text.encode(CODECS.get(charset, "utf-8"), "surrogateescape")


def decode_bytes(data: bytes, charset: str) -> str:
    """Return the text of `data` in a column's character set, '?' for what is none."""
    codec = CODECS.get(charset, "utf-8")
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        return data.decode(codec, "replace").replace("\ufffd", "?")


def enum_index(elems: tuple[str, ...]) -> Callable[[str], int]:
    """Return the 1-based index of a name; 0 for the empty, invalid value."""
    places = {name: index for index, name in enumerate(elems, 1)}
    return lambda name: places.get(name, 0)


def set_mask(elems: tuple[str, ...]) -> Callable[[str], int]:
    """Return the bit mask of comma-joined names."""
    bits = {name: 1 << index for index, name in enumerate(elems)}
    return lambda text: sum({name: bits.get(name, 0) for name in text.split(",")}.values())


def enum_name(elems: tuple[str, ...], index: int) -> str:
    """Return the name at a 1-based index; '' where there is none."""
    return elems[index - 1] if 1 <= index <= len(elems) else ""


def enum_number(elems: tuple[str, ...], name: str) -> int:
    """Return the 1-based index of a name, spelled as it is defined; 0 for a text that is none."""
    return elems.index(name) + 1 if name in elems else 0


def set_number(elems: tuple[str, ...], names: str) -> int:
    """Return the bit mask of comma-joined names, spelled as they are defined."""
    parts = names.split(",") if names or "" in elems else []
    return sum(1 << elems.index(part) for part in parts if part in elems)


def set_names(elems: tuple[str, ...], mask: int) -> str:
    """Return the comma-joined names of a bit mask; bits without a name are dropped."""
    return ",".join(name for index, name in enumerate(elems) if mask >> index & 1)
