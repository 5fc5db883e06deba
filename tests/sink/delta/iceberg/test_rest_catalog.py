"""A lake's names in a REST catalog of somebody else's: rest_server.py stands for it."""

import json
import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.readers import Readers
from tests.sink.delta.iceberg.rest_server import RestTables, serving
from tests.sink.delta.iceberg.rest_tables import Refused
from tests.sink.delta.small import Small
from tidegate.config.delta import delta_sink
from tidegate.config.load import load
from tidegate.engine.ports import LocalTasks
from tidegate.engine.retention import Limits
from tidegate.model.errors import SinkError
from tidegate.sink.delta import iceberg_catalogs as foreign
from tidegate.sink.delta.iceberg_catalogs import (
    COMMIT,
    FILE,
    LOAD,
    NOTE,
    REGISTER,
    RENAME,
    SPACES,
    TOKEN_VARIABLE,
    TRANSACTION,
    EmbeddedCatalog,
    RestCatalog,
    RestClient,
    requirements,
)
from tidegate.sink.delta.iceberg_projection import begin_projection
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.upkeep import LakeUpkeep

pytestmark = pytest.mark.slow

WAREHOUSE = "lake"


class Shown(Small):
    """A feed whose lake is shown in a catalog."""

    def __init__(self, root: Path, uri: str) -> None:
        super().__init__(root, Limits(), iceberg=True)
        self.uri = uri
        self.again()

    def again(self) -> None:
        """A new life: nothing is known of the catalog."""
        self.catalog = RestCatalog(self.options, RestClient(self.uri, WAREHOUSE))

    def show(self, upto: int) -> None:
        """Publish up to a ts, names too."""
        self.round(upto)
        self.catalog.publish(self.sink.snapshot)


@pytest.fixture
def catalog() -> Iterator[RestTables]:
    """A catalog without tables."""
    with serving() as found:
        yield found


def made(root: Path, catalog: RestTables) -> Shown:
    """Tables t with a row and u without, shown."""
    shown = Shown(root, catalog.uri)
    shown.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    shown.ddl(11, "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(20))", "u")
    shown.rows.insert(20, id=1, v="a")
    shown.show(20)
    return shown


def heads(catalog: RestTables) -> dict[str, int]:
    """What readers see of each table."""
    return {".".join(name): table["current-snapshot-id"] for name, table in sorted(catalog.tables.items())}


def right(shown: Shown, catalog: RestTables) -> bool:
    """Whether the catalog has the lake's tables and no others, each at its published version."""
    told = shown.sink.snapshot.tables.values()
    return heads(catalog) == {f"{one.schema}.{one.table}": one.version + 1 for one in told}


def meddled(catalog: RestTables, name: tuple[str, str] = ("s", "t")) -> None:
    """Somebody else's commit."""
    table = catalog.tables[name]
    newest = table["snapshots"][-1]
    snapshot = newest | {"snapshot-id": 4711, "sequence-number": table["last-sequence-number"] + 1, "summary": {}}
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 4711},
    ]
    catalog.commit([{"identifier": {"namespace": [name[0]], "name": name[1]}, "requirements": [], "updates": updates}])


WITHOUT = [
    *((), (TRANSACTION,), (REGISTER,), (RENAME,)),
    (TRANSACTION, REGISTER, RENAME),
]


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("without", WITHOUT, ids=len)
def test_tables_follow(tmp_path: Path, catalog: RestTables, without: tuple[str, ...], *, tells: bool) -> None:
    """Tables come, move with rows and DDLs, are renamed, swapped and truncated and go, whatever the catalog lacks, and
    whether it says so or is found without."""
    catalog.without, catalog.tells = set(without), tells
    shown = made(tmp_path, catalog)
    assert heads(catalog) == {"s.t": 2, "s.u": 1}
    shown.rows.insert(30, id=2, v="b")
    shown.rows.insert(30, "u", id=2, v="b")
    for ts, query, table in (
        (40, "ALTER TABLE t ADD COLUMN w INT DEFAULT 4", "t"),
        (50, "RENAME TABLE t TO a, u TO t, a TO u", "t"),
        (60, "CREATE TABLE x (id INT PRIMARY KEY)", "x"),
        (70, "RENAME TABLE u TO y", "u"),
        (80, "TRUNCATE TABLE t", "t"),
        (90, "DROP TABLE x", "x"),
    ):
        shown.ddl(ts, query, table)
        shown.show(ts + 5)
        assert right(shown, catalog), query
    assert heads(catalog).keys() == {"s.t", "s.y"}
    assert [one["name"] for one in catalog.tables["s", "y"]["schemas"][-1]["fields"]] == ["id", "v", "w"]
    assert set(without).isdisjoint(catalog.calls)
    assert (COMMIT in catalog.calls) == (not {TRANSACTION, REGISTER}.isdisjoint(without))


def test_one_commit_for_all(tmp_path: Path, catalog: RestTables) -> None:
    """All tables that changed move in one request, which is refused as a whole where one of them is not as it was."""
    shown = made(tmp_path, catalog)
    for table in ("t", "u"):
        shown.rows.insert(30, table, id=2, v="b")
    catalog.calls.clear()
    shown.show(30)
    assert catalog.calls == [LOAD, LOAD, TRANSACTION]

    before = heads(catalog)
    changes = [
        {
            "identifier": {"namespace": ["s"], "name": name},
            "requirements": requirements(catalog.tables["s", name] | {"refs": {"main": {"snapshot-id": seen}}}),
            "updates": [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1}],
        }
        for name, seen in (("u", 2), ("t", 2))
    ]
    with pytest.raises(Refused, match="CommitFailed"):
        catalog.commit(changes)
    assert heads(catalog) == before == {"s.t": 3, "s.u": 2}


def test_nothing_new(tmp_path: Path, catalog: RestTables) -> None:
    """A round that changes no table asks nothing; a new life looks, and commits nothing."""
    shown = made(tmp_path, catalog)
    catalog.calls.clear()
    shown.show(30)
    assert catalog.calls == []
    shown.again()
    shown.show(40)
    assert catalog.calls == [LOAD, LOAD]


@pytest.mark.parametrize("without", [(), (TRANSACTION,)])
def test_foreign_commits(
    tmp_path: Path, catalog: RestTables, caplog: pytest.LogCaptureFixture, without: tuple[str, ...]
) -> None:
    """A commit of others is told and taken back, also one that comes between reading and committing."""
    catalog.without = set(without)
    shown = made(tmp_path, catalog)
    meddled(catalog)
    assert heads(catalog)["s.t"] == 4711
    shown.rows.insert(30, id=2, v="b")
    shown.show(30)
    assert right(shown, catalog)
    assert "table s.t was at snapshot 4711, a foreign commit" in caplog.text

    caplog.clear()
    table = catalog.tables["s", "t"]
    table["snapshots"] = [one for one in table["snapshots"] if one["snapshot-id"] != 4711]
    shown.rows.insert(40, id=3, v="b")
    shown.rows.insert(40, "u", id=3, v="b")
    catalog.meddle = lambda: meddled(catalog)
    shown.show(40)
    assert right(shown, catalog)
    assert "table s.t was at snapshot 4711" in caplog.text


def test_others_are_left_alone(tmp_path: Path, catalog: RestTables, caplog: pytest.LogCaptureFixture) -> None:
    """A table of others that has a name of ours stays as it is and is told once; the rest go on. Once it is gone, ours
    comes."""
    shown = made(tmp_path, catalog)
    theirs = json.loads(json.dumps(catalog.tables["s", "t"])) | {"table-uuid": "theirs"}
    catalog.put(("s", "x"), theirs, "file:///theirs")
    shown.ddl(30, "CREATE TABLE x (id INT PRIMARY KEY)", "x")
    shown.ddl(31, "CREATE TABLE y (id INT PRIMARY KEY)", "y")
    shown.show(35)
    shown.rows.insert(40, "x", id=3)
    shown.show(45)
    assert catalog.tables["s", "x"] is theirs
    assert heads(catalog).keys() == {"s.t", "s.u", "s.x", "s.y"}
    assert caplog.text.count("has a table s.x that does not belong to this lake") == 1

    shown.ddl(50, "RENAME TABLE x TO z", "x")
    shown.show(55)
    assert catalog.tables["s", "x"] is theirs
    assert ("s", "z") in catalog.tables
    catalog.taken(("s", "x"))
    shown.ddl(60, "RENAME TABLE z TO x", "z")
    shown.show(65)
    assert right(shown, catalog)


def test_a_catalog_that_is_away(tmp_path: Path, catalog: RestTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the catalog is away the lake goes on; it is asked again after a pause that grows, then brought up."""
    shown = made(tmp_path, catalog)
    now, asked = 0.0, []
    monkeypatch.setattr(foreign.time, "monotonic", lambda: now)
    catalog.status = 503
    for _ in range(200):
        try:
            shown.rows.insert(20 + int(now) + 1, id=int(now) + 2, v="b")
            shown.show(20 + int(now) + 1)
        except SinkError as error:
            assert "answers GET" in str(error)  # noqa: PT017
            asked.append(now)
        now += 1
        if len(asked) == 4:
            break
    assert asked == [0.0, 5.0, 15.0, 35.0]
    catalog.status = 0
    now += 60
    shown.show(500)
    assert right(shown, catalog)


@pytest.mark.parametrize("calls", range(13))
def test_a_feed_that_dies(tmp_path: Path, catalog: RestTables, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Whichever request was the last one before a death, the next life brings the catalog to the lake, though tables
    were dropped and renamed meanwhile."""
    shown = made(tmp_path, catalog)
    shown.ddl(22, "CREATE TABLE k (id INT PRIMARY KEY)", "k")
    shown.show(25)
    shown.ddl(30, "CREATE TABLE x (id INT PRIMARY KEY)", "x")
    shown.ddl(31, "RENAME TABLE t TO w", "t")
    shown.ddl(32, "DROP TABLE u", "u")
    shown.ddl(33, "TRUNCATE TABLE k", "k")
    shown.rows.insert(33, "w", id=2, v="b")
    left, ask = calls, RestClient.ask

    def dying(*args: object, **more: str) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise SinkError("dead")
        return ask(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as dies:
        dies.setattr(RestClient, "ask", dying)
        try:
            shown.show(40)
        except SinkError:
            assert left < 0
        else:
            assert calls == 12
    shown.ddl(50, "DROP TABLE x", "x")
    shown.ddl(51, "DROP TABLE k", "k")
    shown.again()
    shown.show(60)
    assert right(shown, catalog)
    assert heads(catalog).keys() == {"s.w"}


def test_a_catalog_that_refuses_a_table(tmp_path: Path, catalog: RestTables) -> None:
    """What the catalog has against one table is told; the others go on."""
    shown = made(tmp_path, catalog)
    do = catalog.do

    def choosy(endpoint: str, parts: dict, body: dict) -> object:
        if endpoint == REGISTER and body["name"] == "x":
            raise Refused(403, "ForbiddenException", "this location is not allowed")
        return do(endpoint, parts, body)

    catalog.do = choosy  # type: ignore[method-assign]
    shown.ddl(30, "CREATE TABLE x (id INT PRIMARY KEY)", "x")
    shown.ddl(31, "CREATE TABLE y (id INT PRIMARY KEY)", "y")
    shown.rows.insert(32, id=2, v="b")
    with pytest.raises(SinkError, match="403 ForbiddenException: this location is not allowed"):
        shown.show(40)
    assert heads(catalog) == {"s.t": 3, "s.u": 1, "s.y": 1}


def test_tokens(
    tmp_path: Path, catalog: RestTables, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The token comes from a file, which may be replaced, or from the environment, and stands in no message."""
    caplog.set_level(logging.DEBUG)
    shown = Shown(tmp_path, catalog.uri)
    file = tmp_path / "token"
    shown.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY)")
    catalog.token = "s3cret"
    with pytest.raises(SinkError, match="401 NotAuthorizedException"):
        shown.show(20)
    shown.catalog = RestCatalog(shown.options, RestClient(catalog.uri, WAREHOUSE, str(file)))
    with pytest.raises(SinkError, match=r"catalog-token-file .* cannot be read: FileNotFoundError"):
        shown.show(21)
    file.write_text("wr0ng\n")
    shown.catalog = RestCatalog(shown.options, RestClient(catalog.uri, WAREHOUSE, str(file)))
    with pytest.raises(SinkError, match="401 NotAuthorizedException") as told:
        shown.show(22)
    assert "wr0ng" not in f"{told.value}{caplog.text}{shown.catalog.__dict__}"
    file.write_text("s3cret\n")
    shown.catalog = RestCatalog(shown.options, RestClient(catalog.uri, WAREHOUSE, str(file)))
    shown.show(23)
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
    shown.ddl(30, "DROP TABLE t")
    shown.again()
    shown.show(40)
    assert heads(catalog) == {}


def test_no_catalog_at_all(tmp_path: Path) -> None:
    """Where nobody answers, or not in JSON, the error names the address."""
    with serving() as gone:
        uri = gone.uri
    for address in (uri, "http://nowhere.invalid/x"):
        with pytest.raises(SinkError, match=f"catalog {address} does not answer GET /v1/config"):
            made(tmp_path / str(len(address)), type("Gone", (), {"uri": address}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "odd", [5, "x", [], [{}], {"metadata": 5}, {"metadata": {}}, {"metadata": {"table-uuid": []}}, {"overrides": [1]}]
)
@pytest.mark.parametrize("config", [True, False])
def test_odd_answers(tmp_path: Path, catalog: RestTables, odd: object, *, config: bool) -> None:
    """What is no answer of a catalog is an error that is tried again, and ends nothing."""
    answer = catalog.answer
    catalog.answer = lambda *asked: odd if config == (asked[1] == "/v1/config") else answer(*asked)  # type: ignore[method-assign]
    with pytest.raises(SinkError, match=f"catalog {catalog.uri} "):
        made(tmp_path, catalog)


def test_a_lake_that_was_moved(tmp_path: Path, catalog: RestTables) -> None:
    """A lake at another place is shown at that place."""
    made(tmp_path / "a", catalog)
    shutil.move(tmp_path / "a", tmp_path / "b")
    moved = Shown(tmp_path / "b", catalog.uri)
    begin_projection(moved.options, moved.sink.snapshot, lambda work, jobs: [work(job) for job in jobs])
    moved.catalog.publish(moved.sink.snapshot)

    assert right(moved, catalog)
    for table in catalog.tables.values():
        assert table["location"].startswith(f"file://{tmp_path}/b/")
        assert all(one["manifest-list"].startswith(f"file://{tmp_path}/b/") for one in table["snapshots"])


def test_another_catalog(tmp_path: Path, catalog: RestTables) -> None:
    """A lake that is shown elsewhere leaves what it showed before, and begins there."""
    shown = made(tmp_path, catalog)
    with serving() as other:
        shown.catalog = RestCatalog(shown.options, RestClient(other.uri, WAREHOUSE))
        shown.ddl(30, "DROP TABLE u", "u")
        shown.show(40)
        assert right(shown, other)
    assert heads(catalog) == {"s.t": 2, "s.u": 1}
    assert json.loads((tmp_path / "_tidegate" / NOTE).read_text())["uri"] == other.uri


def test_upkeep_goes_on(tmp_path: Path, catalog: RestTables) -> None:
    """A catalog that is away is told by each upkeep, which does its other work nevertheless."""
    made(tmp_path, catalog)
    catalog.status = 500
    options = DeltaOptions(root=str(tmp_path), feed="f", iceberg=True)
    upkeep = LakeUpkeep(options, Limits(), interval_s=0, notes=True)
    names = RestCatalog(options, RestClient(catalog.uri, WAREHOUSE))
    sink = DeltaSink(options, upkeep=upkeep, catalogs=[names])
    sink.recover()
    with pytest.raises(SinkError, match="500"):
        sink.upkeep(LocalTasks(pickles=False), None, lambda: False)
    assert (tmp_path / "_tidegate" / "limits.json").exists()


def test_a_configured_feed(tmp_path: Path, catalog: RestTables) -> None:
    """A feed whose file names the catalog shows the lake there when it starts, and no longer in catalog.db."""
    root, file, token = tmp_path / "lake", tmp_path / "feed.toml", tmp_path / "token"
    small = Small(root, Limits(), iceberg=True)
    small.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY)")
    small.round(20)
    EmbeddedCatalog(small.options).publish(small.sink.snapshot)
    catalog.token = "s3cret"
    token.write_text(catalog.token)
    file.write_text(f'[sink.delta-config]\ncatalog = "{catalog.uri}"\ncatalog-token-file = "{token}"\n')
    source = "kafka://h:9092/shop?protocol=open-protocol"
    sink = delta_sink(load(file, name="f", source_uri=source, sink_uri=f"delta://{root}"))
    sink.recover()
    sink.upkeep(LocalTasks(pickles=False), None, lambda: True)

    assert heads(catalog) == {"s.t": 1}
    with closing(sqlite3.connect(root / FILE)) as database:
        assert database.execute("SELECT * FROM iceberg_tables").fetchall() == []


@pytest.mark.slow
def test_pyiceberg_reads(tmp_path: Path, catalog: RestTables, readers: Readers) -> None:
    """PyIceberg finds the tables by their names and reads the newest rows."""
    shown = made(tmp_path, catalog)
    shown.rows.insert(30, id=2, v="b")
    shown.ddl(40, "ALTER TABLE t ADD COLUMN w INT DEFAULT 4")
    shown.show(50)
    found = {"type": "rest", "uri": catalog.uri, "warehouse": WAREHOUSE}

    assert readers.names("pyiceberg", found) == ["s.t", "s.u"]
    rows, none = readers.tables("pyiceberg", found, ["s.t", "s.u"])
    assert sorted(map(str, rows.to_pylist())) == ["{'id': 1, 'v': 'a', 'w': 4}", "{'id': 2, 'v': 'b', 'w': 4}"]
    assert none.num_rows == 0
    assert {SPACES, LOAD, TRANSACTION} <= set(catalog.calls)
    assert COMMIT not in catalog.calls
