"""Each changefeed goes on from state that an earlier release kept: all rows are there once, and the past stays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tantivy

import tidegate
from tests.kept.kit import (
    MOMENTS,
    Change,
    Rows,
    World,
    archives,
    of_canal,
    of_stream,
    replayed,
    rows_of,
    unpacked,
)
from tests.kept.make import fill_topic, live, tables_of, topic_of
from tests.kept.served import serve
from tests.mariadb import connected, running_server
from tests.redis_server import running_redis
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import TidegateError
from tidegate.source.tidb_segment import safe_points

Opens = Callable[..., World]
KEYLESS = "visits"


@pytest.fixture(params=archives(), ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    """Unpack a set that has the state of a changefeed."""

    def of(name: str, **servers: str) -> World:
        world = unpacked(request.param, tmp_path / "home", **servers)
        if name not in world.feeds:
            pytest.skip(f"the set has no changefeed {name}")
        return world

    return of


def keyed(tables: Mapping[str, Rows]) -> dict[str, Rows]:
    """The tables with a key, those without rows left out."""
    return {name: rows for name, rows in tables.items() if rows and name != KEYLESS}


def current(rows: Iterable[Mapping[str, Any]], ts: int, key: tuple[str, ...]) -> Rows:
    """The rows of a lake of any mode at a timestamp: stored rows, versions or changes."""
    found: dict[object, Mapping[str, Any]] = {}
    for number, row in enumerate(sorted(rows, key=lambda row: (row.get("_commit_ts", 0), row.get("_commit_seq", 0)))):
        plain = {name: value for name, value in row.items() if not name.startswith("_")}
        place = tuple(row[name] for name in key) or number
        if row.get("_change_type") in {"delete", "update_preimage"}:
            found.pop(place)
        elif row.get("_valid_from", 0) <= ts and (row.get("_valid_to") is None or ts < row["_valid_to"]):
            assert place not in found, f"{row} is there twice"
            found[place] = plain
    return rows_of(found.values())


PLAIN = ("items", "fresh")
"""Tables that no DDL changes."""
KEYS = {"items": ("order_id", "line"), KEYLESS: ()}


def in_lake(world: World, name: str, moment: str) -> dict[str, Rows]:
    """The tables of a lake as of a moment."""
    lake = tidegate.lake(str(world.home / name))
    shown = next(one.checkpoint_ts for one in lake.history() if one.checkpoint_ts >= world.ts(moment))
    then = lake.at(shown)
    return {
        table: current(then.arrow(f"kept.{table}").to_pylist(), shown, KEYS.get(table, ("id",)))
        for table in (one.removeprefix("kept.") for one in then.tables())
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lake", "history", "changes", "filed"])
def test_lakes(opened: Opens, name: str) -> None:
    """A lake of each mode, and one behind files: its moments are those of the upstream, before it goes on and after."""
    world = opened(name)
    before = [in_lake(world, name, moment) for moment in MOMENTS[:2]]
    assert list(map(keyed, before)) == [keyed(world.tables(moment)) for moment in MOMENTS[:2]]

    end = world.followed()
    if name == "filed":
        world.run("files", end)
    world.run(name, end)

    assert [in_lake(world, name, moment) for moment in MOMENTS[:2]] == before
    found = in_lake(world, name, "later")
    assert keyed(found) == keyed(world.tables("later"))
    if name != "filed":  # TiCDC's files leave it out
        assert found[KEYLESS] == world.tables("later")[KEYLESS]


def test_files(opened: Opens) -> None:
    """A storage sink behind its checkpoint: files tell each change once."""
    world = opened("files")
    world.run("files", world.followed())

    check_changes(world, of_files(world.home / "files"))


def test_where_ddls_come(opened: Opens) -> None:
    """A changefeed goes on with ddl-ts=finish, though the safe point that it had is of another place; a new one has
    commit."""
    world = opened("files")
    log, end = world.home / "log", world.followed()
    world.run("files", end)
    sink = world.addresses("files")[1].replace("/files", "/new")
    new = tidegate.Changefeed(f"tidb://{log}", sink, name="new", state_dir=world.home / "state")
    new.run(tasks=LocalTasks(), until=end)

    chosen = {point.changefeed: point.ddl_ts for point in safe_points(log) if point.ddl_ts}
    assert chosen == {"files": "finish", "new": "commit"}


@pytest.mark.slow
def test_served(opened: Opens) -> None:
    """A server takes up its documents: the changefeed that it had goes on without anybody's word."""
    world = opened("served")
    serve(world.home, world.followed())

    check_changes(world, of_files(world.home / "served"))


def of_files(files: Path) -> list[Change]:
    """The changes that canal-json files tell."""
    return list(of_canal(line for path in files.rglob("CDC*.json") for line in path.read_bytes().splitlines()))


def check_changes(world: World, changes: Sequence[Change], *, once: bool = True) -> None:
    """All changes, each once; of a table that a DDL changed they tell keys alone."""
    told = [(*change[:3], change.data is None) for change in changes]
    assert len(told) == len(set(told)) or not once
    tables, truth = replayed(changes), world.tables("later")
    assert {name: tables[name] for name in PLAIN} == {name: truth[name] for name in PLAIN}
    assert {row["id"] for row in tables["orders"]} == {row["id"] for row in truth["orders"]}
    assert {"13", "14"} <= {row["id"] for row in tables["parts"]}


def test_search(opened: Opens) -> None:
    """Indexes in a directory: each document is a row."""
    world = opened("search")
    world.run("search", world.followed())

    found = {}
    for link in (world.home / "search").glob("kept.*"):
        index = tantivy.Index.open(str(link))
        searcher = index.searcher()
        hits = searcher.search(tantivy.Query.term_query(index.schema, "_row", "1", index_option="basic"), 1000).hits
        sources = [bytes(searcher.doc(place).get_first("_source")) for _, place in hits]
        found[link.name.removeprefix("kept.")] = sources
    truth = keyed(world.tables("later"))
    assert {name: len(rows) for name, rows in found.items() if rows} == {
        name: len(rows) for name, rows in truth.items()
    }
    for name, rows in truth.items():
        texts = b" ".join(found[name]).decode()
        assert all(str(row.get("name") or row.get("v") or row["customer"]) in texts for row in rows)


@pytest.mark.slow
def test_database(opened: Opens, tmp_path: Path) -> None:
    """Tables and ledger in a MariaDB: rows go on from the progress there."""
    with running_server(tmp_path / "mariadb") as server:
        world = opened("database", mariadb=f"127.0.0.1:{server.port}")
        world.fill_database(server.port)
        world.run("database", world.followed())
        with closing(connected(server.port)) as connection, connection.cursor() as cursor:
            found = tables_of(cursor)
            cursor.execute("SELECT DISTINCT state FROM tidegate.ddl_history")
            assert cursor.fetchall() == (("done",),)
    assert found == world.tables("later")


@pytest.mark.slow
def test_redis(opened: Opens, tmp_path: Path) -> None:
    """Keys of rows, and a stream: what is there already is not written again."""
    with running_redis(tmp_path / "redis") as server:
        world = opened("redis", redis=f"127.0.0.1:{server.port}")
        client = server.client
        world.fill_redis(client)
        end = world.followed()
        world.run("redis", end)
        world.run("stream", end)

        found: dict[str, list[dict[str, str]]] = {}
        for key in client.scan_iter("kept:*"):
            row = {name.decode(): value.decode() for name, value in client.hgetall(key).items()}
            assert len(row.pop("_tidegate_version")) == 29
            found.setdefault(key.decode().split(":")[1], []).append(row)
        entries = [fields[b"event"] for key in client.scan_iter("changes:kept:*") for _, fields in client.xrange(key)]
    truth = {
        name: rows_of({column: value for column, value in row.items() if value is not None} for row in rows)
        for name, rows in keyed(world.tables("later")).items()
    }
    assert {name: rows_of(rows) for name, rows in found.items()} == truth
    check_changes(world, list(of_stream(entries)))


@pytest.mark.slow
def test_topic(opened: Opens, bootstrap: str) -> None:
    """A topic behind its checkpoint, and a lake behind the topic: the broker is another one, with the same messages."""
    world = opened("topic", kafka=bootstrap)
    known, partitions = world.messages()
    now = fill_topic(bootstrap, "kept", partitions)
    world.run("topic", world.followed())
    *_, messages = topic_of(bootstrap, "kept")
    check_changes(world, list(of_canal(value for some in messages for _, value in some)), once=False)

    before = [in_lake(world, "landed", moment) for moment in MOMENTS[:2]]
    assert list(map(keyed, before)) == [keyed(world.tables(moment)) for moment in MOMENTS[:2]]
    source = f"{world.addresses('landed')[0]}&made-anew=kept:{now}:same-offsets"
    with pytest.raises(TidegateError, match=known):
        world.run("landed", world.ts("later"))
    world.run("landed", world.ts("later"), source=source)

    assert [in_lake(world, "landed", moment) for moment in MOMENTS[:2]] == before
    assert keyed(in_lake(world, "landed", "later")) == keyed(world.tables("later"))


@pytest.mark.slow
def test_upstream(opened: Opens) -> None:
    """The embedded TiDB goes on in its store, and its log behind what it has."""
    world = opened("lake")
    now = live(world.home, ["UPDATE kept.orders SET grade = 0", "INSERT INTO kept.items VALUES (300, 1, 'newest', 0)"])
    world.run("lake", now["ts"])

    lake = tidegate.lake(str(world.home / "lake"))
    assert rows_of(lake.arrow("kept.orders").to_pylist()) == now["tables"]["orders"]
    assert rows_of(lake.arrow("kept.items").to_pylist()) == now["tables"]["items"]
