"""Sort keys: the bytes whose order is the order of a collation, which index keys hold in place of a string.

    collation                          'aBc '                      made of
    binary                             61 42 63 20                 the bytes
    utf8mb4_bin, utf8_bin, ascii_bin,  61 42 63                    the bytes without trailing spaces
    latin1_bin
    utf8mb4_0900_bin                   61 42 63 20                 the bytes
    gbk_bin, gb18030_bin               61 42 63                    the bytes of that charset, without trailing spaces
    utf8mb4_general_ci, utf8_general_ci   00 41 00 42 00 43        u16 weights, without trailing spaces
    utf8mb4_unicode_ci, utf8_unicode_ci   0e 33 0e 4a 0e 60        u16 weights of UCA 4.0.0, without trailing spaces
    utf8mb4_0900_ai_ci                 1c 47 1c 60 1c 7a 02 09     u16 weights of UCA 9.0.0

Strings are stored as UTF-8 whatever their charset.  The weights that are not plain rules are in collation_weights.py;
a character that it does not list is an EncodeError, never a wrong key.  Reading a key needs none of this: entries keep
the original of what a sort key loses.

Source: TiDB pkg/util/collate.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidegate.kv.collation_weights import general_weight, uca_400, uca_900
from tidegate.kv.layout import TRIMMED
from tidegate.model.errors import EncodeError

__all__ = ["sort_key"]


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
            raise EncodeError(f"{data!r:.60} is no text of charset {charset}") from error

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
