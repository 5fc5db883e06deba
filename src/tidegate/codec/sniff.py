r"""Which configuration made a message: protocol, compression, dialect and options, as far as its bytes prove them.

    file of a claim check?  {"key":base64|null,"value":base64}  ─yes─→ the message inside
            │ no
    key starts with 00 00 00 00 00 00 00 01  ─yes─→ open-protocol      ─no─→ canal-json, or nothing that we read
            │
    value    JSON as it stands → none      LZ4 frame magic → lz4      else → snappy       the one that decodes
            │
    marks    what only one dialect or one setting writes (sniff_marks.py)

Nothing is guessed: a name stands in `settings` when the message could not look like this under another value, and
every name of `KEYS` that does not stand there may have any.  So one INSERT leaves `only-output-updated-columns` open,
and a UPDATE settles it.  Several messages settle more (`sniff_all`); where they contradict each other, as after a
change of the changefeed, the name moves to `mixed`.

Source: the Open Protocol and Canal-JSON documents; recordings of both emitters.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Final

import msgspec

from tidegate.codec.claim import open_claim
from tidegate.codec.options import DecodeOptions
from tidegate.codec.sniff_marks import COMPRESSION, DIALECT, KEYS, OFFICIAL, Marks, canal_marks, open_marks
from tidegate.codec.table import decode
from tidegate.model.errors import DecodeError
from tidegate.model.event import Event

__all__ = ["KEYS", "Sniffed", "merge", "sniff", "sniff_all"]

CODEC: Final = "sniff"
_OPEN_VERSION: Final = (1).to_bytes(8, "big")
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_CLAIM: Final = DecodeOptions(protocol="canal-json")


class Sniffed(msgspec.Struct, frozen=True):
    """What messages prove of their sender.

    `settings` are keys of a changefeed with their values, `dialect` and large-message-handle-compression among them;
    `mixed` are keys that the messages have with several values; `wrapped` tells files of claim checks."""

    protocol: str
    settings: tuple[tuple[str, str], ...] = ()
    mixed: tuple[str, ...] = ()
    wrapped: bool = False

    @property
    def dialect(self) -> str | None:
        """classic, newarch, or official for Alibaba's Canal; None when the messages do not tell."""
        return self.get(DIALECT)

    @property
    def compression(self) -> str | None:
        """none, snappy or lz4; None when no message had a value."""
        return self.get(COMPRESSION)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The keys that the protocol has and the messages do not settle."""
        known = {key for key, _ in self.settings}
        return tuple(key for key in KEYS[self.protocol] if key not in known)

    def get(self, key: str) -> str | None:
        """Return the proven value of a key."""
        return dict(self.settings).get(key)

    def decode_options(self) -> DecodeOptions:
        """Options that decode the messages; DecodeError when no single ones do."""
        if COMPRESSION in self.mixed:
            raise DecodeError(f"messages with several values of {COMPRESSION}; decode them apart", CODEC, 0)
        return DecodeOptions(
            protocol=self.protocol, compression=self.compression or "none", legacy=self.dialect == OFFICIAL
        )


def sniff(key: bytes | None, value: bytes | None) -> Sniffed:
    """Return what one message, or the file of one claim check as `value`, proves; DecodeError when it is neither."""
    if not key and value and value[:1] == b"{":
        try:
            inner = open_claim(value, _CLAIM)
        except DecodeError:
            return _message(key, value)
        return msgspec.structs.replace(_message(*inner), wrapped=True)
    return _message(key, value)


def sniff_all(messages: Iterable[tuple[bytes | None, bytes | None]]) -> Sniffed:
    """Return what the messages prove together; those that nothing can be made of are passed over.

    DecodeError when none is left, or when they are of several protocols."""
    found: Sniffed | None = None
    first: DecodeError | None = None
    for key, value in messages:
        try:
            one = sniff(key, value)
        except DecodeError as error:
            first = first or error
            continue
        found = one if found is None else merge(found, one)
    if found is None:
        raise first or DecodeError("no message to tell a protocol from", CODEC, 0)
    return found


def merge(*found: Sniffed) -> Sniffed:
    """Return what all prove together; DecodeError when they are of several protocols."""
    return reduce(_merged, found)


def _merged(one: Sniffed, other: Sniffed) -> Sniffed:
    if one.protocol != other.protocol:
        raise DecodeError(f"messages of {one.protocol} and of {other.protocol}; read them apart", CODEC, 0)
    left, right = dict(one.settings), dict(other.settings)
    against = {key for key in left.keys() & right.keys() if left[key] != right[key]}
    mixed = against | set(one.mixed) | set(other.mixed)
    settings = {key: value for key, value in (left | right).items() if key not in mixed}
    return Sniffed(one.protocol, _ordered(settings), tuple(sorted(mixed)), one.wrapped or other.wrapped)


def _message(key: bytes | None, value: bytes | None) -> Sniffed:
    protocol = "open-protocol" if (key or b"").startswith(_OPEN_VERSION) else "canal-json"
    bodies = _bodies(value or b"") if protocol == "open-protocol" else [value or b""]
    sample = next((body for body in bodies if body), b"")
    compression: str | None = None
    events: tuple[Event, ...] = ()
    fault: DecodeError | None = None
    for name in _possible(sample):
        try:
            events = decode(key, value, DecodeOptions(protocol=protocol, compression=name))
        except DecodeError as error:
            fault = fault or error
            continue
        compression = name
        break
    if compression is None:
        raise fault or DecodeError("neither a message of open-protocol nor of canal-json", CODEC, 0)
    marks: Marks = {COMPRESSION: {compression}} if sample else {}
    read = open_marks if protocol == "open-protocol" else canal_marks
    keys = _bodies((key or b"")[len(_OPEN_VERSION) :])
    read(marks, keys, bodies, compression, events)
    settings = {name: next(iter(values)) for name, values in marks.items() if len(values) == 1}
    return Sniffed(protocol, _ordered(settings), tuple(sorted(name for name in marks if len(marks[name]) > 1)))


def _possible(sample: bytes) -> tuple[str, ...]:
    """The compressions that a value may have, likeliest first."""
    if sample.startswith(_LZ4_MAGIC):
        return "lz4", "snappy"
    return ("none", "snappy") if sample.lstrip()[:1] in {b"", b"{"} else ("snappy", "none")


def _bodies(buffer: bytes) -> list[bytes]:
    """The length-prefixed bytes of `buffer`, as far as they go."""
    found, at = [], 0
    while at + 8 <= len(buffer):
        end = at + 8 + int.from_bytes(buffer[at : at + 8], "big")
        found.append(buffer[at + 8 : end])
        at = end
    return found


def _ordered(settings: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))
