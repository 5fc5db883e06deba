"""The rows of a table as Redis has them: keys by SCAN, their values, and what those say."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.model.table import TableInfo
from tidegate.sink.documents.values import Row
from tidegate.sink.redis.forms import FORMS
from tidegate.sink.redis.keys import LOOKUP, parse_template, tombstone_key
from tidegate.sink.redis.options import Mode
from tidegate.sink.redis.scripts import OPENING
from tidegate.sink.redis.servers import RedisServers
from tidegate.sink.redis.version import FIELD, VERSION_BYTES
from tidegate.sink.redis.write import LOOKUP_FIELDS


class StoredRow(NamedTuple):
    """A row under its key."""

    key: bytes
    version: str
    values: Row


def keys_of(servers: RedisServers, table: TableInfo) -> Iterator[list[bytes]]:
    """Return the keys under the prefix of a table that are no look-ups, some at a time; one may come twice."""
    template = parse_template(servers.options.template)
    lookups = template.prefix(table.name) + LOOKUP
    for keys in servers.scan(template.pattern(table.name)):
        yield [key for key in dict.fromkeys(keys) if not key.startswith(lookups)]


def rows_of(servers: RedisServers, table: TableInfo) -> Iterator[list[StoredRow]]:
    """Return the rows of a table, some at a time. Keys under its prefix that hold no version are not the feed's."""
    mode = servers.options.mode
    for once in keys_of(servers, table):
        held = servers.read(once, _ASK[mode])
        read = FORMS[mode].read
        yield [
            StoredRow(key, version, read(table, value))
            for key, value in zip(once, held, strict=True)
            if value and (version := _VERSION[mode](value))
        ]


def owners_of(servers: RedisServers, lookups: Sequence[bytes]) -> list[bytes | None]:
    """Return the key of the row that each look-up names; None where there is none."""
    if servers.options.mode == "hash":
        return servers.read(lookups, lambda pipeline, key: pipeline.hget(key, LOOKUP_FIELDS[0]))
    held = servers.read(lookups, _ask_json)
    return [None if one is None else str(msgspec.json.decode(one)[LOOKUP_FIELDS[0]]).encode() for one in held]


def rows_at(servers: RedisServers, table: TableInfo, keys: Sequence[bytes]) -> list[Row | None]:
    """Return the rows under keys; None where there is none."""
    mode = servers.options.mode
    held = servers.read(keys, _ASK[mode])
    return [FORMS[mode].read(table, value) if value and _VERSION[mode](value) else None for value in held]


def versions_of(servers: RedisServers, keys: Sequence[bytes]) -> list[str]:
    """Return the versions of keys, or of their tombstones; empty where there is neither."""
    mode = servers.options.mode
    rows = servers.read(keys, _ASK[mode])
    gone = servers.read([tombstone_key(key) for key in keys], _ask_json)
    return [
        max((_VERSION[mode](row) if row else ""), (left or b"").decode()) for row, left in zip(rows, gone, strict=True)
    ]


def _hash_version(held: dict[bytes, bytes]) -> str:
    return held.get(FIELD.encode(), b"").decode()


def _json_version(held: bytes) -> str:
    start = len(OPENING)
    return held[start : start + VERSION_BYTES].decode() if held.startswith(OPENING.encode()) else ""


def _ask_hash(pipeline: Any, key: bytes) -> object:
    return pipeline.hgetall(key)


def _ask_json(pipeline: Any, key: bytes) -> object:
    return pipeline.get(key)


_ASK: Final[Mapping[Mode, Callable[[Any, bytes], object]]] = {"hash": _ask_hash, "json": _ask_json}
_VERSION: Final[Mapping[Mode, Callable[[Any], str]]] = {"hash": _hash_version, "json": _json_version}
