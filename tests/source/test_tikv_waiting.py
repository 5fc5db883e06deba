"""Rows that wait for the frontier: each comes once, in commit order, in pieces whose ends cut no timestamp."""

import random
from pathlib import Path

import pytest

from tidegate.kv.change_columns import change_batch, changes_of
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.source import tikv_capture
from tidegate.source.tidb_segment import in_order
from tidegate.source.tikv_capture import Waiting


def change(chance: random.Random, commit_ts: int) -> KvChange:
    """A row of any kind."""
    op = chance.choice((KvOp.PUT, KvOp.DELETE))
    old, value = chance.choice((None, b"old")), b"new" * chance.randint(1, 9) if op is KvOp.PUT else None
    key = b"t%d" % chance.randint(1, 30)
    return KvChange(LogType.COMMITTED, key, commit_ts - 1, commit_ts, op, value, old)


@pytest.mark.parametrize("spill_bytes", [1 << 30, 2_000, 1])
def test_rows_come_once_and_in_order(spill_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of them lies in files, and however often a row is received."""
    monkeypatch.setattr(tikv_capture, "SEGMENT_ROWS", 7)
    chance, waiting = random.Random(5), Waiting(tmp_path, spill_bytes)
    rows: dict[tuple[int, bytes], KvChange] = {}
    low, taken = 0, list[KvChange]()
    for high in (40, 41, 300, 1000):
        for _ in range(60):
            row = change(chance, chance.randint(low + 1, 1000))
            row = rows.setdefault((row.commit_ts, row.key), row)
            waiting.add(change_batch([row] * chance.randint(1, 2)))
        ends = [low]
        for end, piece in waiting.take(low, high):
            if high < 1000:
                row = change(chance, chance.randint(high + 1, 1000))
                waiting.add(change_batch([rows.setdefault((row.commit_ts, row.key), row)]))
            found = changes_of(piece)
            assert all(ends[-1] < row.commit_ts <= end for row in found)
            taken += found
            ends.append(end)
        assert ends[-1] == high
        assert ends == sorted(set(ends))
        low = high
    assert taken == sorted(rows.values(), key=in_order)
    assert not list(tmp_path.iterdir())


def test_pieces_of_wide_rows_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is merged at once is bounded by bytes, however many rows that is."""
    monkeypatch.setattr(tikv_capture, "SEGMENT_BYTES", 40_000)
    for width in (10, 10_000):
        waiting = Waiting(tmp_path)
        for ts in range(1, 101):
            waiting.add(change_batch([KvChange(LogType.COMMITTED, b"t", ts, ts, KvOp.PUT, b"x" * width, None)]))
        sizes = [piece.num_rows for _, piece in waiting.take(0, 100)]
        assert sum(sizes) == 100
        assert max(sizes) <= (4 if width > 10 else 100)
        assert (len(sizes) > 20) == (width > 10)
