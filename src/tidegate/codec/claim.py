"""Claim checks: a row too large for Kafka is stored in a file, which its message names.

    Kafka     the row with its handle key columns alone, `ccl` / claimCheckLocation = STORAGE-URI/NAME
    NAME      {"key": base64 or null, "value": base64}      the whole message, as it would have been sent
              or, with claim-check-raw-value, the bytes of the value

    Cut       columns of a message                            mark
    WHOLE     all                                             none
    HANDLES   handle key columns, because all were too many   ohk / onlyHandleKey
    claim(at) handle key columns; all lie at `at`             ccl / claimCheckLocation

Only the base name of a location counts: a reader looks for it in the storage of its own configuration, so that a
message cannot send it anywhere else.  The caller fetches and stores; this module does no I/O.

Source: TiCDC's "Send large messages to external storage" document; recordings.
"""

import binascii
import re
from typing import Final, NamedTuple

import msgspec

from tidegate.codec.jsontext import parse_json
from tidegate.codec.options import DecodeOptions
from tidegate.model.errors import DecodeError
from tidegate.model.event import RowChange


class Cut(NamedTuple):
    """The columns of a row to send, and the mark of an incomplete one."""

    handles: bool = False
    only_handles: bool = False
    location: str | None = None


WHOLE: Final = Cut()
HANDLES: Final = Cut(handles=True, only_handles=True)


def claim(location: str) -> Cut:
    """Return the cut of a row whose complete message is at `location`."""
    return Cut(handles=True, location=location)


def cut_of(row: RowChange) -> Cut:
    """Return the cut of a decoded row: its marks are kept, and its columns are those that it has."""
    return Cut(False, row.handle_only, row.claim_check) if row.handle_only or row.claim_check else WHOLE


CODEC: Final = "claim-check"


class _Body(msgspec.Struct):
    value: str
    key: str | None = None


_USER_INFO: Final = re.compile(r"(?<=://)(?!\[)[^:/?#]*:(?:[^/?#]*|(?!\d*(?:[,/?#]|$)).*)@", re.DOTALL)
"""User and password, up to the last "@" of the authority; of the whole text if no port follows the colon, since
a password may contain unescaped characters."""
_BODY: Final = msgspec.json.Decoder(_Body)


def claim_name(location: str) -> str:
    """Return the name of the file that `location` points at, without any directory."""
    name = location.replace("\\", "/").rpartition("/")[2]
    if name in {"", ".", ".."} or "\0" in name:
        raise DecodeError(f"claim check location {location!a} names no file", CODEC, 0)
    return name


def open_claim(body: bytes, options: DecodeOptions) -> tuple[bytes | None, bytes]:
    """(key, value) of the message whose claim-check file holds `body`; decode them like any other."""
    if options.claim_check_raw_value:
        return None, body
    file = parse_json(_BODY, body, CODEC, "file", 0)
    return (None if file.key is None else _bytes(file.key, "key")), _bytes(file.value, "value")


def pack_claim(key: bytes | None, value: bytes, *, raw_value: bool) -> bytes:
    """Return the content of a message's file; the inverse of `open_claim`."""
    if raw_value:
        return value
    return msgspec.json.encode({"key": key, "value": value})


def claim_location(storage_uri: str, name: str) -> str:
    """Return the location of the file `name` of a storage, without the user, password and parameters of its URI, since
    every reader of the topic sees it.

    A bare path is a directory of the sender's machine, file://."""
    root = _USER_INFO.sub("", storage_uri, count=1).partition("?")[0].removesuffix("/")
    return f"{root if '://' in root else f'file://{root}'}/{name}"


def _bytes(text: str, name: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise DecodeError(f"the {name} is not base64: {error}", CODEC, 0) from error
