"""Entries into keys: what a script is handed, and in how many calls.

    entries ─► by slot ─► calls of batch_rows ─► packets of PACKET_BYTES ─► the servers

On one server all keys are of one slot.  In a cluster a call has the entries of one of 16384.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.sink.redis.forms import RawBytes
from tidegate.sink.redis.keys import tombstone_key
from tidegate.sink.redis.scripts import WRITE
from tidegate.sink.redis.servers import RedisServers, ScriptCall

PACKET_BYTES: Final = 4 << 20
"""About as much is on its way before answers are read."""


ROW, LOOKUP = 0, 1
LOOKUP_FIELDS: Final = ("key",)
"""The field of a look-up: its row's key."""


class KeyEntry(NamedTuple):
    """What a key is to hold from `version` on; `fields` None: nothing.

    `kind` is ROW or LOOKUP.  Entries with one `beside` that follow each other, and lie in one slot, are of one call."""

    key: bytes
    version: str
    fields: list[Any] | None
    kind: int = ROW
    beside: bytes = b""


def write(servers: RedisServers, names: Sequence[str], entries: Iterable[KeyEntry], channel: bytes = b"") -> int:
    """Write entries, those of a key in their order; return how many bytes were sent. Rows that change are announced on
    the channel, if there is one."""
    sent = 0
    packet: list[ScriptCall] = []
    size = 0
    for call, call_bytes in _calls(servers, names, list(entries), channel):
        if packet and size + call_bytes > PACKET_BYTES:
            servers.call(packet)
            sent, packet, size = sent + size, [], 0
        packet.append(call)
        size += call_bytes
    if packet:
        servers.call(packet)
    return sent + size


def _calls(
    servers: RedisServers, names: Sequence[str], entries: list[KeyEntry], channel: bytes
) -> Iterator[tuple[ScriptCall, int]]:
    options = servers.options
    script, ttl_ms = WRITE[options.mode], max(1, round(options.tombstone_s * 1000))
    groups: dict[int, list[KeyEntry]] = {}
    for slot, entry in zip(servers.slots_of([entry.key for entry in entries]), entries, strict=True):
        groups.setdefault(slot, []).append(entry)
    for group in groups.values():
        for part in _parts(group, options.batch_rows):
            keys = [name for entry in part for name in (entry.key, tombstone_key(entry.key))]
            given: list[Any] = [b"", ttl_ms, channel]
            told = [(entry.version, entry.fields, entry.kind) for entry in part]
            given[0] = _encoded(((names, LOOKUP_FIELDS), told), given)
            yield ScriptCall(script, keys, given), sum(map(len, (given[0], *keys, *given[3:])))


def _parts(group: list[KeyEntry], most: int) -> Iterator[list[KeyEntry]]:
    """The entries of a call each: `most` of them, and those beside the last one."""
    start = 0
    while start < len(group):
        end = min(start + most, len(group))
        while end < len(group) and group[end].beside and group[end].beside == group[end - 1].beside:
            end += 1
        yield group[start:end]
        start = end


def _encoded(told: object, given: list[Any]) -> bytes:
    """Msgpack with the place among `given`, from 1, for each RawBytes."""

    def place(blob: RawBytes) -> int:
        given.append(blob.value)
        return len(given)

    return msgspec.msgpack.encode(told, enc_hook=place)
