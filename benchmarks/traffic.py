"""Messages as TiCDC would send them, made fast and always the same.

    insert_only(rows)            rows of one table, each new
    mixture(rows)                one table: 60 % UPDATE with the old row, 25 % INSERT, 15 % DELETE
    update_heavy(base, rows)     INSERT of `base` rows, then `rows` changes: 90 % UPDATE, 5 % INSERT, 5 % DELETE
    many_tables(rows, 20, 20)    the mixture over 20 tables, each of which gets a column more on the way

      changes --Writer of the protocol--> (partition, key, value) ...          `messages`

Tables are those of sysbench (id bigint, k int, c char(120), pad char(60)) in schema `bench`.  A row's content follows
from its id and its version alone, so every old row is exactly what the row was.  Ten rows share a commit_ts; a
partition is chosen by id; every `RESOLVE_ROWS` rows all partitions are told a resolved ts, and at the end once more.

Source: docs/formats/decoding.md; the recordings in tests/data.
"""

import random
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "PROTOCOLS",
    "SCHEMA",
    "TS_START",
    "Change",
    "insert_only",
    "many_tables",
    "messages",
    "mixture",
    "table_ddl",
    "update_heavy",
]

SCHEMA: Final = "bench"
PROTOCOLS: Final = ("open-protocol", "canal-json")
LOGICAL_BITS: Final = 18
TS_START: Final = 1_700_000_000_000 << LOGICAL_BITS
ROWS_PER_TRANSACTION: Final = 10
RESOLVE_ROWS: Final = 10_000
NEW_COLUMN: Final = "note"

TEXTS: Final = 20_011
"""Different (c, pad): far more than a compressor's window or a Parquet dictionary holds."""

Sent: TypeAlias = tuple[int, bytes | None, bytes]
"""Partition, key, value."""


class Change(NamedTuple):
    """One change: op is I, U, D, or A for ALTER TABLE and C for CREATE TABLE; `width` is 4 columns or 5."""

    op: str
    table: str
    id: int = 0
    version: int = 0
    width: int = 4


def insert_only(rows: int, table: str = "t01") -> Iterator[Change]:
    """New rows."""
    yield Change("C", table)
    for number in range(rows):
        yield Change("I", table, number)


def mixture(rows: int, table: str = "t01", seed: int = 1) -> Iterator[Change]:
    """What a busy table sees, from an empty one on."""
    yield Change("C", table)
    yield from _Churn(table, random.Random(seed), updates=0.60, deletes=0.15).run(rows)


def update_heavy(base: int, rows: int, table: str = "t01", seed: int = 2) -> Iterator[Change]:
    """A large table, then changes all over it; the base is `base + 1` changes long (CREATE TABLE first)."""
    yield from insert_only(base, table)
    yield from _Churn(table, random.Random(seed), updates=0.90, deletes=0.05, ids=base).run(rows)


def many_tables(rows: int, tables: int = 20, ddls: int = 20, seed: int = 3) -> Iterator[Change]:
    """Several tables side by side; `ddls` of them (one each) get a column, spread over the run."""
    names = [f"t{number:02d}" for number in range(1, tables + 1)]
    churns = [_Churn(name, random.Random(seed + at), updates=0.60, deletes=0.15) for at, name in enumerate(names)]
    for name in names:
        yield Change("C", name)
    every = rows // (ddls + 1)
    for number in range(rows):
        if every and number % every == every - 1 and number // every < min(ddls, tables):
            widened = churns[number // every]
            widened.width = 5
            yield Change("A", widened.table)
        yield churns[number * 7 % tables].next()


class _Churn:
    """One table's rows and what happens to them."""

    def __init__(self, table: str, chance: random.Random, *, updates: float, deletes: float, ids: int = 0) -> None:
        self.table, self.chance, self.width = table, chance, 4
        self.updates, self.deletes = updates, updates + deletes
        self.ids = list(range(ids))
        self.versions: dict[int, int] = {}
        self.fresh = ids

    def run(self, rows: int) -> Iterator[Change]:
        """Some changes."""
        for _ in range(rows):
            yield self.next()

    def next(self) -> Change:
        """The next change."""
        draw, ids = self.chance.random(), self.ids
        if draw >= self.deletes or not ids:
            self.fresh += 1
            ids.append(self.fresh - 1)
            return Change("I", self.table, self.fresh - 1, 0, self.width)
        index = int(self.chance.random() * len(ids))
        number = ids[index]
        version = self.versions.get(number, 0)
        if draw < self.updates:
            self.versions[number] = version + 1
            return Change("U", self.table, number, version + 1, self.width)
        ids[index] = ids[-1]
        ids.pop()
        return Change("D", self.table, number, version, self.width)


def table_ddl(change: Change) -> str:
    """The statement of a change of op C or A."""
    if change.op == "A":
        return f"ALTER TABLE `{change.table}` ADD COLUMN `{NEW_COLUMN}` varchar(32)"
    return (
        f"CREATE TABLE `{change.table}` (`id` bigint NOT NULL, `k` int NOT NULL DEFAULT 0, "
        "`c` char(120) NOT NULL DEFAULT '', `pad` char(60) NOT NULL DEFAULT '', PRIMARY KEY (`id`))"
    )


def messages(
    changes: Iterable[Change],
    protocol: str,
    *,
    partitions: int = 2,
    events_per_message: int = 1,
    ts_start: int = TS_START,
) -> Iterator[Sent]:
    """The topic's messages in sending order; `events_per_message` > 1 batches rows as Open Protocol can."""
    writer: _Open | _Canal = _Open(partitions, events_per_message) if protocol == "open-protocol" else _Canal()
    everywhere = range(partitions)
    rows, ts = 0, ts_start
    for change in changes:
        if change.op in "CA":
            ts += 1 << LOGICAL_BITS
            yield from writer.flush()
            for partition in everywhere if protocol == "open-protocol" else (0,):
                yield partition, *writer.ddl(change, ts)
            ts += 1 << LOGICAL_BITS
            continue
        yield from writer.row(change, ts, change.id % partitions)
        rows += 1
        if not rows % ROWS_PER_TRANSACTION:
            ts += 1 << LOGICAL_BITS
        if not rows % RESOLVE_ROWS:
            yield from writer.flush()
            for partition in everywhere:
                yield partition, *writer.resolved(ts - 1)
    yield from writer.flush()
    for partition in everywhere:
        yield partition, *writer.resolved(ts)


def _texts() -> list[tuple[str, str]]:
    chance = random.Random(0)
    groups = [f"{chance.randrange(10**11):011d}" for _ in range(4096)]
    return [("-".join(chance.choices(groups, k=10)), "-".join(chance.choices(groups, k=5))) for _ in range(TEXTS)]


_POOL: Final = _texts()


def _values(number: int, version: int) -> tuple[int, str, str]:
    """(k, c, pad) of one version of a row. Content after ADD COLUMN: `note` is the version as text."""
    c, pad = _POOL[(number * 7919 + version * 104_729) % TEXTS]
    return (number * 31 + version) % 10_000_000, c, pad


class _Open:
    """Open Protocol: frames of key JSON and value JSON."""

    def __init__(self, partitions: int, events: int) -> None:
        self._held: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
        self._events = events

    def row(self, change: Change, ts: int, partition: int) -> Iterator[Sent]:
        op, table, number, version, width = change
        key = b'{"ts":%d,"scm":"bench","tbl":"%s","rid":%d,"t":1}' % (ts, table.encode(), number)
        if op == "U":
            value = b'{"u":%s,"p":%s}' % (_open_image(number, version, width), _open_image(number, version - 1, width))
        else:
            value = b'{"%s":%s}' % (b"u" if op == "I" else b"d", _open_image(number, version, width))
        pending = self._held[partition]
        pending.append((key, value))
        if len(pending) >= self._events:
            yield partition, *_framed(pending)
            pending.clear()

    def flush(self) -> Iterator[Sent]:
        for partition, pending in enumerate(self._held):
            if pending:
                yield partition, *_framed(pending)
                pending.clear()

    @staticmethod
    def ddl(change: Change, ts: int) -> tuple[bytes, bytes]:
        kind = 5 if change.op == "A" else 3
        key = f'{{"ts":{ts},"scm":"{SCHEMA}","tbl":"{change.table}","t":2}}'
        return _framed([(key.encode(), f'{{"q":"{table_ddl(change)}","t":{kind}}}'.encode())])

    @staticmethod
    def resolved(ts: int) -> tuple[bytes, bytes]:
        return _framed([(b'{"ts":%d,"t":3}' % ts, b"")])


def _framed(events: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    pack = struct.Struct(">Q").pack
    keys = b"".join([pack(1), *[pack(len(key)) + key for key, _ in events]])
    return keys, b"".join([pack(len(value)) + value for _, value in events])


def _open_image(number: int, version: int, width: int) -> bytes:
    k, c, pad = _values(number, version)
    more = f',"note":{{"t":15,"f":64,"v":"{version}"}}' if width > 4 else ""
    return (
        f'{{"c":{{"t":254,"f":0,"v":"{c}"}},"id":{{"t":8,"h":true,"f":11,"v":{number}}},'
        f'"k":{{"t":3,"f":33,"v":{k}}}{more},"pad":{{"t":254,"f":0,"v":"{pad}"}}}}'
    ).encode()


class _Canal:
    """Canal-JSON with the TiDB extension."""

    OPS: Final = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}
    TYPES: Final = {
        4: '"sqlType":{"id":-5,"k":4,"c":1,"pad":1},"mysqlType":{"id":"bigint","k":"int","c":"char","pad":"char"}',
        5: '"sqlType":{"id":-5,"k":4,"c":1,"pad":1,"note":12},'
        '"mysqlType":{"id":"bigint","k":"int","c":"char","pad":"char","note":"varchar"}',
    }

    def row(self, change: Change, ts: int, partition: int) -> Iterator[Sent]:
        op, table, number, version, width = change
        ms = ts >> LOGICAL_BITS
        old = f"[{_canal_image(number, version - 1, width)}]" if op == "U" else "null"
        value = (
            f'{{"id":0,"database":"{SCHEMA}","table":"{table}","pkNames":["id"],"isDdl":false,"type":"{self.OPS[op]}",'
            f'"es":{ms},"ts":{ms + 1},"sql":"",{self.TYPES[width]},"old":{old},'
            f'"data":[{_canal_image(number, version, width)}],"_tidb":{{"commitTs":{ts}}}}}'
        )
        yield partition, None, value.encode()

    def flush(self) -> Iterator[Sent]:
        return iter(())

    @staticmethod
    def ddl(change: Change, ts: int) -> tuple[None, bytes]:
        ms, kind = ts >> LOGICAL_BITS, "ALTER" if change.op == "A" else "CREATE"
        value = (
            f'{{"id":0,"database":"{SCHEMA}","table":"{change.table}","pkNames":null,"isDdl":true,"type":"{kind}",'
            f'"es":{ms},"ts":{ms + 1},"sql":"{table_ddl(change)}","sqlType":null,"mysqlType":null,'
            f'"old":null,"data":null,"_tidb":{{"commitTs":{ts}}}}}'
        )
        return None, value.encode()

    @staticmethod
    def resolved(ts: int) -> tuple[None, bytes]:
        ms = ts >> LOGICAL_BITS
        value = (
            f'{{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK","es":{ms},'
            f'"ts":{ms + 1},"sql":"","sqlType":null,"mysqlType":null,"old":null,"data":null,'
            f'"_tidb":{{"watermarkTs":{ts}}}}}'
        )
        return None, value.encode()


def _canal_image(number: int, version: int, width: int) -> str:
    k, c, pad = _values(number, version)
    more = f',"note":"{version}"' if width > 4 else ""
    return f'{{"id":"{number}","k":"{k}","c":"{c}","pad":"{pad}"{more}}}'
