"""Whatever strangers send to decoders, segments, DDL parser, MySQL port and claim reader is read or refused, in bounds.

CASES of each in the normal tests     SOAK_S seconds of each in `make soak`     TIDEGATE_SEED=n makes other ones
"""

import os
import random
import struct
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.counts import SOAK
from tests.fuzz import harness
from tests.fuzz.harness import MEMORY_BYTES, run
from tests.fuzz.mutation import mutated
from tests.golden.test_totality import agreeing, corpus, damaged
from tests.upstream.server.hostile import GOOD, Hostile
from tidegate.codec import DecodeOptions
from tidegate.kv.keys import IntHandle, record_key
from tidegate.model.errors import DecodeError, SchemaError, SqlError, UnsupportedError
from tidegate.model.event import Ddl
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.source.large import ClaimReader
from tidegate.source.tidb_segment import decode_footer, decode_segment, encode_segment
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream

SEED = int(os.environ.get("TIDEGATE_SEED", "20260101"))
pytestmark = pytest.mark.slow

SOAK_S = float(os.environ.get("TIDEGATE_FUZZ_S", "300"))
CASES = 150


class Target(NamedTuple):
    """What is tried: how a case is made, what reads it, and which errors are its refusals."""

    make: Callable[[random.Random], Any]
    read: Callable[[Any], object]
    refused: tuple[type[Exception], ...] = (DecodeError,)


def messages(chance: random.Random) -> tuple[list[tuple[bytes, bytes]], DecodeOptions, random.Random]:
    """Damaged recordings of one configuration."""
    options, recorded = chance.choice(corpus())
    return [damaged(*chance.choice(recorded), options, chance) for _ in range(10)], options, chance


@cache
def segment() -> bytes:
    """A segment of rows of three tables."""
    rows = [
        KvChange(LogType.COMMITTED, record_key(40 + n % 3, IntHandle(n)), n, n + 1, KvOp.PUT, b"value" * n, b"old")
        for n in range(60)
    ]
    return encode_segment(0, 100, rows)


def changed_segment(chance: random.Random) -> bytes:
    """The segment with bytes changed, mostly those of a block and with right checksums."""
    whole = segment()
    if chance.random() < 0.2:
        return mutated(whole, chance)
    footer = decode_footer(whole)
    parts, blocks, offset = [whole[:8]], [], 8
    for block in footer.blocks:
        data = whole[block.offset : block.offset + block.size_bytes]
        if chance.random() < 0.6:
            data = mutated(data, chance) if chance.random() < 0.5 else poked(data, chance)
        blocks.append(msgspec.structs.replace(block, offset=offset, size_bytes=len(data), crc32=zlib.crc32(data)))
        parts.append(data)
        offset += len(data)
    packed = msgspec.msgpack.encode(msgspec.structs.replace(footer, blocks=tuple(blocks)))
    tail = len(packed).to_bytes(4, "big") + zlib.crc32(packed).to_bytes(4, "big")
    return b"".join((*parts, packed, tail, whole[:8]))


def poked(data: bytes, chance: random.Random) -> bytes:
    """`data` with a few aligned integers replaced: lengths and offsets are such."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        value = chance.choice((-1, 0, 1, 7, 1 << 20, (1 << 31) - 1, -(1 << 31)))
        struct.pack_into("<i", changed, 4 * chance.randrange(len(changed) // 4), value)
    return bytes(changed)


WORDS = tuple(
    """create table alter drop add column ( ) , ; . ' " ` /*T! */ /* -- # int primary key partition by range values less
    than in t a b 1 1.5 = + - 'x' `n` default null not exists if rename to index on after first enum set x'0 0x b'1'
    _utf8mb4 references check as select comment charset collate modify change truncate exchange with \\ @ { } [ ] hash
    partitions unique coalesce reorganize into remove partitioning recover database flashback 9e9 /*T![ttl] é""".split()  # noqa: SIM905
)
TABLE = "create table t (a int primary key, b varchar(9) comment 'it''s', key (b)) partition by hash (a) partitions 3"


def ddl(chance: random.Random) -> str:
    """Words in any order, some of them very often, or a statement with bytes changed."""
    if chance.random() < 0.3:
        return mutated(TABLE.replace("table t", "table u").encode(), chance).decode("utf-8", "replace")
    runs = [[chance.choice(WORDS)] * chance.choice((1,) * 9 + (5000,)) for _ in range(chance.randint(1, 20))]
    words = [word for same in runs for word in same]
    start = chance.choice(("", "create table t (a int, ", "alter table t ", "rename table ", "drop "))
    return start + chance.choice(("", " ")).join(words)


@cache
def known() -> SchemaState:
    """The state with one table."""
    return apply_ddl(SchemaState(), Ddl(schema="d", table="t", query=TABLE, commit_ts=1 << 58), 0)[0]


def follow(query: str) -> None:
    """Apply a DDL; what follows is a state that can be stored."""
    state, effects = apply_ddl(known(), Ddl(schema="d", table="t", query=query, commit_ts=(1 << 58) + 1), 0)
    assert effects
    assert SchemaState.from_json(state.to_json()) == state


@cache
def port() -> int:
    """The port of an embedded TiDB of this process."""
    return Upstream(Cluster.open(None)).start().ports["n1"]


STATEMENTS = (
    "create database if not exists d",
    "create table if not exists d.t (a int primary key, b varchar(9), c json, e enum('x', 'y'), f decimal(9, 2))",
    "replace into d.t values (1, 'é', '{\"a\": [1, null]}', 'x', -1.50)",
    "select a, b, c->'$.a', e + 0, f * 2 from d.t where a in (1, 2) order by b limit 3",
    "select * from information_schema.columns where table_schema = 'd'",
    "set names gbk",
    "begin; update d.t set b = concat(b, '!') where a = 1; rollback",
    "show create table d.t",
)
COMMANDS = (
    *(b"\x03" + statement.encode() for statement in STATEMENTS),
    *(b"\x16select a from d.t where b = ?", b"\x16replace into d.t values (?, ?, ?, ?, ?)"),
    *(b"\x02d", b"\x04t\0", b"\x0e", b"\x1f", b"\x0d", b"\x09"),
    *(b"\x17\1\0\0\0\0\1\0\0\0", b"\x18\1\0\0\0\0\0x", b"\x1a\1\0\0\0", b"\x1b\0\0"),
    *(b"\x19\1\0\0\0", b"\x1c\1\0\0\0\1\0\0\0", b"\x12\0\0\0\0", b"\x11ann\0\0d\0\x2d\0mysql_native_password\0"),
)


def conversation(chance: random.Random) -> tuple[bytes, list[bytes]]:
    """A login and commands, each changed or not; the login mostly when no command is."""
    if chance.random() < 0.5:
        return mutated(GOOD, chance), []
    commands = [chance.choice(COMMANDS) for _ in range(chance.randint(1, 6))]
    return GOOD, [mutated(one, chance) if chance.random() < 0.7 else one for one in commands]


def talk(said: tuple[bytes, list[bytes]]) -> None:
    """Say it all, hear the end, and see that the next client is served."""
    login, commands = said
    with Hostile(port()) as hostile:
        hostile.logged_in(login)
        with suppress(ConnectionError):  # it may be closed already
            for command in commands:
                hostile.send(command)
        hostile.shut()
        hostile.rest()
    with Hostile(port()) as other:
        assert other.logged_in()[:1] == b"\0"
        other.send(b"\x0e")
        assert other.read()[:1] == b"\0"


@cache
def storage() -> Path:
    """A directory of claim checks with a file, a loop, a directory and a link that leads out of it."""
    place = Path(tempfile.mkdtemp(prefix="tidegate-fuzz-"))
    (place / "good").write_bytes(b'{"key":null,"value":"e30="}')
    (place / "large").write_bytes(bytes(5000))
    (place / "loop").symlink_to(place / "loop")
    (place / "out").symlink_to("/etc/hostname")
    (place / "folder").mkdir()
    return place


FILES = ("good", "large", "loop", "out", "folder", "", ".", "a" * 300, "\udcff", "x\ny")


def locations(chance: random.Random) -> list[str]:
    """Addresses of files that are there, are not, or cannot be."""
    names = [chance.choice(FILES).encode("utf-8", "surrogateescape") for _ in range(3)]
    changed = [mutated(name, chance) if chance.random() < 0.4 else name for name in names]
    places = ("", "file:///b/", "s3://b/c/", "../../", "\\")
    return [chance.choice(places) + name.decode("utf-8", "surrogateescape") for name in changed]


def fetched(asked: list[str]) -> None:
    """Each is a body or an error of ours, and none of them is long."""
    bodies = list(ClaimReader(storage().as_uri(), 4096).bodies(asked))
    assert len(bodies) == len(asked)
    assert all(len(body) <= 4096 for body in bodies if isinstance(body, bytes))


TARGETS = {
    "decoders": Target(messages, lambda case: agreeing(*case)),
    "segments": Target(changed_segment, decode_segment),
    "ddl": Target(ddl, follow, (SqlError, SchemaError, UnsupportedError)),
    "port": Target(conversation, talk, ()),
    "claims": Target(locations, fetched, ()),
}


def check(name: str, **limits: float) -> None:
    """No case goes wrong, and not all are refused."""
    target = TARGETS[name]
    found = run(target.make, target.read, target.refused, seed=SEED, **limits)  # type: ignore[arg-type]
    assert not found.failure, found.failure
    assert found.tried > 0
    assert found.read > 0


@pytest.mark.parametrize("name", TARGETS)
def test_some_junk(name: str) -> None:
    """Some cases of each kind."""
    check(name, cases=CASES)


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="by time, in the soak")
@pytest.mark.parametrize("name", TARGETS)
def test_junk_by_time(name: str) -> None:
    """Others of them, for SOAK_S seconds each."""
    check(name, seconds=SOAK_S, first=CASES)


def hungry(_case: int) -> bytearray:
    return bytearray(2 * MEMORY_BYTES)


def endless(_case: int) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (hungry, "MemoryError"),
        (endless, "ended with -27"),
        (lambda _case: os.abort(), "ended with -6"),
        (lambda _case: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_is_told(read: Callable[[int], object], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that takes too much memory or time, kills its process or fails is named by seed and number."""
    monkeypatch.setattr(harness, "CASE_S", 0.5)
    found = run(lambda chance: chance.randrange(9), read, (ValueError,), seed=7, cases=3, first=5)
    assert "seed 7, case 5" in found.failure
    assert said in found.failure


def test_cases_are_counted() -> None:
    """Cases that are read and cases that are refused are told apart; time ends them, too."""
    assert run(lambda chance: chance.randrange(9), lambda _case: 1, (), seed=7, cases=3) == (3, 3, "")
    assert run(lambda _chance: "x", int, (ValueError,), seed=7, cases=3) == (3, 0, "")
    assert run(lambda _chance: "x", int, (ValueError,), seed=7, seconds=0.2).tried > 0
