"""Versions of stored state: those that a release writes, and those that it refuses to read.

    {"state_version": 1, "checkpoint_ts": 470606747354005504, ..}        a document without the field is of version 1

A release that changes a kind of state incompatibly raises the kind's version.  A reader checks the version first and
changes nothing if it is higher than its own.  Additional members that older readers ignore need no new version.  A
document's version also covers what it refers to: files of a lake, rows of a database, keys of a Redis.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from tidegate.model.errors import StateTooNew

FIELD: Final = "state_version"
_FIRST: Final = 1
T = TypeVar("T")


class StateKind(Enum):
    """A kind of state, and the version of it that this release writes; older ones are read as well."""

    SNAPSHOT = "a lake's snapshot", 1
    CHANGELOG = "a changelog", 1
    RESOLUTION = "a decision about a message", 1
    CHECKPOINT = "a changefeed's checkpoint", 1
    DATABASE = "a changefeed's progress in its database", 1
    REDIS = "a changefeed's progress in its Redis", 1
    SEARCH = "a changefeed's progress beside its indexes", 1
    SERVER = "a server's directory", 1
    SAFE_POINT = "a changefeed's safe point in a change log", 1
    SEGMENT = "a segment of a change log", 2
    LOAD = "the plan of a load", 1
    CAPTURE = "the origin of a captured log", 1
    UPSTREAM = "a store of the embedded TiDB", 1

    def __init__(self, words: str, version: int) -> None:
        self.words, self.version = words, version


class _Stamp(msgspec.Struct):
    state_version: int = _FIRST


_STAMP: Final = msgspec.json.Decoder(_Stamp)


def check_version(kind: StateKind, version: int, where: str) -> None:
    """Raise StateTooNew for state of a version above the one that this release knows; `where` names file or row."""
    if version > kind.version:
        raise StateTooNew(
            f"{where} is {kind.words} of version {version}, and this release knows version {kind.version}: a newer "
            "release wrote it. Nothing was changed; run that release, or a newer one"
        )


def decode_state(kind: StateKind, body: bytes, type: type[T], where: str) -> T:  # noqa: A002  msgspec's own word
    """Return a document of state. Raises StateTooNew, and msgspec.DecodeError for invalid ones."""
    check_version(kind, _STAMP.decode(body).state_version, where)
    return msgspec.json.decode(body, type=type)


def encode_state(kind: StateKind, document: Any) -> bytes:
    """Return a document of state with its version as first member."""
    body = msgspec.json.encode(document)
    assert body.startswith(b"{"), "no object"
    return b'{"%s":%d%s%s' % (FIELD.encode(), kind.version, b"" if body == b"{}" else b",", body[1:])


def convert_state(kind: StateKind, document: Mapping[str, Any], type: type[T], where: str) -> T:  # noqa: A002
    """Like `decode_state`, for a decoded document; texts of numbers are numbers."""
    check_version(kind, msgspec.convert(document, _Stamp, strict=False).state_version, where)
    return msgspec.convert(document, type, strict=False)


def stamped(kind: StateKind, document: Any) -> dict[str, Any]:
    """Return the result of `encode_state` as a mapping."""
    return {FIELD: kind.version, **msgspec.to_builtins(document, str_keys=True)}
