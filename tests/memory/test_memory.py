"""A feed's processes stay within the limits of docs/limits.md, whatever the topic is like, and nothing is lost."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.counts import some
from tests.e2e.rig import cli
from tests.memory.limits import FLAT, TABLE, beyond
from tests.memory.messages import LONGEST, Row, ts_at
from tests.memory.rig import PARTITIONS, Topic, stored, tally, watched
from tidegate.lakes.lake import Lake
from tidegate.source.kafka_options import MESSAGE_BYTES


def test_limits_stand_in_the_docs() -> None:
    """The table of docs/limits.md is the one that the tests hold."""
    lines = (Path(__file__).parents[2] / "docs" / "limits.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]

    assert {row[0]: row[1] for row in cells if row[0] in TABLE} == TABLE


def held_rows(partition: int) -> Iterator[tuple[int, list[Row]]]:
    """Half a million rows in transactions of 50, for partition 1 or 2."""
    for number in range(10_000):
        first = (number * 2 + partition - 1) * 50
        yield ts_at(10 + number), [Row(first + at, at, f"{first:064d}" * 5) for at in range(50)]


@pytest.mark.more
@pytest.mark.slow
def test_a_watermark_held_back(bootstrap: str, tmp_path: Path) -> None:
    """While one partition is silent a million rows of the others wait on disk; then they come in several rounds."""
    topic, lake = Topic.begun(bootstrap, "held", "open", ["rows"]), tmp_path / "lake"
    for partition in (1, 2):
        held = held_rows(partition)
        topic.send(partition, (m for ts, group in held for m in topic.writer.inserts(ts, "rows", group)))
        topic.resolve(partition)

    with watched(topic.words(lake), tmp_path / "home") as (feed, sampler):
        landed = feed.reach(lambda report: report["rows_landed"] == 1_000_000)
        time.sleep(1)
        before = sampler.now
        time.sleep(4)
        after = sampler.now
        assert landed["rows"] == 0
        assert [one.checkpoint_ts for one in Lake(str(lake)).history()][-1] == ts_at(2)
        assert abs(after.driver - before.driver) < FLAT
        assert abs(after.jvm - before.jvm) < FLAT
        topic.resolve(0)
        status, report = feed.end()

    assert (status, report["rows"]) == (0, 1_000_000)
    rounds = [one.checkpoint_ts for one in Lake(str(lake)).history() if one.checkpoint_ts > ts_at(2)]
    assert len(rounds) >= 2
    assert stored(lake, "rows") == tally(row for number in (1, 2) for _, group in held_rows(number) for row in group)
    assert beyond(sampler.peaks) == {}, sampler.peaks


@pytest.mark.slow
@pytest.mark.more
def test_many_tables(bootstrap: str, tmp_path: Path) -> None:
    """200 tables, each changed in every transaction of a partition's share, cost the driver no more than one."""
    tables, turns = [f"t{number}" for number in range(200)], some(5, 20)
    topic, lake = Topic.begun(bootstrap, "tables", "canal", tables), tmp_path / "lake"
    rows = [[Row(turn * 50 + at, at, f"{turn:064d}") for at in range(50)] for turn in range(turns)]
    for partition in range(PARTITIONS):
        mine = [(turn, one) for turn in range(turns) for one in tables[partition::PARTITIONS]]
        topic.send(partition, (m for at, one in mine for m in topic.writer.inserts(ts_at(10 + at), one, rows[at])))
        topic.resolve(partition)

    with watched(topic.words(lake), tmp_path / "home") as (feed, sampler):
        status, report = feed.end()

    assert (status, report["rows"]) == (0, len(tables) * turns * 50)
    every = tally(row for turn in rows for row in turn)
    assert {name: stored(lake, name) for name in tables} == dict.fromkeys(tables, every)
    assert beyond(sampler.peaks) == {}, sampler.peaks


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["open", "canal"])
def test_rows_of_ten_megabytes(bootstrap: str, tmp_path: Path, kind: str) -> None:
    """Messages of TiCDC's default limit, many in a row, cost one worker some multiple of a few of them."""
    topic, lake = Topic.begun(bootstrap, f"wide-{kind}", kind, ["rows"]), tmp_path / "lake"
    rows = [Row(number, number, chr(97 + number % 26) * LONGEST[kind]) for number in range(42)]
    rows[1], new = (rows[1]._replace(note=letter * (LONGEST[kind] // 2)) for letter in "bz")
    for partition in range(PARTITIONS):
        mine = range(partition, len(rows), PARTITIONS)
        topic.send(partition, (m for at in mine for m in topic.writer.inserts(ts_at(10 + at), "rows", [rows[at]])))
    topic.send(0, [topic.writer.delete(ts_at(100), "rows", rows[0])])
    topic.send(1, [topic.writer.update(ts_at(101), "rows", rows[1], new)])
    topic.resolve(*range(PARTITIONS))

    with watched(topic.words(lake), tmp_path / "home") as (feed, sampler):
        status, _ = feed.end()

    assert status == 0, feed.stderr.read_text()[-2_000:]
    assert stored(lake, "rows") == tally([new, *rows[2:]])
    assert beyond(sampler.peaks) == {}, sampler.peaks


@pytest.mark.slow
@pytest.mark.more
def test_a_row_above_the_limit(bootstrap: str, tmp_path: Path) -> None:
    """A message above what is read into memory ends the feed with its place and the ways out; skipped, it is kept."""
    topic, lake = Topic.begun(bootstrap, "beyond", "open", ["rows"]), tmp_path / "lake"
    rows = [Row(1, 1, "a"), Row(2, 2, "b" * MESSAGE_BYTES), Row(3, 3, "c")]
    for at, row in enumerate(rows):
        topic.send(0, topic.writer.inserts(ts_at(10 + at), "rows", [row]))
    topic.resolve(*range(PARTITIONS))

    with watched(topic.words(lake), tmp_path / "halted") as (feed, sampler):
        status, _ = feed.end()
    assert status == 1
    said = feed.stderr.read_text()
    for word in ("topic beyond partition 0 offset 4", "CDC:ErrMessageTooLarge", "max-message-bytes", "dlq skip"):
        assert word in said, said[-2_000:]
    assert beyond(sampler.peaks) == {}, sampler.peaks

    with watched(topic.words(lake, dead_letter="skip"), tmp_path / "skipped") as (feed, sampler):
        status, report = feed.end()
    assert (status, report["dead_letters"]) == (0, 1)
    assert stored(lake, "rows") == tally([rows[0], rows[2]])
    listed = cli("dlq", "list", str(lake), "--json")
    assert "CDC:ErrMessageTooLarge" in listed.stdout
    assert beyond(sampler.peaks) == {}, sampler.peaks


@pytest.mark.slow
@pytest.mark.more
def test_a_long_transaction(bootstrap: str, tmp_path: Path) -> None:
    """Half a million rows of one commit_ts, spread over the partitions, appear in one snapshot."""
    topic, lake = Topic.begun(bootstrap, "long", "canal", ["rows"]), tmp_path / "lake"
    rows = [Row(number, number % 100, f"{number:064d}") for number in range(500_000)]
    for partition in range(PARTITIONS):
        topic.send(partition, topic.writer.inserts(ts_at(10), "rows", rows[partition::PARTITIONS]))
        topic.resolve(partition)

    with watched(topic.words(lake), tmp_path / "home") as (feed, sampler):
        status, _ = feed.end()

    assert status == 0
    assert stored(lake, "rows") == tally(rows)
    assert beyond(sampler.peaks) == {}, sampler.peaks
