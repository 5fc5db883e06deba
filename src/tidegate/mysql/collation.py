"""Sort keys: bytes that sort in the order of a collation, stored in index keys in place of a string.

    collation                          'aBc '                      contents
    binary                             61 42 63 20                 the bytes
    utf8mb4_bin, utf8_bin, ascii_bin,  61 42 63                    the bytes without trailing spaces
    latin1_bin
    utf8mb4_0900_bin                   61 42 63 20                 the bytes
    gbk_bin, gb18030_bin               61 42 63                    the bytes of that charset, without trailing spaces
    utf8mb4_general_ci, utf8_general_ci   00 41 00 42 00 43        u16 weights, without trailing spaces
    utf8mb4_unicode_ci, utf8_unicode_ci   0e 33 0e 4a 0e 60        u16 weights of UCA 4.0.0, without trailing spaces
    utf8mb4_0900_ai_ci                 1c 47 1c 60 1c 7a 02 09     u16 weights of UCA 9.0.0

Strings are stored as UTF-8 whatever their charset.  A character whose weight is not known here is an EncodeError,
never a wrong key.  Sort keys are never read back: index entries keep the original of what a sort key loses.

Weights of characters, for those that follow simple rules:

    general_ci    one weight: the upper-case letter without its marks, by the letters of Unicode 3.0
                  a A á Á à -> A     ß -> S     й Й -> Й     above U+FFFF -> FFFD     all others -> themselves
    UCA 4.0.0     the tables below for ASCII and Latin-1; letters with marks weigh as the bare letter;
    UCA 9.0.0     ideographs U+4E00 .. U+9FA5 are FB40 + (code >> 15), then code & 7FFF | 8000

Characters of weight 0 (controls, marks) add nothing.

Source: TiDB pkg/util/collate.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final
from unicodedata import ucd_3_2_0 as letters

from tidegate.model.errors import EncodeError, redacted_value
from tidegate.mysql.layout import TRIMMED

_CASED_PLANES: Final = frozenset({0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x1E, 0x1F, 0x21, 0x24, 0xFF})
_EXCEPTIONS: Final = {
    "ß": 0x53,
    "\u0419": 0x419,
    "\u0439": 0x419,
    "\u03f2": 0x3A3,
    **{char: ord(char) for char in "\u019e\u03d9\u03f5\u048b\u04c6\u04ca\u04ce"},
    **{chr(code): code for code in range(0x500, 0x510)},
}
"""Exceptions from the rule: ß, the short i, and letters whose capitals came after Unicode 3.0."""
_REPLACEMENT: Final = b"\xff\xfd"
_PRINTABLE: Final = range(0x20, 0x7F)
_BREAKS: Final = {code: bytes((2, code - 8)) for code in range(9, 14)}

_UCA_400: Final = (
    "0209 0251 027E 02D2 0E0F 02D3 02CF 0277 0288 0289 02C8 0428 022F 0221 025D 02CC "
    "0E29 0E2A 0E2B 0E2C 0E2D 0E2E 0E2F 0E30 0E31 0E32 023D 023A 042C 042D 042E 0255 "
    "02C7 0E33 0E4A 0E60 0E6D 0E8B 0EB9 0EC1 0EE1 0EFB 0F10 0F21 0F2E 0F5B 0F64 0F82 "
    "0FA7 0FB4 0FC0 0FEA 1002 101F 1044 1051 105A 105E 106A 028A 02CE 028B 020F 021B "
    "020C 0E33 0E4A 0E60 0E6D 0E8B 0EB9 0EC1 0EE1 0EFB 0F10 0F21 0F2E 0F5B 0F64 0F82 "
    "0FA7 0FB4 0FC0 0FEA 1002 101F 1044 1051 105A 105E 106A 028C 0430 028D 0433"
)
"""Weights of U+0020 to U+007E."""
_UCA_900: Final = (
    "0209 0260 030C 0398 1C12 0399 0396 0305 0317 0318 038F 0616 0222 020D 0277 0394 "
    "1C3D 1C3E 1C3F 1C40 1C41 1C42 1C43 1C44 1C45 1C46 0239 0234 061A 061B 061C 0266 "
    "038E 1C47 1C60 1C7A 1C8F 1CAA 1CE5 1CF4 1D18 1D32 1D4C 1D65 1D77 1DAA 1DB9 1DDD "
    "1E0C 1E21 1E33 1E71 1E95 1EB5 1EE3 1EF5 1EFF 1F0B 1F21 0319 0395 031A 0485 020B "
    "0482 1C47 1C60 1C7A 1C8F 1CAA 1CE5 1CF4 1D18 1D32 1D4C 1D65 1D77 1DAA 1DB9 1DDD "
    "1E0C 1E21 1E33 1E71 1E95 1EB5 1EE3 1EF5 1EFF 1F0B 1F21 031B 061E 031C 0620"
)

_LATIN_1_400: Final = (
    "A00209 A10252 A20E0E A30E10 A40E0D A50E11 A60431 A702C2 A80214 A902C5 AA0E33 AB0286 AC042F AD0220 AE02C6 AF0210 "
    "B0034A B10429 B20E2B B30E2C B4020D B510F8 B602C3 B70267 B80219 B90E2A BA0F82 BB0287 BC0E2A02CD0E2D BD0E2A02CD0E2B "
    "BE0E2C02CD0E2D BF0256 C60E38 D00E86 D7042B D80F8D DE1094 DF0FEA0FEA E60E38 F00E86 F7042A F80F8D FE1094"
)
"""Code and weights of the characters from U+00A0 to U+00FF that are no letters with marks."""


def _table(weights: str) -> dict[int, bytes]:
    printable = map(bytes.fromhex, weights.split())
    return {**dict.fromkeys(range(0x80), b""), **_BREAKS, **dict(zip(_PRINTABLE, printable, strict=True))}


_TABLES: Final = {"UCA 4.0.0": _table(_UCA_400), "UCA 9.0.0": _table(_UCA_900)}
_TABLES["UCA 4.0.0"] |= {entry[0]: entry[1:] for entry in map(bytes.fromhex, _LATIN_1_400.split())}


@lru_cache(maxsize=4096)
def general_weight(char: str) -> bytes:
    """Return the weight of a character in utf8mb4_general_ci."""
    if ord(char) > 0xFFFF:
        return _REPLACEMENT
    if ord(char) >> 8 not in _CASED_PLANES:
        return ord(char).to_bytes(2, "big")
    bare = _bare(char)
    capital = bare.upper()
    if not (len(capital) == 1 and letters.category(capital) != "Cn" != letters.category(bare)):
        capital = bare
    return _EXCEPTIONS.get(char, ord(capital)).to_bytes(2, "big")


def _bare(char: str) -> str:
    """Return the letter without its marks; compatibility characters stay."""
    parts = letters.decomposition(char).split()
    if len(parts) != 2 or parts[0].startswith("<"):
        return char
    first = chr(int(parts[0], 16))
    return _bare(first) if letters.category(first).startswith("L") else char


def uca_400(char: str) -> bytes:
    """Return the primary weights of a character in utf8mb4_unicode_ci."""
    return _uca("UCA 4.0.0", char) if ord(char) <= 0xFFFF else _REPLACEMENT


def uca_900(char: str) -> bytes:
    """Return the primary weights of a character in utf8mb4_0900_ai_ci."""
    return _uca("UCA 9.0.0", char)


@lru_cache(maxsize=4096)
def _uca(version: str, char: str) -> bytes:
    code = ord(_bare(char))
    weight = _TABLES[version].get(code)
    if weight is not None:
        return weight
    if 0x4E00 <= code <= 0x9FA5:
        return (0xFB40 + (code >> 15)).to_bytes(2, "big") + (code & 0x7FFF | 0x8000).to_bytes(2, "big")
    raise EncodeError(f"the weight of U+{code:04X} in {version} is not known")


def sort_key(collation: str, data: bytes) -> bytes:
    """Return the sort key of a stored string; EncodeError for a collation or a character whose weights are not
    known."""
    make = _KEYS.get(collation)
    if make is None:
        raise EncodeError(f"the sort keys of collation {collation!r} are not known")
    return make(data)


def _trimmed(data: bytes) -> bytes:
    return data.rstrip(b" ")


def _in_charset(charset: str) -> Callable[[bytes], bytes]:
    def key(data: bytes) -> bytes:
        try:
            return data.decode("utf-8").encode(charset).rstrip(b" ")
        except UnicodeError as error:
            raise EncodeError(f"{redacted_value(data)} is no text of charset {charset}") from error

    return key


def _weighed(weight: Callable[[str], bytes], *, pads: bool) -> Callable[[bytes], bytes]:
    def key(data: bytes) -> bytes:
        text = (_trimmed(data) if pads else data).decode("utf-8", "replace")
        return b"".join(map(weight, text))

    return key


_GENERAL: Final = _weighed(general_weight, pads=True)
_UNICODE: Final = _weighed(uca_400, pads=True)
_KEYS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "binary": bytes,
    "utf8mb4_0900_bin": bytes,
    **dict.fromkeys(TRIMMED, _trimmed),
    "gbk_bin": _in_charset("gbk"),
    "gb18030_bin": _in_charset("gb18030"),
    **dict.fromkeys(("utf8mb4_general_ci", "utf8_general_ci"), _GENERAL),
    **dict.fromkeys(("utf8mb4_unicode_ci", "utf8_unicode_ci"), _UNICODE),
    "utf8mb4_0900_ai_ci": _weighed(uca_900, pads=False),
}
