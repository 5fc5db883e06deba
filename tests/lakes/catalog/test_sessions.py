"""Sessions of real readers: the moment that they name, and tables that agree while a feed goes on.

feed      round 1: eight tables say 1    round 2: eight tables say 2    ..      one snapshot each
session        │ a ──► b ──► c ──► ..          pinned: all say the same number, whatever is published meanwhile
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice, takewhile
from pathlib import Path

import pytest

from tests.counts import some
from tests.lakes.catalog.served import Client, made, served
from tests.readers import ReaderFault, Readers
from tests.sink.delta.small import Small
from tests.sink.delta.tended import NO_MERCY

pytestmark = pytest.mark.slow
READERS = ("pyiceberg", "polars", "duckdb", "spark")
NAMES = [f"s.t{number}" for number in range(8)]


def session(client: Client, warehouse: str) -> dict[str, str]:
    """The properties of a session."""
    token = {"token": client.headers["Authorization"].removeprefix("Bearer ")} if client.headers else {}
    return {"type": "rest", "uri": client.uri, "warehouse": warehouse} | token


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of the catalog of a small lake, which asks for a token."""
    root = tmp_path_factory.mktemp("lake")
    made(root)
    with served(root, "s3cret") as found:
        yield found


@pytest.mark.parametrize("reader", READERS)
def test_names_and_rows_of_a_moment(client: Client, readers: Readers, reader: str) -> None:
    """A reader finds the names and rows of the moment that its warehouse names, in any case."""
    rows = [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    for warehouse, names, told in (
        ("lake", ["s.T", "s.w"], rows),
        ("lake@now", ["s.T", "s.w"], rows),
        ("lake@1", ["s.T", "s.u"], rows),
        ("lake@0", ["s.T", "s.u"], rows[:1]),
    ):
        asked = session(client, warehouse)
        assert readers.names(reader, asked) == names
        found = [table.sort_by("id").to_pylist() for table in readers.tables(reader, asked, ["s.T", "S.t"])]
        assert found == [told, told]


@pytest.mark.parametrize(
    ("reader", "why"),
    [
        ("pyiceberg", "needs its bearer token"),
        ("polars", "needs its bearer token"),
        ("duckdb", "401"),
        ("spark", "needs its bearer token"),
    ],
)
def test_no_token(client: Client, readers: Readers, reader: str, why: str) -> None:
    """A reader without the token is told what is missing."""
    with pytest.raises(ReaderFault, match=why):
        readers.tables(reader, session(Client(client.uri), "lake"), ["s.T"])


@contextmanager
def going_on(feed: Small) -> Iterator[list[int]]:
    """A feed that publishes, beside the test, the next number in all tables at once, again and again; those numbers."""
    over, told = threading.Event(), []

    def publish() -> None:
        for number in takewhile(lambda _: not over.is_set(), count(2)):
            ts = 10 * number
            feed.rows.changes.clear()
            for name in NAMES:
                feed.rows.update(ts, {"v": number - 1}, name.removeprefix("s."), id=1, v=number)
            feed.round(ts + 5)
            told.append(number)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join(60)


@pytest.mark.more
@pytest.mark.limit(3600)
@pytest.mark.parametrize(
    "reader", ["pyiceberg", *(pytest.param(name, marks=pytest.mark.soak) for name in ("duckdb", "spark"))]
)
def test_no_torn_reads(
    tmp_path: Path, readers: Readers, reader: str, record_property: Callable[[str, object], None]
) -> None:
    """Beside a feed, all tables of a session of `lake@now` are of one moment; in a session of `lake` some are not."""
    feed = Small(tmp_path, NO_MERCY, iceberg=True)
    for at, name in enumerate(NAMES):
        table = name.removeprefix("s.")
        feed.ddl(at + 1, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", table=table)
        feed.rows.insert(10, table, id=1, v=1)
    feed.round(15)
    with served(tmp_path) as client:
        readers.names(reader, session(client, "lake"))  # it starts
        with going_on(feed) as published:
            pinned = list(seen(readers, reader, session(client, "lake@now"), some(30, 500)))
            moving = seen(readers, reader, session(client, "lake"), some(200, 500))
            torn = list(islice((numbers for numbers in moving if len(numbers) > 1), some(1, 500)))

    record_property(f"torn reads of {reader}", f"{len(torn)}, {len(published)} snapshots")
    assert {len(numbers) for numbers in pinned} == {1}
    assert len(set().union(*pinned)) > 1
    assert torn


def seen(readers: Readers, reader: str, asked: dict[str, str], reads: int) -> Iterator[set[int]]:
    """The numbers that the tables of each of so many sessions say."""
    for _ in range(reads):
        yield {row["v"] for table in readers.tables(reader, asked, NAMES) for row in table.to_pylist()}
