r"""JSON text to typed objects, total over all bytes.

Emitters disagree about strings that are not UTF-8 (a latin1 column may hold any byte): classic TiCDC replaces each bad
byte by U+FFFD, the new architecture writes the raw bytes, so that the JSON text itself is not UTF-8.  Such a text takes
a slow path and keeps each bad byte B as the surrogate escape U+DC00+B: `text.encode("utf-8", "surrogateescape")` gives
the bytes back.  Escaped lone surrogates (\ud800) mean nothing and are refused.

Members may stand twice in an object (the new architecture does that with `ohk`): the last one wins.

Source: RFC 8259; recordings of both emitters.
"""

import json
import re
from typing import Final, NoReturn, TypeVar, cast

import msgspec

from tidegate.model.errors import DecodeError

T = TypeVar("T")

LISTS_FROM: Final = 1 << 15
LIST_BYTES: Final = 5

_BYTE: Final = re.compile(r"\(byte (\d{1,12})\)$")


def parse_json(decoder: "msgspec.json.Decoder[T]", raw: bytes, codec: str, what: str, offset: int) -> T:
    """`raw` as the decoder's type; DecodeError at its offset, counted from `offset`, for everything else.

    `what` names the text in the error."""
    try:
        return decoder.decode(raw)
    except UnicodeDecodeError:
        return _parse_not_utf8(decoder, raw, codec, what, offset)
    except (msgspec.DecodeError, RecursionError) as error:
        byte = _BYTE.search(str(error))
        raise DecodeError(f"{what}: {error}", codec, offset + (int(byte[1]) if byte else 0)) from error


def full_of_lists(raw: bytes) -> bool:
    """Return True for a large text with so many lists that its objects would take many times its size."""
    return len(raw) > LISTS_FROM and raw.count(b"[") * LIST_BYTES > len(raw)


def load_pairs(raw: bytes) -> object:
    """Return the JSON of `raw` with every object as a tuple of (name, value) pairs, repeated names kept, arrays as
    lists.

    Raises ValueError or RecursionError for a text that is not JSON."""
    text = raw.decode("utf-8", "surrogateescape")
    return json.loads(text, object_pairs_hook=tuple, parse_constant=_refuse)


def _parse_not_utf8(decoder: "msgspec.json.Decoder[T]", raw: bytes, codec: str, what: str, offset: int) -> T:
    """`parse` for a text with bytes that are not UTF-8, for which other characters stand while it is read."""
    for used, stand_in, back in _STAND_INS:
        if used.search(raw):
            continue
        try:
            text = raw.decode("utf-8", "surrogateescape").translate(stand_in).encode()
            return cast("T", _restored(decoder.decode(text), back))
        except (msgspec.DecodeError, RecursionError) as error:
            raise DecodeError(f"{what}: {error}", codec, offset) from error
    raise DecodeError(f"{what}: bytes that are not UTF-8 among many private characters", codec, offset)


def _restored(value: object, back: dict[int, int]) -> object:
    match value:
        case str():
            return value if value.isascii() else value.translate(back)
        case dict():
            return {_restored(name, back): _restored(member, back) for name, member in value.items()}
        case list():
            return [_restored(member, back) for member in value]
        case msgspec.Struct():
            for name in value.__struct_fields__:
                setattr(value, name, _restored(getattr(value, name), back))
    return value


def _stand_ins(escape: bytes, lead: bytes, first: int) -> "tuple[re.Pattern[bytes], dict[int, int], dict[int, int]]":
    """128 characters from `first` on: the pattern that finds them, escaped or not, and the translations there and
    back."""
    used = re.compile(rb"\\u" + escape + rb"[89a-f]|" + lead, re.IGNORECASE)
    stand_in = {0xDC80 + index: first + index for index in range(128)}
    return used, stand_in, {character: bad for bad, character in stand_in.items()}


_STAND_INS: Final = (
    _stand_ins(b"ee", rb"\xee[\xba\xbb]", 0xEE80),
    _stand_ins(b"e7", rb"\xee[\x9e\x9f]", 0xE780),
    _stand_ins(b"f8", rb"\xef[\xa2\xa3]", 0xF880),
)
"""Private characters; no text that has bytes of a wrong charset has some of each."""


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is not JSON", constant, 0)
