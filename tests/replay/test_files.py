"""The recorded shop goes into files of a storage sink and out of them into a lake, which equals TiDB: killed at every
place on both sides, by columns and by lines, in both protocols."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, count, zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.counts import some
from tests.failpoint import FEED_FAILPOINTS, FILES_FAILPOINTS, STORAGE_FAILPOINTS, armed
from tests.recorded import RecordedLanding, partitions_of
from tests.replay.test_workload import PROTOCOLS, TRUTHS, WORKLOAD, differences
from tests.source.storage.kit import Polled
from tests.sources import files_to_read
from tidegate.changelog.changelog import Changelog, changelog_uri, commit_batch
from tidegate.changelog.source import LandedSource
from tidegate.codec import decode
from tidegate.codec.csv import CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import decode_layout, encode_row
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.model.event import Ddl, Field, Resolved
from tidegate.model.table import TableName
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.storage import StorageSink
from tidegate.sink.storage_options import StorageOptions
from tidegate.source.storage_options import CanalDialect, CsvDialect, Dialect
from tidegate.testing.script import run_here

CSV = CsvOptions(include_commit_ts=True, output_old_value=True)
WAYS: dict[str, tuple[CsvOptions | EncodeOptions, Dialect]] = {
    "csv": (CSV, CsvDialect(CSV)),
    "canal-json": (
        EncodeOptions(protocol="canal-json", enable_tidb_extension=True),
        CanalDialect(DecodeOptions(protocol="canal-json")),
    ),
}
KEYED_BY_OPEN = {"shop.events_log"}
"""Its key is a unique index of NOT NULL columns, which canal-json does not tell."""
LAST = TRUTHS[-1].ts
READING = [*FILES_FAILPOINTS, *(place for place in FEED_FAILPOINTS if place.startswith("landing/"))]
"""The places of a feed out of files, up to its changelog."""


class Change(NamedTuple):
    """A row change by its key."""

    commit_ts: int
    table: str
    op: str
    before: tuple[bytes | None, ...] | None
    after: tuple[bytes | None, ...] | None


class Killed(BaseException):
    """Ends a life as SIGKILL would: nothing in the code is there to catch it."""


class Pumped(RecordedLanding):
    """A recorded topic that lands some more at each look."""

    def idle(self) -> bool:
        """Return True when all had landed; else some more lands."""
        if is_done := super().idle():
            return is_done
        at = {number: one.offset for number, one in self._state.positions[self.topic].items()}
        reports = [self._read(number, all_, at[number], at[number] + 300) for number, all_ in self._all()]
        self._landed(commit_batch(self.uri, self._state, reports), {})
        return False


class Shop:
    """The shop on its way: a topic into files, files into a lake."""

    def __init__(self, home: Path, recording: str, way: str) -> None:
        self.home, self.recording = home, recording
        self.protocol, self.dialect = WAYS[way]
        self.messages = partitions_of(WORKLOAD / recording)
        self.lake = str(home / "lake")

    def sent(self) -> set[Change]:
        """The row changes of tables with a key that the topic tells, by their keys."""
        options = DecodeOptions(protocol=PROTOCOLS[self.recording])
        return {
            change(row.commit_ts or 0, TableName(row.schema, row.table), row.fields, *encode_row(row))
            for one in chain.from_iterable(self.messages.values())
            for row in decode(one.key, one.value, options)
            if not isinstance(row, Ddl | Resolved) and (row.commit_ts or 0) <= LAST and has_key(row.fields)
        }

    def write(self) -> None:
        """One life of the feed into files."""
        uri, decode = str(self.home / "changelog"), DecodeOptions(protocol=PROTOCOLS[self.recording])
        source = LandedSource(lambda: Pumped(uri, "in", decode, self.messages, seed=1), uri)
        options = StorageOptions(str(self.home / "in"), "in", self.protocol, flush_s=0.0, file_bytes=8 << 10)
        run_here(source, StorageSink(options, DirectoryCheckpoints(self.home / "state", "in")), until=LAST)

    def read(self) -> None:
        """One life of the feed out of them, as far as they go."""
        read = files_to_read(str(self.home / "in"), "in", self.dialect)
        source = LandedSource(lambda: Polled(read, self.lake, "out", batch_bytes=100_000), changelog_uri(self.lake))
        run_here(source, DeltaSink(DeltaOptions(root=self.lake, feed="out", worker_count=1)))


def has_key(fields: Sequence[Field]) -> bool:
    """Whether rows tell which columns their key has."""
    return any(one.handle for one in fields)


def change(
    ts: int, name: TableName, fields: Sequence[Field], op: str, *images: Sequence[bytes | None] | None
) -> Change:
    """A change of a row by the texts of its images; protocols have columns in orders of their own."""
    key = sorted((at for at, one in enumerate(fields) if one.handle), key=lambda at: fields[at].name)
    return Change(ts, str(name), op, *(image and tuple(image[at] for at in key) for image in images))


def landed(uri: str) -> Counter[Change]:
    """The row changes of tables with a key in a changelog, by their keys, each as often as it landed."""
    changelog = Changelog(uri)
    changelog.refresh()
    changes = changelog.slice(0, LAST)
    found: Counter[Change] = Counter()
    for name in changes.tables():
        for row in changes.read(name).to_pylist():
            fields = decode_layout(row["layout"]).fields
            if has_key(fields):
                found[change(row["commit_ts"], name, fields, row["op"], row["before"], row["after"])] += 1
    return found


def is_killed(place: str, nth: int, life: Callable[[], None]) -> bool:
    """Live once, killed when a place is passed for the nth time; False for a life that came to its end before."""
    passed = count(1)

    def deed() -> None:
        if next(passed) == nth:
            raise Killed(place)

    try:
        with armed({place: deed}):
            life()
    except Killed:
        return True
    return False


@pytest.mark.parametrize(
    ("recording", "way"),
    [
        pytest.param("open", "csv", marks=pytest.mark.slow),
        pytest.param("canal", "canal-json", marks=pytest.mark.soak),
        pytest.param("canal", "csv", marks=pytest.mark.soak),
        pytest.param("open", "canal-json", marks=pytest.mark.soak),
    ],
)
def test_the_shop_through_files(tmp_path: Path, recording: str, way: str) -> None:
    """The lake equals TiDB's tables at the end, with a death at each place of either feed, in turns."""
    shop, chance = Shop(tmp_path, recording, way), random.Random(7)
    died: Counter[str] = Counter()
    for _ in range(some(1, 6)):
        for writing, reading in zip_longest(STORAGE_FAILPOINTS, READING):
            if writing is not None:
                died[writing] += is_killed(writing, chance.randint(1, 4), shop.write)
            if reading is not None and (shop.home / "in" / "metadata").exists():
                died[reading] += is_killed(reading, chance.randint(1, 2), shop.read)
    shop.write()
    shop.read()
    assert differences(Path(shop.lake), TRUTHS[-1]) == []
    arrived = landed(changelog_uri(shop.lake))
    assert [row for row, times in arrived.items() if times > 1] == []
    sent = shop.sent()
    keyed = {one.table for one in sent} & {one.table for one in arrived}
    assert {one.table for one in sent} - keyed <= KEYED_BY_OPEN
    assert {one for one in arrived if one.table in keyed} == {one for one in sent if one.table in keyed}
    assert [place for place in (*STORAGE_FAILPOINTS, *READING) if not died[place]] == []
