"""Files as a sink: what lies where, what a crash leaves and who cleans it up, who is refused."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from msgspec import structs

from tests.contract.storage_reader import data_files, events_in
from tests.failpoint import STORAGE_FAILPOINTS, armed
from tidegate.codec.csv import CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.model.errors import SinkError, SinkRefused
from tidegate.model.event import Ddl
from tidegate.sink.storage import StorageSink
from tidegate.sink.storage_bucket import Bucket, NameTaken
from tidegate.sink.storage_options import StorageOptions
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.contract.sinks import Died
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here
from tidegate.testing.validators import rows

DAY = datetime(2026, 8, 20, 12, tzinfo=UTC)
CSV = CsvOptions(include_commit_ts=True, output_old_value=True)
CANAL = EncodeOptions(protocol="canal-json", enable_tidb_extension=True)


def bucket_of(home: Path) -> Bucket:
    """Where files go."""
    return Bucket(str(home / "out"), "out")


def sink_of(
    home: Path, protocol: CsvOptions | EncodeOptions = CSV, *, day: datetime = DAY, **more: object
) -> StorageSink:
    """A sink whose progress lies beside its files."""
    options = replace(StorageOptions(str(home / "out"), "out", protocol, flush_s=0.0), **more)  # type: ignore[arg-type]
    return StorageSink(options, DirectoryCheckpoints(home / "state", "feed"), now=lambda _: day)


def live(home: Path, story: Script, protocol: CsvOptions | EncodeOptions = CSV, **more: object) -> None:
    """One life of a feed."""
    run_here(ScriptedSource(story), sink_of(home, protocol, **more), until=story.ts)  # type: ignore[arg-type]


def paths_of(home: Path) -> list[str]:
    """The files that are there."""
    top = home / "out"
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def data_of(home: Path) -> dict[str, bytes]:
    """The data files and what they hold."""
    return {path: (home / "out" / path).read_bytes() for path in paths_of(home) if "/CDC0" in path}


def checksum_of(told: dict[str, Any]) -> int:
    """The checksum of a schema file, as a reader computes it."""
    columns = sorted(told["TableColumns"], key=lambda column: column["ColumnName"])
    kept = {name: told[name] for name in ("Table", "Schema")}
    whole = {**kept, "Version": 0, "TableColumns": columns, "TableColumnsTotal": told["TableColumnsTotal"]}
    return crc32(json.dumps(whole, indent=4, ensure_ascii=False).encode())


def orders(*, ddl: str = "") -> Script:
    """Three transactions of a table, with a DDL behind the second."""
    one = Script()
    one.ddl("shop", "CREATE DATABASE shop")
    one.ddl("shop.orders", "CREATE TABLE shop.orders (id INT PRIMARY KEY, v VARCHAR(9))")
    one.commit(put("shop.orders", id=1, v="a"), put("shop.orders", id=2, v=None))
    one.resolve()
    one.commit(put("shop.orders", id=1, v='"q'))
    if ddl:
        one.ddl("shop.orders", ddl)
    one.commit(remove("shop.orders", id=2))
    one.resolve()
    return one


def test_what_lies_where(tmp_path: Path) -> None:
    """Rows lie below table, version and day, with an index; DDLs in schema files; the checkpoint in `metadata`."""
    story = orders()
    live(tmp_path, story)

    create = story.ddls(story.ts)[1].commit_ts
    top = f"shop/orders/{create}/2026-08-20"
    first, second, third = (row.commit_ts for row in story.rows(story.ts)[1:])
    assert data_of(tmp_path) == {
        f"{top}/CDC00000000000000000001.csv": (
            f'"I","orders","shop",{first},false,1,"a"\r\n"I","orders","shop",{first},false,2,\\N\r\n'
            f'"D","orders","shop",{second},true,1,"a"\r\n"I","orders","shop",{second},true,1,"""q"\r\n'
            f'"D","orders","shop",{third},false,2,\\N\r\n'
        ).encode()
    }
    database, *others = (path for path in paths_of(tmp_path) if "/CDC0" not in path and "/meta/" in path)
    assert database.startswith(f"shop/meta/schema_{story.ddls(story.ts)[0].commit_ts}_")
    assert others[0] == f"{top}/meta/CDC.index"
    told = json.loads((tmp_path / "out" / others[1]).read_text())
    assert others[1:] == [f"shop/orders/meta/schema_{create}_{checksum_of(told):010d}.json"]
    assert (told["Query"], told["Type"]) == (story.ddls(story.ts)[1].query, 3)
    assert (tmp_path / "out" / "metadata").read_text() == f'{{"checkpoint-ts":{story.ts}}}'
    assert (tmp_path / "out" / top / "meta" / "CDC.index").read_text() == "CDC00000000000000000001.csv\n"


def test_a_ddl_begins_a_directory(tmp_path: Path) -> None:
    """Rows behind a DDL lie below its commit_ts, where files count from 1, also if no column changed."""
    story = orders(ddl="ALTER TABLE shop.orders COMMENT = 'x'")
    live(tmp_path, story)

    versions = [path.split("/")[2] for path in data_of(tmp_path)]
    assert versions == [str(ddl.commit_ts) for ddl in story.ddls(story.ts)[1:]]


def test_days(tmp_path: Path) -> None:
    """A day has directories of its own; by month, two days of it share one."""
    story = orders()
    for separator, names in (("day", ["2026-08-20", "2026-08-21"]), ("month", ["2026-08", "2026-08"])):
        home = tmp_path / separator
        for mark, day in zip(story.marks, (20, 21), strict=True):
            sink = sink_of(home, day=DAY.replace(day=day), date_separator=separator)
            run_here(ScriptedSource(story), sink, until=mark)
        assert [path.split("/")[3] for path in data_of(home)] == names


def test_files_end_behind_transactions(tmp_path: Path) -> None:
    """A file that is full ends behind the transaction that filled it; nothing is lost between two files."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    for number in range(0, 60, 3):
        story.commit(*(put("shop.t", id=number + one) for one in range(3)))
    story.resolve()
    live(tmp_path, story, CsvOptions(include_commit_ts=True), file_bytes=300)

    files = list(data_of(tmp_path).values())
    ends = [{line.split(b",")[3] for line in text.split(b"\r\n")[:-1]} for text in files]
    assert len(files) > 4
    assert all(300 <= len(text) < 300 + 3 * 60 for text in files[:-1])
    assert sum(map(len, ends)) == 20
    assert [int(line.split(b",")[4]) for text in files for line in text.split(b"\r\n")[:-1]] == list(range(60))


@pytest.mark.parametrize("apart", [True, False])
def test_partitions(tmp_path: Path, apart: bool) -> None:  # noqa: FBT001
    """Rows of physical partitions lie in directories of their own, each with its numbers; or together, if asked for."""
    story = Script()
    story.ddl("shop.p", f"CREATE TABLE shop.p (id INT PRIMARY KEY, v VARCHAR(20), n INT) {stories.PARTITIONS}")
    for number in range(2):
        story.commit(put("shop.p", id=number), put("shop.p", id=10 + number))
        story.resolve()
    ids = {False: 105, True: 106}
    story.events[1:] = [
        structs.replace(row, partition_id=ids[row.after[0] >= 10])  # type: ignore[union-attr]
        for row in story.events[1:]
    ]
    for mark in story.marks:
        run_here(ScriptedSource(story), sink_of(tmp_path, partition_separator=apart), until=mark)

    create = story.ddls(story.ts)[0].commit_ts
    top = f"shop/p/{create}"
    directories = [f"{top}/105/2026-08-20", f"{top}/106/2026-08-20"] if apart else [f"{top}/2026-08-20"]
    assert list(data_of(tmp_path)) == [
        f"{directory}/CDC{number:020d}.csv" for directory in directories for number in (1, 2)
    ]
    assert not unnamed(tmp_path, ".csv")


@pytest.mark.parametrize("rows", [3, 40])
def test_columns_of_another_order(tmp_path: Path, rows: int) -> None:
    """Messages may have columns by name; files have them as the table has, few rows and many."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (z INT PRIMARY KEY, a VARCHAR(9), m DOUBLE)")
    for number in range(rows):
        story.commit(put("shop.t", z=number, a=f"a{number}", m=0.5))
    story.resolve()
    told = sorted(range(3), key=lambda at: "zam"[at])
    story.events[1:] = [
        structs.replace(
            row,
            fields=tuple(row.fields[at] for at in told),
            after=tuple(row.after[at] for at in told),  # type: ignore[union-attr]
        )
        for row in story.events[1:]
    ]
    live(tmp_path, story, CsvOptions())
    assert b"".join(data_of(tmp_path).values()) == b"".join(
        f'"I","t","shop",{number},"a{number}",0.5\r\n'.encode() for number in range(rows)
    )


@pytest.mark.parametrize("ddl", [True, False])
def test_a_name_that_no_directory_can_have(tmp_path: Path, ddl: bool) -> None:  # noqa: FBT001
    """A database that is called as the file with the checkpoint is refused by name, at its first DDL or row; a filter
    rule is the way out, and what is there stays."""
    story = orders()
    if ddl:
        story.ddl("metadata", "CREATE DATABASE metadata")
    story.ddl("metadata.t", "CREATE TABLE metadata.t (id INT PRIMARY KEY)")
    story.commit(put("metadata.t", id=1))
    story.resolve()
    if not ddl:
        story.events = [event for event in story.events if not (isinstance(event, Ddl) and "metadata" in event.query)]
    with pytest.raises(SinkRefused, match=r"the name 'metadata' of metadata.* cannot be that of a directory") as told:
        live(tmp_path, story)
    if ddl:
        (ts,) = [one.commit_ts for one in story.ddls(story.ts) if one.query == "CREATE DATABASE metadata"]
        assert (told.value.where.table, told.value.where.commit_ts) == ("metadata", ts)
    run_here(ScriptedSource(story), sink_of(tmp_path), until=story.ts, rules=["*.*", "!metadata.*"])
    assert json.loads((tmp_path / "out" / "metadata").read_bytes())["checkpoint-ts"] == story.ts


def test_columns_that_no_ddl_told(tmp_path: Path) -> None:
    """Rows with another column than their schema file tells are refused, and no file has them."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
    story.commit(put("shop.t", id=1, v=1))
    story.resolve()
    (row,) = story.events[1:]
    story.events[1] = structs.replace(row, fields=(row.fields[0], structs.replace(row.fields[1], name="w")))  # type: ignore[union-attr]
    with pytest.raises(SinkRefused, match=r"shop\.t have the columns id, w"):
        live(tmp_path, story)
    assert not data_of(tmp_path)


@pytest.mark.parametrize("raw", [False, True])
def test_updates_of_keys(tmp_path: Path, raw: bool) -> None:  # noqa: FBT001
    """An UPDATE of a key becomes a DELETE and an INSERT, unless output-raw-change-event is set."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, u INT, UNIQUE KEY (u))")
    story.commit(put("shop.t", id=1, u=1))
    story.commit(put("shop.t", id=1, u=2))
    story.resolve()
    live(tmp_path, story, CsvOptions(), raw_change_event=raw)

    (text,) = data_of(tmp_path).values()
    ops = [line.split(b",")[0] for line in text.split(b"\r\n")[:-1]]
    assert ops == ([b'"I"', b'"U"'] if raw else [b'"I"', b'"D"', b'"I"'])


def test_many_rows(tmp_path: Path) -> None:
    """Rows that go by columns have the bytes of rows that go one by one."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20), d DOUBLE)")
    for number in range(40):
        story.commit(put("shop.t", id=number, v=f'text "{number}"', d=number * 1e5))
    story.commit(*(put("shop.t", id=number, v=None) for number in range(0, 40, 2)))
    story.resolve()
    few, many = tmp_path / "few", tmp_path / "many"
    for mark in {row.commit_ts for row in story.rows(story.ts)}:
        run_here(ScriptedSource(story), sink_of(few), until=mark)
    live(many, story)
    assert b"".join(data_of(many).values()) == b"".join(data_of(few).values())


def times(nth: int) -> Callable[[], None]:
    """Dies at the nth time, counted from 1."""
    left = nth

    def act() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Died

    return act


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", [pytest.param(CSV, id="csv"), pytest.param(CANAL, id="canal-json", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("place", STORAGE_FAILPOINTS)
def test_a_crash_at_each_place(tmp_path: Path, place: str, protocol: CsvOptions | EncodeOptions) -> None:
    """Dead at each time that a place is reached: what indexes name holds every row up to `metadata` once at any moment,
    and in the end every row and DDL."""
    story = stories.shop()
    extension = ".csv" if protocol is CSV else ".json"
    for nth in range(1, 40):
        home = tmp_path / str(nth)
        home.mkdir()
        died = False
        with armed({place: times(nth)}), suppress(Died):
            died = True
            live(home, story, protocol, file_bytes=64)
            died = False
        if not died:
            break
        assert not list(wrong(home, story, extension))
        live(home, story, protocol, file_bytes=64)
        assert not list(wrong(home, story, extension))
        assert (home / "out" / "metadata").read_text() == f'{{"checkpoint-ts":{story.ts}}}'
        assert not unnamed(home, extension)
    assert nth > 3


def unnamed(home: Path, extension: str) -> list[str]:
    """The data files that no index names."""
    paths = paths_of(home)
    named = set(data_files(bucket_of(home), paths, "", extension))
    return [path for path in data_of(home) if path not in named]


def wrong(home: Path, story: Script, extension: str) -> Iterator[str]:
    """What a reader that is gated by `metadata` finds wrong."""
    metadata = bucket_of(home).read("metadata")
    upto = 0 if metadata is None else int(metadata.body.split(b":")[1].rstrip(b"}"))
    found = rows(events_in(bucket_of(home), paths_of(home), extension)) if metadata else []
    arrived = validators.images_of([row for row in found if (row.commit_ts or 0) <= upto])
    happened = validators.images_of(story.rows(upto))
    yield from validators.untold(happened, arrived)
    yield from validators.repeated(happened, arrived)
    yield from validators.repeated(validators.images_of(story.rows(story.ts)), validators.images_of(found))


@pytest.mark.parametrize("place", STORAGE_FAILPOINTS)
def test_an_outage_at_each_place(tmp_path: Path, place: str) -> None:
    """An answer that is lost is waited out within one run, and nothing is there twice."""
    story = stories.shop()
    calls = count()

    def away() -> None:
        if next(calls) in {0, 2}:
            raise SinkError("the answer is lost")

    with armed({place: away}):
        live(tmp_path, story, file_bytes=64)
    assert not list(wrong(tmp_path, story, ".csv"))


def test_a_new_feed_in_a_used_place(tmp_path: Path) -> None:
    """A feed that has lost its state does not write all rows once more into the same place."""
    live(tmp_path, orders())
    (tmp_path / "state").rename(tmp_path / "lost")
    with pytest.raises(SinkRefused, match="already has the files of a changefeed"):
        live(tmp_path, orders())


def test_a_name_of_another_writer(tmp_path: Path) -> None:
    """A file is put only if absent: bytes of somebody else stay, the same bytes are as good as written."""
    bucket = bucket_of(tmp_path)
    bucket.create("a/CDC1.csv", b"x")
    bucket.create("a/CDC1.csv", b"x")
    with pytest.raises(NameTaken, match=r"out/a/CDC1\.csv"):
        bucket.create("a/CDC1.csv", b"y")
    assert bucket.read("a/CDC1.csv").body == b"x"  # type: ignore[union-attr]


def test_an_index_never_goes_back(tmp_path: Path) -> None:
    """A writer that wakes up late leaves a higher index alone."""
    bucket, names = bucket_of(tmp_path), sink_of(tmp_path)._names
    for number in (1, 3, 2):
        bucket.raise_("a/meta/CDC.index", names.index(number), names.indexed)
    assert bucket.read("a/meta/CDC.index").body == names.index(3)  # type: ignore[union-attr]
