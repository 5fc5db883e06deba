r"""JSON text to typed objects, total over all bytes.

Emitters disagree about strings that are not UTF-8 (a latin1 column may hold any byte): classic TiCDC replaces each bad
byte by U+FFFD, the new architecture writes the raw bytes, so that the JSON text itself is not UTF-8.  Such a text
takes the slow way and keeps each bad byte B as the surrogate escape U+DC00+B: `text.encode("utf-8",
"surrogateescape")` gives the bytes back.  Escaped lone surrogates (\ud800) mean nothing and are refused.

Members may stand twice in an object (the new architecture does that with `ohk`): the last one wins.

Source: RFC 8259; recordings of both emitters.
"""

import json
import re
from typing import Final, NoReturn, TypeVar

import msgspec

from tidegate.model.errors import DecodeError

__all__ = ["load_pairs", "parse"]

T = TypeVar("T")

_BYTE: Final = re.compile(r"\(byte (\d{1,12})\)$")


def parse(decoder: "msgspec.json.Decoder[T]", raw: bytes, codec: str, what: str, offset: int) -> T:
    """`raw` as the decoder's type; DecodeError at `offset` + place for everything else.

    `what` names the text in the error."""
    try:
        return decoder.decode(raw)
    except UnicodeDecodeError:
        return _parse_not_utf8(decoder, raw, codec, what, offset)
    except (msgspec.DecodeError, RecursionError) as error:
        place = _BYTE.search(str(error))
        raise DecodeError(f"{what}: {error}", codec, offset + (int(place[1]) if place else 0)) from error


def load_pairs(raw: bytes) -> object:
    """The JSON of `raw` with every object as a tuple of (name, value) pairs, repeated names kept, arrays as lists.

    Raises ValueError or RecursionError for what is not JSON."""
    text = raw.decode("utf-8", "surrogateescape")
    return json.loads(text, object_pairs_hook=tuple, parse_constant=_refuse)


def _parse_not_utf8(decoder: "msgspec.json.Decoder[T]", raw: bytes, codec: str, what: str, offset: int) -> T:
    """`parse` for a text with bytes that are not UTF-8."""
    try:
        loaded = json.loads(raw.decode("utf-8", "surrogateescape"), parse_constant=_refuse)
        json.dumps(loaded, ensure_ascii=False).encode("utf-8", "surrogateescape")  # refuses escaped surrogates
        converted: T = msgspec.convert(loaded, decoder.type)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"{what}: {error}".encode(errors="replace").decode(), codec, offset) from error
    return converted


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is not JSON", constant, 0)
