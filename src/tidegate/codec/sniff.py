r"""The configuration of a message's sender: protocol, compression, dialect and options, as far as its bytes prove them.

    file of a claim check?  {"key":base64|null,"value":base64}  ─yes─→ the message inside
            │ no
    key starts with 00 00 00 00 00 00 00 01  ─yes─→ open-protocol      ─no─→ canal-json, or nothing that we read
            │
    value    JSON as it stands → none      LZ4 frame magic → lz4      else → snappy       the one that decodes

Nothing is guessed: an option is in `settings` when the message could not look like this under another value; any
other name of `KEYS` may have any value.  One INSERT leaves `only-output-updated-columns` open, an UPDATE settles it.
Several messages settle more (`sniff_all`); where they contradict each other, as after a change of the changefeed,
the option moves to `mixed`.

    open-protocol     classic                                        newarch
    key JSON          "rid"; "ptn" before "t"; a DDL without "tbl"   "ptn" after "t"; "tbl":""; "ohk":false
    columns           sorted by name always                          in table order: an unsorted pair proves it
    < > &             \u003c \u003e \u0026                           as they are
    U+2028, U+2029    \u2028 \u2029                                  as they are
    BS, FF            \b \f                                          - (\u0008 \u000c; so does an older Go's)
    bytes not UTF-8   \ufffd                                         as they are
    small floats      1e-7                                           1e-07
    old images        -                                              "p":{}; members without a column name

    canal-json        classic                                        newarch                       official Canal
    no columns        "mysqlType":{}                                 "mysqlType":null              -
    always            "id":0 first                                   "id":0 first                  another id or order
    _tidb             -                                              "rowkey"                      -

    setting                                  true                                    false
    only-output-updated-columns              an old image lacks a column             it has one that did not change
    output-old-value                         an old image                            -
    delete-only-output-handle-key-columns    -                                       a DELETE with another column
    enable-tidb-extension                    `_tidb`                                 none
    content-compatible                       mysqlType with (                        a type that lacks its ( )
    output-row-key                           "rowkey"                                `_tidb` of a row without one
    large-message-handle-option              by ohk and ccl, onlyHandleKey and claimCheckLocation

Escapes are read in pairs from the left: the text `\b` is written `\\b` and proves nothing.

Source: the Open Protocol and Canal-JSON documents; recordings of both emitters.
"""

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, Final, TypeAlias

import msgspec

from tidegate.codec.canal import decode_canal
from tidegate.codec.claim import open_claim
from tidegate.codec.compression import decompress
from tidegate.codec.jsontext import full_of_lists, load_pairs
from tidegate.codec.open import decode_open
from tidegate.codec.options import DecodeOptions, protocol_name
from tidegate.model.errors import DecodeError
from tidegate.model.event import Delete, Event

Marks: TypeAlias = dict[str, set[str]]
"""The values seen for each key."""
Pairs: TypeAlias = tuple[tuple[str, Any], ...]

DIALECT: Final = "dialect"
COMPRESSION: Final = "large-message-handle-compression"
OFFICIAL: Final = "official"
CLASSIC: Final = "classic"
NEWARCH: Final = "newarch"
HANDLING: Final = "large-message-handle-option"
UPDATED: Final = "only-output-updated-columns"
OLD_VALUE: Final = "output-old-value"
HANDLE_DELETES: Final = "delete-only-output-handle-key-columns"
EXTENSION: Final = "enable-tidb-extension"
COMPATIBLE: Final = "content-compatible"
ROW_KEY: Final = "output-row-key"

_BOTH: Final = (DIALECT, COMPRESSION, HANDLING, UPDATED, HANDLE_DELETES)
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "open-protocol": (*_BOTH, OLD_VALUE),
    "canal-json": (*_BOTH, EXTENSION, COMPATIBLE, ROW_KEY),
}
"""The keys of each protocol that messages can settle."""

_ESCAPE: Final = re.compile(rb"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CLASSIC_ESCAPES: Final = frozenset({b"u003c", b"u003e", b"u0026", b"u2028", b"u2029", b"ufffd", b"b", b"f"})
_RAW: Final = re.compile(rb"[<>&]|\xe2\x80[\xa8\xa9]")
_SMALL: Final = re.compile(rb'"v":-?[0-9.]+e-(0?)[0-9](?![0-9])')
_INTEGERS: Final = ("bit", "tinyint", "smallint", "mediumint", "int", "bigint", "year")
_SIZED: Final = frozenset({*_INTEGERS, "decimal", "char", "varchar", "binary", "varbinary", "enum", "set"})
"""The types that have parameters in a complete definition."""


def open_marks(
    marks: Marks, keys: Sequence[bytes], bodies: Sequence[bytes], compression: str, events: Sequence[Event]
) -> None:
    """Add the evidence of an Open Protocol message."""
    for index, key in enumerate(keys):
        body = bodies[index] if index < len(bodies) else b""
        _escapes(marks, key)
        _open_key(marks, _loaded(key))
        if body:
            plain = decompress(body, compression, "open-protocol", 0)
            _escapes(marks, plain)
            for digits in _SMALL.finditer(plain):
                _add(marks, DIALECT, NEWARCH if digits[1] else CLASSIC)
            _open_value(marks, _loaded(plain))
    _deletes(marks, events)


def canal_marks(
    marks: Marks, _keys: Sequence[bytes], bodies: Sequence[bytes], compression: str, events: Sequence[Event]
) -> None:
    """Add the evidence of a Canal-JSON message."""
    pairs = _loaded(decompress(bodies[0], compression, "canal-json", 0))
    message = dict(pairs)
    if pairs[0] != ("id", 0):
        _add(marks, DIALECT, OFFICIAL)
        return
    tidb = _members(message.get("_tidb"))
    _add(marks, EXTENSION, "true" if message.get("_tidb") is not None else "false")
    _handling(marks, handles=bool(tidb.get("onlyHandleKey")), claim=bool(tidb.get("claimCheckLocation")))
    if not message.get("data"):
        return
    if tidb:
        _add(marks, ROW_KEY, "true" if "rowkey" in tidb else "false")
    types = message.get("mysqlType")
    if "rowkey" in tidb or ("mysqlType" in message and types is None):
        _add(marks, DIALECT, NEWARCH)
    elif types == ():
        _add(marks, DIALECT, CLASSIC)
    for text in _members(types).values():
        if "(" in text:
            _add(marks, COMPATIBLE, "true")
        elif text.partition(" ")[0].lower() in _SIZED:
            _add(marks, COMPATIBLE, "false")
    if message.get("type") == "UPDATE":
        for new, old in zip(message["data"], message.get("old") or (), strict=False):
            _old_image(marks, _members(new), _members(old))
    _deletes(marks, events)


def _open_key(marks: Marks, pairs: Pairs) -> None:
    names = [name for name, _ in pairs]
    members = dict(pairs)
    if "rid" in names:
        _add(marks, DIALECT, CLASSIC)
    if "ptn" in names:
        _add(marks, DIALECT, CLASSIC if names.index("ptn") < names.index("t") else NEWARCH)
    if members["t"] == 2:
        if "tbl" not in names:
            _add(marks, DIALECT, CLASSIC)
        elif not members["tbl"]:
            _add(marks, DIALECT, NEWARCH)
    if ("ohk", False) in pairs:
        _add(marks, DIALECT, NEWARCH)
    _handling(marks, handles=bool(members.get("ohk")), claim=bool(members.get("ccl")))


def _open_value(marks: Marks, pairs: Pairs) -> None:
    row = dict(pairs)
    for image in ("u", "p", "d"):
        columns = [name for name, member in row.get(image) or () if isinstance(member, tuple)]
        raw = [name.encode("utf-8", "surrogateescape") for name in columns]
        if any(left > right for left, right in pairwise(raw)):
            _add(marks, DIALECT, NEWARCH)
    if row.get("p") is None:
        return
    _add(marks, OLD_VALUE, "true")
    if not row["p"] or any(not isinstance(member, tuple) for _, member in row["p"]):
        _add(marks, DIALECT, NEWARCH)
        _add(marks, UPDATED, "true")
        return
    new, old = ({name: _members(column).get("v") for name, column in row.get(image) or ()} for image in ("u", "p"))
    _old_image(marks, new, old)


def _old_image(marks: Marks, new: dict[str, Any], old: dict[str, Any]) -> None:
    """The settings that an old image proves: complete with something unchanged, or with something left out."""
    if new.keys() - old.keys():
        _add(marks, UPDATED, "true")
    elif any(_same(old[name], new[name]) for name in new):
        _add(marks, UPDATED, "false")


def _same(old: object, new: object) -> bool:
    """True if the sender saw no change: 0 and -0 differ, and U+FFFD may stand for any byte."""
    return repr(old) == repr(new) and "\ufffd" not in str(old)


def _deletes(marks: Marks, events: Sequence[Event]) -> None:
    """A DELETE with a column that is no handle was not cut down to the handle."""
    for event in events:
        if isinstance(event, Delete) and len({field.handle for field in event.fields}) > 1:
            _add(marks, HANDLE_DELETES, "false")


def _handling(marks: Marks, *, handles: bool, claim: bool) -> None:
    if handles:
        _add(marks, HANDLING, "handle-key-only")
    if claim:
        _add(marks, HANDLING, "claim-check")


def _escapes(marks: Marks, text: bytes) -> None:
    """The dialect of Open Protocol that escapes as `text` does."""
    if b"\\" in text and not _CLASSIC_ESCAPES.isdisjoint(_ESCAPE.findall(text)):
        _add(marks, DIALECT, CLASSIC)
    if _RAW.search(text):
        _add(marks, DIALECT, NEWARCH)
    try:
        text.decode()
    except UnicodeDecodeError:
        _add(marks, DIALECT, NEWARCH)


def _add(marks: Marks, key: str, value: str) -> None:
    marks.setdefault(key, set()).add(value)


def _members(pairs: object) -> dict[str, Any]:
    return dict(pairs) if isinstance(pairs, tuple) else {}


def _loaded(text: bytes) -> Pairs:
    if full_of_lists(text):
        raise DecodeError("nothing but lists, of which no message is made", "sniff", 0)
    try:
        pairs = load_pairs(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}"[:200], "sniff", 0) from error
    assert isinstance(pairs, tuple)
    return pairs


__all__ = ["KEYS", "Sniffed", "merge", "remedy", "sniff", "sniff_all"]

CODEC: Final = "sniff"
_OPEN_VERSION: Final = (1).to_bytes(8, "big")
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_CLAIM: Final = DecodeOptions(protocol="canal-json")
_READERS: Final = {"open-protocol": (decode_open, open_marks), "canal-json": (decode_canal, canal_marks)}


class Sniffed(msgspec.Struct, frozen=True):
    """The sender's configuration that messages prove. `settings` are keys of a changefeed with their values, with
    `dialect` and large-message-handle-compression; `mixed` are keys with several values; `wrapped`: the messages are
    files of claim checks.

    >>> value = b'{"id":0,"database":"","table":"","isDdl":false,"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> sniffed = sniff(None, value)
    >>> sniffed.get("enable-tidb-extension"), sniffed.decode_options().protocol
    ('true', 'canal-json')"""

    protocol: str
    settings: tuple[tuple[str, str], ...] = ()
    mixed: tuple[str, ...] = ()
    wrapped: bool = False

    @property
    def dialect(self) -> str | None:
        """classic, newarch, or official for Alibaba's Canal; None if unproven."""
        return self.get(DIALECT)

    @property
    def compression(self) -> str | None:
        """none, snappy or lz4; None when no message had a value."""
        return self.get(COMPRESSION)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The keys that the protocol has and the messages do not settle."""
        keys = {key for key, _ in self.settings}
        return tuple(key for key in KEYS[self.protocol] if key not in keys)

    def get(self, key: str) -> str | None:
        """Return the proven value of a key."""
        return dict(self.settings).get(key)

    def decode_options(self) -> DecodeOptions:
        """Options that decode all messages. Raises DecodeError when there are none."""
        if COMPRESSION in self.mixed:
            raise DecodeError(f"messages with several values of {COMPRESSION}; decode them apart", CODEC, 0)
        return DecodeOptions(
            protocol=self.protocol, compression=self.compression or "none", legacy=self.dialect == OFFICIAL
        )


def sniff(key: bytes | None, value: bytes | None) -> Sniffed:
    """Return the evidence of one message.

    Parameters:
        key: of the message; None for canal-json
        value: of the message, or the file of a claim check

    Raises DecodeError: bytes of neither protocol

    >>> value = b'{"id":0,"database":"","table":"","isDdl":false,"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> sniff(None, value).protocol
    'canal-json'"""
    if not key and value and value[:1] == b"{":
        try:
            inner = open_claim(value, _CLAIM)
        except DecodeError:
            return _message(key, value)
        return msgspec.structs.replace(_message(*inner), wrapped=True)
    return _message(key, value)


def remedy(key: bytes | None, value: bytes | None, options: DecodeOptions) -> str:
    """Return a hint for a message that `options` do not decode; "" if no options do."""
    if not value:
        return "a tombstone: no changefeed sends messages without a value"
    try:
        sniffed = sniff(key, value)
    except DecodeError:
        return ""
    seen = {"protocol": sniffed.protocol, COMPRESSION: sniffed.compression or "none"}
    configured = {"protocol": protocol_name(options.protocol), COMPRESSION: options.compression}
    differing = " and ".join(f"{name}={seen[name]}" for name in seen if seen[name] != configured[name])
    return f"a message of {differing}" if differing else ""


def sniff_all(messages: Iterable[tuple[bytes | None, bytes | None]]) -> Sniffed:
    """Return the evidence of all messages; undecodable ones are skipped.

    Parameters:
        messages: keys and values

    Raises DecodeError: none can be decoded, or they are of several protocols

    >>> value = b'{"id":0,"database":"","table":"","isDdl":false,"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> sniff_all([(None, b"?"), (None, value)]).settings
    (('enable-tidb-extension', 'true'), ('large-message-handle-compression', 'none'))"""
    merged: Sniffed | None = None
    first: DecodeError | None = None
    for key, value in messages:
        try:
            sniffed = sniff(key, value)
        except DecodeError as error:
            first = first or error
            continue
        merged = sniffed if merged is None else merge(merged, sniffed)
    if merged is None:
        raise first or DecodeError("no message to tell a protocol from", CODEC, 0)
    return merged


def merge(*sniffed: Sniffed) -> Sniffed:
    """Return the combined evidence. Raises DecodeError for several protocols."""
    return reduce(_merged, sniffed)


def _merged(first: Sniffed, second: Sniffed) -> Sniffed:
    if first.protocol != second.protocol:
        raise DecodeError(f"messages of {first.protocol} and of {second.protocol}; read them apart", CODEC, 0)
    left, right = dict(first.settings), dict(second.settings)
    against = {key for key in left.keys() & right.keys() if left[key] != right[key]}
    mixed = against | set(first.mixed) | set(second.mixed)
    settings = {key: value for key, value in (left | right).items() if key not in mixed}
    return Sniffed(first.protocol, _ordered(settings), tuple(sorted(mixed)), first.wrapped or second.wrapped)


def _message(key: bytes | None, value: bytes | None) -> Sniffed:
    protocol = "open-protocol" if (key or b"").startswith(_OPEN_VERSION) else "canal-json"
    bodies = _bodies(value or b"") if protocol == "open-protocol" else [value or b""]
    sample = next((body for body in bodies if body), b"")
    compression: str | None = None
    events: tuple[Event, ...] = ()
    fault: DecodeError | None = None
    decode, marks_of = _READERS[protocol]
    likely = ("none", "snappy") if sample.lstrip()[:1] in {b"", b"{"} else ("snappy", "none")
    for name in ("lz4", "snappy") if sample.startswith(_LZ4_MAGIC) else likely:
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
    keys = _bodies((key or b"")[len(_OPEN_VERSION) :])
    marks_of(marks, keys, bodies, compression, events)
    settings = {name: next(iter(values)) for name, values in marks.items() if len(values) == 1}
    return Sniffed(protocol, _ordered(settings), tuple(sorted(name for name in marks if len(marks[name]) > 1)))


def _bodies(buffer: bytes) -> list[bytes]:
    """The length-prefixed bytes of `buffer`, as far as they go."""
    bodies, offset = [], 0
    while offset + 8 <= len(buffer):
        end = offset + 8 + int.from_bytes(buffer[offset : offset + 8], "big")
        bodies.append(buffer[offset + 8 : end])
        offset = end
    return bodies


def _ordered(settings: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))
