"""Rows arrive whatever breaks: an answer, the server, its disk; and who does not come in is told."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificate
from tests.contract.test_redis_sink import rows_here
from tests.failpoint import REDIS_FAILPOINTS, armed
from tests.redis_server import RedisServer, running_redis
from tests.sink.sql.test_exactly_once import away, times
from tidegate.engine.progress import Progress
from tidegate.model.errors import ConfigError, LoginRefused, SinkError, SinkRefused
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import Mode, RedisOptions
from tidegate.sink.redis_server import RedisServers
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
KEYLESS = "shop.visits"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that loses nothing when it is killed."""
    with running_redis(tmp_path / "redis", *DURABLE) as found:
        yield found


def options(server: RedisServer, **more: Any) -> RedisOptions:
    """How tests write: few rows a call."""
    return RedisOptions("feed", (("127.0.0.1", server.port),), batch_rows=2, timeout_s=5.0, **more)


def live(server: RedisServer, story: Script, **more: Any) -> None:
    """One life of a feed."""
    run_here(ScriptedSource(story), RedisSink(options(server, **more)), until=story.ts)


def unlike(server: RedisServer, story: Script, **more: Any) -> list[str]:
    """What is wrong with the rows under the keys."""
    servers = RedisServers(options(server, **more))
    state = RedisSink(options(server, **more)).recover().state
    found = {str(table.name): rows_here(servers, table) for table in state.tables.values() if table.handle_key}
    wanted = {name: rows for name, rows in story.tables(story.ts).items() if name != KEYLESS}
    return list(validators.unlike(wanted, found))


def restarts(server: RedisServer) -> Callable[[], None]:
    """Kills the server and starts it again."""

    def act() -> None:
        server.kill()
        server.start()

    return act


@pytest.mark.parametrize("mode", ["hash", "json"])
@pytest.mark.parametrize("place", REDIS_FAILPOINTS)
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_lost_answer(server: RedisServer, place: str, nth: int, mode: Mode) -> None:
    """An error before, amid and behind a write or a DDL is waited out, and all rows are right."""
    story = stories.shop()
    with armed({place: times(away, nth)}):
        live(server, story, mode=mode)
    assert not unlike(server, story, mode=mode)


@pytest.mark.parametrize("place", REDIS_FAILPOINTS)
@pytest.mark.parametrize("nth", [1, 3])
def test_a_server_that_restarts(server: RedisServer, place: str, nth: int) -> None:
    """A server that is killed and comes back with all that it had confirmed interrupts nothing."""
    story = stories.shop()
    with armed({place: times(restarts(server), nth)}):
        live(server, story)
    assert not unlike(server, story)


@pytest.mark.parametrize("place", REDIS_FAILPOINTS)
@pytest.mark.parametrize("mode", ["hash", "stream"])
def test_an_outage(server: RedisServer, place: str, mode: Mode) -> None:
    """A server that is killed and stays away is waited for: the feed warns, and goes on when it is back."""
    story, states = stories.shop(), list[str]()

    def report(progress: Progress) -> None:
        states.append(progress.state)
        if progress.state == "warning" and server.process is not None and server.process.poll() is not None:
            server.start()

    more = {"mode": mode, "stream": "changes"} if mode == "stream" else {"mode": mode}
    with armed({place: times(server.kill, 1)}):
        run_here(ScriptedSource(story), RedisSink(options(server, **more)), until=story.ts, report=report)
    assert "warning" in states
    assert states[-1] == "finished"
    if mode == "hash":
        assert not unlike(server, story)
    else:
        told = [fields[b"event"] for _, fields in server.client.xrange("changes")]
        assert len(told) == len(set(told)) == len(story.rows(story.ts)) + len(story.ddls(story.ts))


@pytest.mark.parametrize("kind", ["swap names", "exchange partition", "rename column", "drop partition"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_ddl_that_stops_half_way(server: RedisServer, kind: str, nth: int) -> None:
    """A feed that dies amid the moves of a DDL does it from the begin in its next life, and every row is where it
    belongs."""
    story = stories.around_ddl(kind)
    with armed({"redis/amid-ddl": times(_die, nth)}):
        try:
            live(server, story)
        except SystemExit:
            live(server, story)
    assert not unlike(server, story)


def _die() -> None:
    raise SystemExit


def test_a_server_that_forgets(tmp_path: Path) -> None:
    """A server without a disk that restarts amid a round has forgotten the checkpoint: the run ends and says so, and
    the next one begins where Redis stands, here anew."""
    story = stories.shop()
    with running_redis(tmp_path / "redis") as server:
        with (
            armed({"redis/before-advance": times(restarts(server), 3)}),
            pytest.raises(SinkRefused, match="lost acknowledged writes"),
        ):
            live(server, story)
        live(server, story)
        assert not unlike(server, story)


def test_the_rows_of_a_round_are_lost(server: RedisServer) -> None:
    """A server that restarts with the last checkpoint, and without rows written since, gets the round again."""
    story = stories.shop()

    def act() -> None:
        for key in server.client.scan_iter("shop:*"):
            server.client.delete(key)
        restarts(server)()

    with armed({"redis/before-advance": times(act, 1)}):
        live(server, story)
    assert not unlike(server, story)


def test_what_comes_late(server: RedisServer) -> None:
    """A writer that should be gone changes nothing: neither a row that is newer nor one that is deleted."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9))")
    story.commit(put("shop.t", id=1, v="a"), put("shop.t", id=2, v="a"))
    story.resolve()
    old = list(story.events)
    story.commit(put("shop.t", id=1, v="b"), remove("shop.t", id=2))
    story.resolve()
    live(server, story)
    late = RedisSink(options(server))
    server.client.delete("_tidegate:progress:{feed}")  # so that the old rows come once more
    early = Script()
    early.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9))")
    early.commit(put("shop.t", id=1, v="a"), put("shop.t", id=2, v="a"))
    early.resolve()
    assert len(old) == len(early.events)
    run_here(ScriptedSource(early), late, until=early.ts)

    assert server.client.hget("shop:t:1", "v") == b"b"
    assert not server.client.exists("shop:t:2")
    assert 0 < server.client.pttl("_tidegate:{shop:t:2}") <= 86_400_000


def test_a_wrong_password(tmp_path: Path) -> None:
    """It is told as such, with what an address needs; the right one comes in."""
    story = stories.shop()
    secret = "p@ss:w/rd"
    with running_redis(tmp_path / "redis", "--requirepass", secret, password=secret) as server:
        for wrong in ({}, {"password": "wrong"}, {"user": "nobody", "password": secret}):
            with pytest.raises(LoginRefused, match="check user and password"):
                RedisSink(options(server, **wrong)).recover()
        live(server, story, password=secret)
        assert not unlike(server, story, password=secret)


def test_tls(tmp_path: Path) -> None:
    """Certificates are checked: the right authority comes in, none or another one does not, a file that is not there
    is an error of the address."""
    for name in ("ca", "other"):
        make_certificate(tmp_path, name)
    make_certificate(tmp_path, "server", by="ca")
    files = {word: str(tmp_path / name) for word, name in (("cert", "server.crt"), ("key", "server.key"))}
    tls = [
        "--port",
        "0",
        "--tls-port",
        "PORT",
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        str(tmp_path / "ca.crt"),
    ]
    tls += ["--tls-cert-file", files["cert"], "--tls-key-file", files["key"]]
    story, ca = stories.shop(), str(tmp_path / "ca.crt")
    with running_redis(tmp_path / "redis", *tls, ssl=True, ssl_ca_certs=ca) as server:
        live(server, story, tls=True, ssl_ca=ca)
        assert not unlike(server, story, tls=True, ssl_ca=ca)
        for wrong in ({"tls": True}, {"tls": True, "ssl_ca": str(tmp_path / "other.crt")}):
            with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED"):
                RedisSink(options(server, **wrong)).recover()
        with pytest.raises(ConfigError, match="TLS file"):
            RedisSink(options(server, tls=True, ssl_ca=str(tmp_path / "none.crt"))).recover()


def test_memory_that_is_full(tmp_path: Path) -> None:
    """A server that takes no more is waited for, and told with what helps."""
    with running_redis(tmp_path / "redis", "--maxmemory", "1") as server, pytest.raises(SinkError, match="maxmemory"):
        RedisSink(options(server)).recover()
