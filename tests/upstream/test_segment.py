"""Segments hold the rows of their stretch, whole, or say that they are damaged."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from zlib import crc32

import msgspec
import pytest

from tests.counts import some
from tests.upstream.worlds import World, read_segments
from tidegate.kv.keys import IntHandle, record_key, table_span
from tidegate.model.errors import DecodeError, HistoryLost, StoreUnavailable
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.source.tidb_segment import MAGIC, decode_footer, decode_segment, encode_segment, in_order, segments
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.log_writer import LogWriter

TABLES = (45, 47, 301)


def written(world: World, directory: Path, *, rounds: int = 12) -> tuple[list[KvChange], int]:
    """Rows of three tables and of meta keys in some segments; what the log said of them, and to which ts."""
    random, expected = Random(1), []
    world.store.observers.append(expected.extend)
    writer = LogWriter(ChangeLog(world.store, world.oracle), directory, 0)
    for _ in range(rounds):
        txn = world.storage.begin()
        txn.put(b"mDB", b"%d" % random.randrange(99))
        for _ in range(3):
            key = record_key(random.choice(TABLES), IntHandle(random.randrange(5)))
            txn.delete(key) if random.random() < 0.2 else txn.put(key, random.randbytes(4))
        txn.commit()
        if random.random() < 0.4:
            writer.write()
    writer.write()
    return sorted(expected, key=in_order), writer.low


def test_read_by_span_and_time(tmp_path: Path) -> None:
    """Any span and stretch gives the rows of one-phase commits as the log said them, in commit order."""
    rows, high = written(World(), tmp_path)
    cuts = [0, rows[7].commit_ts, rows[20].commit_ts - 1, high]
    spans = [(b"", b""), (b"m", b"n"), *(table_span(table) for table in TABLES)]

    assert len(segments(tmp_path)) >= 3
    for start, end in spans:
        for low, top in [(low, top) for low in cuts for top in cuts if low < top]:
            wanted = [r for r in rows if low < r.commit_ts <= top and start <= r.key and (not end or r.key < end)]
            assert list(read_segments(tmp_path, low, top, start=start, end=end)) == wanted


def test_blocks_by_table(tmp_path: Path) -> None:
    """A reader of one table need not look at the bytes of another."""
    written(World(), tmp_path)
    _, _, path = segments(tmp_path)[0]
    data = bytearray(path.read_bytes())
    blocks = decode_footer(bytes(data)).blocks
    meta, table = blocks[0], next(block for block in blocks if block.meets(*table_span(TABLES[0])))
    data[meta.offset] ^= 1
    path.write_bytes(data)
    low, high, _ = segments(tmp_path)[0]

    assert len(list(read_segments(tmp_path, low, high, start=table.first_key, end=table.last_key + b"\0"))) > 0
    with pytest.raises(DecodeError, match="block"):
        list(read_segments(tmp_path, low, high))


def test_gaps(tmp_path: Path) -> None:
    """What the segments do not cover is an error, not an empty answer."""
    _, high = written(World(), tmp_path)
    with pytest.raises(HistoryLost):
        list(read_segments(tmp_path, 0, high + 1))
    segments(tmp_path)[1][2].unlink()
    with pytest.raises(HistoryLost, match="start above it"):
        list(read_segments(tmp_path, 0, high))
    with pytest.raises(HistoryLost):
        list(read_segments(tmp_path / "nothing", 0, 1))


def test_damage() -> None:
    """A segment with a byte changed or missing gives its rows, or a DecodeError, from its footer on."""
    row = KvChange(LogType.COMMITTED, b"t", 1, 2, KvOp.PUT, b"v", None)
    whole = encode_segment(1, 2, [row])
    footer_at = decode_footer(whole).blocks[0].offset + decode_footer(whole).blocks[0].size_bytes

    assert decode_footer(whole).high == 2
    for at in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_footer(whole[:at])
    for at in (*range(8), *range(footer_at, len(whole))):
        with pytest.raises(DecodeError):
            decode_footer(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


def lie(whole: bytes, random: Random) -> bytes:
    """A segment with some bytes of its block changed, or of the footer's numbers, under checksums that hold."""
    footer = decode_footer(whole)
    (block,) = footer.blocks
    data = bytearray(whole[block.offset : block.offset + block.size_bytes])
    for _ in range(random.choice((1, 1, 2, 8))):
        data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    changed = {"offset": block.offset, "size_bytes": len(data), "rows": block.rows}
    if random.random() < 0.2:
        changed[random.choice(list(changed))] = random.choice((-1, -(1 << 63), 0, 1, 7, 1 << 20, (1 << 63) - 1))
    block = msgspec.structs.replace(block, crc32=crc32(data), **changed)
    tail = msgspec.msgpack.encode(msgspec.structs.replace(footer, blocks=(block,)))
    ends = len(tail).to_bytes(4, "big") + crc32(tail).to_bytes(4, "big")
    return b"".join((MAGIC, data, tail, ends, MAGIC))


def read_lies(seed: int, count: int) -> None:
    """Reads segments that lie: rows, or a DecodeError."""
    random = Random(seed)
    rows = [
        KvChange(LogType.COMMITTED, record_key(45, IntHandle(at % 3)), at, at + 1, KvOp.PUT, random.randbytes(at), None)
        for at in range(40)
    ]
    whole = encode_segment(0, 99, rows)
    for _ in range(count):
        with suppress(DecodeError):
            decode_segment(lie(whole, random))


@pytest.mark.slow
def test_lies_with_a_right_checksum() -> None:
    """Whatever bytes stand under a checksum that holds, the process lives, and each is rows or a DecodeError."""
    program = f"from tests.upstream.test_segment import read_lies; read_lies(7, {some(400, 20_000)})"
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_goes_on(tmp_path: Path) -> None:
    """A second writer begins where the first stopped, and an empty stretch is written when asked for."""
    world = World()
    _, high = written(world, tmp_path)
    writer = LogWriter(ChangeLog(world.store, world.oracle), tmp_path, 0)
    assert writer.low == high
    assert writer.write() is None
    path = writer.write(empty=True)
    assert path is not None
    assert decode_footer(path.read_bytes()).blocks == ()
    committed = world.put(a=b"1")
    writer.write()
    writer.close()

    assert [row.commit_ts for row in read_segments(tmp_path, high, writer.low)] == [committed]


def test_no_room(tmp_path: Path) -> None:
    """A directory that takes no file is said in one line, and the rows come again with the next writer."""
    (tmp_path / "file").write_bytes(b"")
    world = World()
    log = ChangeLog(world.store, world.oracle)
    writer = LogWriter(log, tmp_path / "file", 0)
    committed = world.put(a=b"1")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        writer.write()
    again = LogWriter(log, tmp_path / "log", 0)
    again.write()

    assert [row.commit_ts for row in read_segments(tmp_path / "log", 0, again.low)] == [committed]


def test_blocks_by_time(tmp_path: Path) -> None:
    """A reader of a stretch need not look at blocks whose rows lie before or behind it."""
    rows = [KvChange(LogType.COMMITTED, record_key(45, IntHandle(n)), n, n + 1, KvOp.PUT, b"v") for n in range(9000)]
    path = tmp_path / f"{0:020d}-{9000:020d}.seg"
    path.write_bytes(encode_segment(0, 9000, rows))
    first, second, _ = decode_footer(path.read_bytes()).blocks
    data = bytearray(path.read_bytes())
    data[second.offset] ^= 1
    path.write_bytes(data)

    assert list(read_segments(tmp_path, 0, first.last_ts)) == rows[: first.rows]
    with pytest.raises(DecodeError, match="checksum of a block"):
        list(read_segments(tmp_path, 0, first.last_ts + 1))
