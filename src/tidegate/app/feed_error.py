"""An error as a changefeed shows it: its code, the table and timestamp that it speaks of, and since when.

    MessageTooLarge("gt.t_big at commit_ts 470..")  ──►  {"code":"CDC:ErrMessageTooLarge","table":"gt.t_big",
    KvDecodeError(.., key 7480..5f72..)  ──snapshot──►    "commit_ts":470..,"since":"2026-01-31T10:00:00.000Z",..}

Errors say their place in words, which travel from task to driver; a key alone is looked up in the schema.

Source: `error` of a changefeed in TiCDC's OpenAPI v2.
"""

import re
from typing import Final

import msgspec

from tidegate.kv.number import decode_int
from tidegate.model.errors import KvDecodeError, TidegateError
from tidegate.schema.stored_snapshot import StoredSnapshot

__all__ = ["FeedError", "Place", "place_of"]

_AT: Final = re.compile(r"(\S+\.\S+?),? at commit_ts (\d+)")
_TS: Final = re.compile(r"commit_ts (\d+)")
_KEY: Final = re.compile(r"\bkey ([0-9a-f]{22,})\b")
_TABLE_PREFIX: Final = b"t"


class Place(msgspec.Struct, frozen=True):
    """Where an error happened, as far as it is known."""

    table: str = ""
    commit_ts: int = 0


class FeedError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a changefeed waits out, or what ended it. `next_try_s` is None when there is no next try."""

    code: str
    message: str
    since: str
    table: str = ""
    commit_ts: int = 0
    tries: int = 1
    next_try_s: float | None = None

    def __str__(self) -> str:
        where = f" in {self.table}" if self.table else ""
        where += f" at commit_ts {self.commit_ts}" if self.commit_ts else ""
        again = "" if self.next_try_s is None else f" (next try in {self.next_try_s:.0f} s)"
        return f"{self.code}{where} since {self.since}: {' '.join(self.message.split())}{again}"


def place_of(error: TidegateError, snapshot: StoredSnapshot) -> Place:
    """The table and timestamp that an error names, or whose key it shows."""
    text = str(error)
    found, ts = _AT.search(text), _TS.search(text)
    if found is not None:
        return Place(found[1].strip("'\",:"), int(found[2]))
    return Place(_table_of_key(error, text, snapshot), int(ts[1]) if ts else 0)


def _table_of_key(error: TidegateError, text: str, snapshot: StoredSnapshot) -> str:
    shown = _KEY.search(text)
    key = error.key if isinstance(error, KvDecodeError) else bytes.fromhex(shown[1]) if shown else b""
    if not key.startswith(_TABLE_PREFIX) or len(key) < 9:
        return ""
    version = snapshot.table_of(decode_int(key, 1)[0])
    return "" if version is None else f"{version.schema}.{version.stored.name.original}"
