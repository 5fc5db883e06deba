"""Rows go where the recorded dispatchers sent them."""

import gzip
import json
from pathlib import Path

import pytest

from tests.golden.codec_cases import DATA, lines
from tidegate.codec import encode_options
from tidegate.codec.neutral_read import EventReader
from tidegate.engine.dispatch import Route, Router, SplitPolicy, Splitter, dispatch_rules, halves
from tidegate.model.event import Delete, Insert, RowChange, Update
from tidegate.model.table import TableName

STREAMS = sorted(path.parent for path in DATA.glob("codec/*/dispatch.jsonl.gz"))
DISPATCHERS = ("default", "table", "ts", "index-value")


def rows(stream: Path) -> dict[str, RowChange]:
    """The recorded rows by id, read as `tidegate encode` reads them."""
    reader, found = EventReader(), {}
    with gzip.open(stream / "events.jsonl.gz") as file:
        for line in file:
            read = reader.read(line)
            if read is not None and isinstance(read.event, Insert | Update | Delete):
                found[json.loads(line)["id"]] = read.event
    return found


def router(partition: str, dialect: str = "classic") -> Router:
    """All tables by one rule."""
    rules = dispatch_rules([{"matcher": ["*.*"], "partition": partition}])
    return Router.of(rules, "topic", encode_options({"dialect": dialect}, "open-protocol"))


def routed(how: Router, row: RowChange, partitions: int) -> Route:
    return how.plan(TableName(row.schema, row.table), row.fields).route(row, partitions)


def test_recordings_exist():
    """There are recorded dispatches to compare with."""
    assert len(STREAMS) >= 5


@pytest.mark.parametrize("dialect", ["classic", "newarch"])
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.name)
def test_every_recorded_row_is_dispatched_alike(stream, dialect):
    """Partition and key of every recorded row and dispatcher are reproduced; the null rules agree where a handle
    decides, which has no NULL."""
    events, routers = rows(stream), {name: router(name, dialect) for name in DISPATCHERS}

    for line in lines(stream / "dispatch.jsonl.gz"):
        row = events[line["event"]]
        for name in DISPATCHERS:
            found = routed(routers[name], row, line["partitions"])
            assert (found.partition, found.key) == (line[name]["partition"], line[name]["key"]), (line["event"], name)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.name)
def test_handle_columns_by_name_are_the_handle(stream):
    """The columns dispatcher over a table's handle, in any case and order, puts rows where index-value does."""
    plain = router("index-value")
    for row in rows(stream).values():
        columns = [field.name.upper() for field in reversed(row.fields) if field.handle]
        rules = dispatch_rules([{"matcher": ["*.*"], "partition": "columns", "columns": columns}])
        by_columns = Router.of(rules, "topic", encode_options({}, "open-protocol"))

        assert routed(by_columns, row, 16) == routed(plain, row, 16)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.name)
def test_recorded_updates_are_split_as_recorded(stream):
    """An update is split exactly where the recording says so, and its halves are the recorded ones."""
    events = rows(stream)
    recorded = {line["id"]: line for line in lines(stream / "events.jsonl.gz") if line["kind"] == "row"}

    for name, row in events.items():
        if not isinstance(row, Update) or "split_from" in recorded[name]:
            continue
        plan = router("table").plan(TableName(row.schema, row.table), row.fields)
        splits = Splitter.of(SplitPolicy(), plan).splits(row)
        assert splits == bool(recorded[name].get("should_split")), name
        for half, suffix in zip(halves(row), ("del", "ins"), strict=True):
            assert half == events.get(f"{name}/{suffix}", half)
