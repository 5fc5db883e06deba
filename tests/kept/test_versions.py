"""State carries a version, and a release refuses state of a version above the one that it knows."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from http.client import HTTPMessage
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import redis
from click.testing import CliRunner

from tests.kept.kit import World, archives, unpacked
from tests.kept.make import tables_of
from tests.kept.served import serve
from tests.mariadb import connected, running_server
from tests.redis_server import running_redis
from tidegate.cli.main import main
from tidegate.model.errors import StateTooNew
from tidegate.model.kept_state import StateKind, check_version, decode_state, encode_state
from tidegate.sink.exchange import Reply
from tidegate.sink.search_mapping import ServerOptions
from tidegate.sink.search_server import SearchCalls, ServerStore
from tidegate.source.tidb_segment import SegmentWriter
from tidegate_upstream.tidb.engine import SqliteEngine

FIELD = "state_version"
DATABASES: Mapping[str, Callable[[Path], Any]] = {"mariadb": running_server, "redis": running_redis}


class Case(NamedTuple):
    """A kind of state: which changefeed goes on from it, how its version is raised, and what an error has to name."""

    kind: StateKind
    feed: str
    raised: Callable[[World], None]
    named: str
    server: str = ""


def newest(world: World, pattern: str) -> Path:
    """The last file of a pattern below the place."""
    return max(world.home.glob(pattern))


def in_document(pattern: str) -> Callable[[World], None]:
    """Raise the version in the last file of a pattern."""

    def raised(world: World) -> None:
        file = newest(world, pattern)
        file.write_bytes(raised_in(file.read_bytes()))

    return raised


def raised_in(body: bytes) -> bytes:
    """A document of one version more; one without a version is of the first."""
    document = json.loads(body)
    return json.dumps({**document, FIELD: document.get(FIELD, 1) + 1}).encode()


def in_changelog(world: World) -> None:
    """Raise the version in the last commit of a changelog."""
    file = newest(world, "lake/_tidegate/changelog/_delta_log/*.json")
    info, *actions = map(json.loads, file.read_text().splitlines())
    told = json.loads(info["commitInfo"]["userMetadata"])
    told["tidegate"] |= {FIELD: told["tidegate"].get(FIELD, 1) + 1}
    info["commitInfo"]["userMetadata"] = json.dumps(told)
    file.write_text("\n".join(map(json.dumps, (info, *actions))))


def in_decision(world: World) -> None:
    """Write a decision about a message of a topic that a newer release made."""
    folder = world.home / "filed" / "_tidegate" / "resolutions"
    folder.mkdir()
    (folder / "kept-0-1.json").write_text(json.dumps({FIELD: 2, "topic": "kept", "partition": 0, "offset": 1}))


def in_segment(world: World) -> None:
    """Raise the version in the last segment."""
    file = newest(world, "log/*.seg")
    file.write_bytes(file.read_bytes().replace(b"TGSEG002", b"TGSEG003"))


def in_server(world: World) -> None:
    """Raise the version of a server's documents."""
    with closing(sqlite3.connect(world.home / "server" / "server.db", isolation_level=None)) as sql:
        sql.execute("replace into documents values ('version.json', 1, ?)", (json.dumps({FIELD: 2}).encode(),))


def in_safe_point(world: World) -> None:
    """Raise the version of the safe points that a changefeed wrote where it was made, and where it is now."""
    world.run("files", world.ts("kept"))
    for file in world.home.glob("log/feeds/files.*.json"):
        file.write_bytes(raised_in(file.read_bytes()))


def in_database(world: World) -> None:
    """Raise the version in the row of a changefeed."""
    port = int(world.servers["mariadb"].rpartition(":")[2])
    world.fill_database(port)
    with closing(connected(port)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT state FROM tidegate.progress WHERE shard = -1")
        cursor.execute("UPDATE tidegate.progress SET state = %s WHERE shard = -1", (raised_in(cursor.fetchone()[0]),))


def in_redis(world: World) -> None:
    """Raise the version in the hash of a changefeed."""
    client = client_of(world)
    world.fill_redis(client)
    key = "_tidegate:progress:{redis}"
    client.hset(key, "checkpoint", raised_in(client.hget(key, "checkpoint")))


def client_of(world: World) -> Any:
    """A client of the Redis of a place."""
    host, _, port = world.servers["redis"].partition(":")
    return redis.Redis(host, int(port))


CASES = [
    Case(StateKind.SNAPSHOT, "lake", in_document("lake/_tidegate/snapshots/*.json"), "_tidegate/snapshots/0000"),
    Case(StateKind.CHANGELOG, "lake", in_changelog, "lake/_tidegate/changelog"),
    Case(StateKind.RESOLUTION, "filed", in_decision, "filed/_tidegate/resolutions/kept-0-1.json"),
    Case(StateKind.CHECKPOINT, "files", in_document("state/files.json"), "state/files.json"),
    Case(StateKind.SEARCH, "search", in_document("search/_tidegate/search/published.json"), "search/published.json"),
    Case(StateKind.SAFE_POINT, "files", in_safe_point, "log/feeds/files."),
    Case(StateKind.SEGMENT, "files", in_segment, ".seg"),
    Case(StateKind.SERVER, "served", in_server, "server (version.json)"),
    Case(StateKind.DATABASE, "database", in_database, "changefeed database in `tidegate`.`progress`", "mariadb"),
    Case(StateKind.REDIS, "redis", in_redis, "key _tidegate:progress:{redis}", "redis"),
]
ELSEWHERE = {StateKind.UPSTREAM, StateKind.LOAD, StateKind.CAPTURE}
"""What no changefeed reads, the plan of a load (tests/source/load/test_loading.py), and the origin of a captured log
(tests/upstream/tikv/test_capture.py)."""


def test_all_kinds() -> None:
    """Each kind of state is tried."""
    assert {case.kind for case in CASES} | ELSEWHERE == set(StateKind)


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, id=case.kind.name.lower()) for case in CASES])
def test_a_higher_version_is_refused(case: Case, tmp_path: Path) -> None:
    """The error names file or row, the version found, the one known and what to do; nothing is changed."""
    with ExitStack() as stack:
        servers = {}
        if case.server:
            (home := tmp_path / case.server).mkdir()
            servers[case.server] = f"127.0.0.1:{stack.enter_context(DATABASES[case.server](home)).port}"
        world = unpacked(archives()[-1], tmp_path / "home", **servers)
        case.raised(world)
        end, before = world.followed(), dict(contents(world))

        with pytest.raises(StateTooNew) as refused:
            serve(world.home, end) if case.feed == "served" else world.run(case.feed, end)

        assert case.named in str(refused.value)
        found, known = case.kind.version + 1, case.kind.version
        assert f"is {case.kind.words} of version {found}, and this release knows version {known}" in str(refused.value)
        assert "run that release, or a newer one" in str(refused.value)
        assert dict(contents(world)) == before


def contents(world: World) -> Iterator[tuple[str, object]]:
    """All that lies in a place and in its servers; reports and locks are no state."""
    for path in sorted(world.home.rglob("*")):
        if path.name == "server.db":
            with closing(sqlite3.connect(path)) as sql:
                yield str(path), sql.execute("select * from documents order by name").fetchall()
        elif path.is_file() and not path.name.endswith((".state.json", "lock", "-wal", "-shm")):
            yield str(path), path.read_bytes()
    if "mariadb" in world.servers:
        with closing(connected(int(world.servers["mariadb"].rpartition(":")[2]))) as connection:
            yield from ((schema, tables_of(connection.cursor(), schema)) for schema in ("kept", "tidegate"))
    if "redis" in world.servers:
        client = client_of(world)
        yield from ((key, client.dump(key)) for key in client.scan_iter())


@pytest.mark.slow
def test_commands_about_a_database(tmp_path: Path) -> None:
    """The commands by which people decide about a changefeed's DDLs refuse what they would misread."""
    (tmp_path / "mariadb").mkdir()
    with running_server(tmp_path / "mariadb") as server:
        in_database(unpacked(archives()[-1], tmp_path / "home", mariadb=f"127.0.0.1:{server.port}"))
        told = CliRunner().invoke(main, ["sink", "ddl", f"mysql://root@127.0.0.1:{server.port}/"])
    assert told.exit_code == 1
    assert "changefeed's progress in its database of version 2" in told.stderr


def test_progress_in_a_search_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of a newer release is read and not replaced."""
    found = {"_source": {FIELD: 2, "epoch": 7}, "_seq_no": 1, "_primary_term": 1}
    asked = []

    def answer(_calls: SearchCalls, method: str, path: str, *_more: object) -> Reply:
        asked.append((method, path))
        return Reply(200, json.dumps(found).encode(), HTTPMessage(), ends=False)

    monkeypatch.setattr(SearchCalls, "ask", answer)
    with pytest.raises(StateTooNew, match=r"tidegate-progress/_doc/shop of h:9200 is .* of version 2"):
        ServerStore(ServerOptions((("h", 9200),)), "shop").take()
    assert [path for method, path in asked if method == "PUT"] == ["/tidegate-progress"]


def test_a_log_is_not_written_on(tmp_path: Path) -> None:
    """A writer of segments does not go on behind one of a newer release."""
    world = unpacked(archives()[-1], tmp_path / "home")
    in_segment(world)
    with pytest.raises(StateTooNew, match=r"\.seg is a segment of a change log of version 3"):
        SegmentWriter(world.home / "log", 0)


def test_a_store_of_a_newer_release(tmp_path: Path) -> None:
    """The embedded TiDB opens a store of an older release, and notes its version; one of a newer release it does not
    touch."""
    world = unpacked(archives()[0], tmp_path / "home")
    place = world.home / "tidb" / "store"
    SqliteEngine(place).close()
    with closing(sqlite3.connect(place / "store.db", isolation_level=None)) as sql:
        assert sql.execute("pragma user_version").fetchone() == (StateKind.UPSTREAM.version,)
        sql.execute(f"pragma user_version = {StateKind.UPSTREAM.version + 1}")
        sql.execute("pragma journal_mode = delete")
    before = (place / "store.db").read_bytes()

    with pytest.raises(StateTooNew, match=r"store\.db is a store of the embedded TiDB of version 2"):
        SqliteEngine(place)
    assert (place / "store.db").read_bytes() == before


class Old(msgspec.Struct):
    """A document as an older release reads it."""

    name: str = ""


class New(Old):
    """One with a member more."""

    more: int = 0


def test_documents() -> None:
    """A document says its version first; one that says none is of the first; members more do not matter."""
    body = encode_state(StateKind.CHECKPOINT, New("a", 1))
    assert body == b'{"state_version":1,"name":"a","more":1}'
    assert msgspec.json.decode(body, type=Old) == decode_state(StateKind.CHECKPOINT, body, Old, "x") == Old("a")
    assert decode_state(StateKind.CHECKPOINT, b'{"name":"b"}', New, "x") == New("b")
    assert encode_state(StateKind.CHECKPOINT, {}) == b'{"state_version":1}'
    check_version(StateKind.SEGMENT, 1, "x")
    with pytest.raises(msgspec.DecodeError):
        decode_state(StateKind.CHECKPOINT, b"[]", Old, "x")
