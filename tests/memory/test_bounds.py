"""What bounds memory, without a broker: pieces of a fetch, the largest message, letters that stay on disk."""

from pathlib import Path

import pytest

from tests.memory.messages import Row, Writer, ts_at
from tests.source.kit import begin, land_batch
from tests.sources import topics_to_read
from tidegate.changelog.changelog import Changelog, portions
from tidegate.changelog.files import Footers, RowGroup
from tidegate.codec.options import DecodeOptions
from tidegate.engine.plan import Unit
from tidegate.model.table import TableName
from tidegate.sink.delta.sink import bins
from tidegate.source.kafka_fetch import CHUNK_BYTES
from tidegate.source.kafka_messages import TOO_LARGE, LandPlan, TopicMessage, TopicMessages, land_messages
from tidegate.source.kafka_options import RESPONSE_BYTES

OPEN = DecodeOptions(protocol="open-protocol")


def sized(*kib: int) -> list[TopicMessage]:
    """Messages of so many KiB."""
    return [TopicMessage(offset, b"", bytes(size << 10)) for offset, size in enumerate(kib)]


@pytest.mark.parametrize(
    ("kib", "lengths"),
    [
        ((1, 2, 3), [3]),
        ((10_000, 10_000, 10_000), [1, 1, 1]),
        ((10, 10_000, 10, 10), [1, 1, 2]),
        ((4_000, 4_000, 4_000), [2, 1]),
    ],
)
def test_a_bold_fetch_is_decoded_in_pieces(kib: tuple[int, ...], lengths: list[int]) -> None:
    """Messages keep their order, and no piece but a single message is larger than twice what a chunk should be."""
    chunk = sized(*kib)

    found = list(TopicMessages.of(chunk).pieces(2 * CHUNK_BYTES))

    assert [len(piece) for piece in found] == lengths
    assert [message for piece in found for message in piece] == chunk
    assert all(len(piece) == 1 or sum(len(one.value or b"") for one in piece) <= 2 * CHUNK_BYTES for piece in found)


def test_a_message_above_the_limit_is_not_decoded() -> None:
    """It is a letter with its place, its size and the way out; its neighbours land."""
    write = Writer("open")
    rows = [Row(1, 1, "a"), Row(2, 2, "b" * 5_000), Row(3, 3, "c")]
    frames = [frame for row in rows for frame in write.inserts(ts_at(10), "rows", [row])]
    chunk = [TopicMessage(offset, key, value) for offset, (key, value) in enumerate(frames)]

    landed = land_messages(chunk, LandPlan("shop", 4, OPEN, skip_dead=True, message_bytes=4_000))

    assert sum(table.num_rows for table in landed.tables.values()) == 2
    (letter,) = landed.letters
    assert (str(letter.position), letter.error_code) == ("topic shop partition 4 offset 1", TOO_LARGE)
    assert "above the limit of 4000" in letter.error
    assert "max-message-bytes" in letter.error
    assert letter.raw_value == frames[1][1]


def test_the_client_takes_what_the_reader_takes() -> None:
    """The client library refuses answers above a limit of its own; it is raised with the reader's."""
    topics = topics_to_read("broker:9092", ("shop",), OPEN)
    large = topics_to_read("broker:9092", ("shop",), OPEN, max_message_bytes=200 << 20)

    assert dict(topics.connection)["receive.message.max.bytes"] == str(RESPONSE_BYTES)
    assert int(dict(large.connection)["receive.message.max.bytes"]) > 200 << 20


def test_letters_stay_on_disk(tmp_path: Path) -> None:
    """Whoever looks for DDLs keeps no message of a dead letter; whoever asks for letters has them whole."""
    uri = str(tmp_path)
    land_batch(uri, begin(uri), {0: [TopicMessage(0, b"bad", b"worse")]}, skip_dead=True)
    changelog = Changelog(uri)
    changelog.refresh()

    assert changelog.ddls(0, 1 << 62) == []
    assert [letter.raw_value for control in changelog.controls().values() for letter in control.dead] == [None]
    assert [letter.raw_value for letter in changelog.dead_letters()] == [b"worse"]


@pytest.mark.parametrize(
    ("rows", "workers", "expected"),
    [
        ([1], None, [[1]]),
        ([3, 9, 5], None, [[9], [5], [3]]),
        ([50_000, 1, 90_000], None, [[90_000], [50_000], [1]]),
        (list(range(20)), None, [[19 - at, 11 - at, 3 - at] if at < 4 else [19 - at, 11 - at] for at in range(8)]),
        ([50_000, 1, 2], 2, [[50_000, 1], [2]]),
    ],
)
def test_small_tables_share_a_task(rows: list[int], workers: int | None, expected: list[list[int]]) -> None:
    """Many small units become few tasks; large ones stay alone, unless the user limits the tasks."""
    found = bins([Unit((), count) for count in rows], workers, 2)

    assert [[unit.rows for unit in one_bin] for one_bin in found] == expected


def test_footers_that_are_kept_are_bounded_by_row_groups(tmp_path: Path) -> None:
    """What the driver remembers of files does not grow with their number; what it forgot it reads again."""
    write, uri = Writer("open"), str(tmp_path)
    state = begin(uri)
    for offset in range(4):
        (frame,) = write.inserts(ts_at(10 + offset), "rows", [Row(offset, 1, "abcd")])
        state = land_batch(uri, state, {0: [TopicMessage(offset, *frame)]})
    changelog = Changelog(uri)
    changelog.refresh()
    paths = [file.path for file in changelog.files() if file.part == "rows"]
    footers = Footers(2)

    for path in [*paths, *paths]:
        (group,) = footers.of(uri, path)
        assert (group.path, group.rows) == (path, 1)
        assert footers.groups <= 2


def test_a_fold_reads_no_more_than_it_may() -> None:
    """Row groups of one table are read together, in order of time, up to a number of bytes; one alone may be larger."""
    a, b = TableName("mem", "a"), TableName("mem", "b")
    sizes = [(a, 5, 60), (b, 1, 10), (a, 1, 30), (a, 3, 60), (a, 4, 500), (b, 2, 10)]
    groups = [RowGroup("f", at, name, 1, ts, ts, size) for at, (name, ts, size) in enumerate(sizes)]

    found = [[(group.name.table, group.min_ts) for group in some] for some in portions(groups, 100)]

    assert found == [[("a", 1), ("a", 3)], [("a", 4)], [("a", 5)], [("b", 1), ("b", 2)]]
