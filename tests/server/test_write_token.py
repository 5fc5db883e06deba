"""The token of a server without users: who may write, and how its holders find it."""

import base64
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome
from tidegate.cli.main import main
from tidegate.model.errors import ConfigError
from tidegate.server.config import announced, found_token, server_config, write_token
from tidegate.server.documents import documents_in
from tidegate.server.entrance import READS, WRITES_BY_QUESTION
from tidegate.server.server import Server
from tidegate.spark.cache import cache_dir

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path_factory.mktemp("token"))


@pytest.fixture(scope="module")
def plain(place: ServerHome) -> Iterator[tuple[Server, Client]]:
    """A server of this machine without users."""
    with served(place) as found:
        yield found


def basic(user: str, password: str) -> str:
    """The header of a user."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_writes_need_the_token(plain: tuple[Server, Client], place: ServerHome) -> None:
    """Reads are open; each path that changes something takes the token, as bearer or as the password of any user, and
    nothing else."""
    server, client = plain
    anybody = Client(client.address)
    file = place.home / "data" / "token"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (f"{server.token}\n", 0o600)
    assert len(server.token) >= 32
    paths = client.ask("GET", "/openapi.json").json["paths"]
    asked = [(verb.upper(), path.format_map({"changefeed_id": "none", "capture_id": "none"}))
             for path, verbs in paths.items() for verb in verbs]  # fmt: skip
    writes = [one for one in asked if one[0] not in READS and one[1] not in WRITES_BY_QUESTION]
    reads = [one for one in asked if one[0] in READS]
    wrong = ("", "Bearer x", basic("ann", "x"), basic(server.token, ""), f"Digest {server.token}", "Basic ???")

    assert len(writes) > 10
    for method, path in reads:
        assert anybody.ask(method, path).status not in {401, 403}, path
    for method, path in writes:
        for sent in wrong:
            answer = anybody.ask(method, path, Authorization=sent)
            assert answer.status == 401, (method, path, sent)
            assert sent == "Basic ???" or f"{place.home}/data/token" in answer.text
        for sent in (f"Bearer {server.token}", basic("ann", server.token), basic("", server.token)):
            if "resign" not in path:
                assert anybody.ask(method, path, Authorization=sent).status != 401, (method, path)
    assert server.token not in anybody.ask("GET", "/metrics").text


def test_who_did_it_with_the_token(plain: tuple[Server, Client], place: ServerHome) -> None:
    """What was done is noted with the name that came with the token, if any did."""
    server, client = plain
    made = {"changefeed_id": "told", "sink_uri": place.sink("told")}
    assert client.post("/changefeeds", made, Authorization=basic("ann", server.token)).status == 200
    assert server.changefeeds.operations()[0].who == "ann"
    assert client.delete("/changefeeds/told").status == 200
    assert server.changefeeds.operations()[0].who == "anonymous"


def test_one_token_of_a_directory(tmp_path: Path) -> None:
    """The token stays over starts, servers of one directory have the same one, also where they begin at once, and a
    word that somebody put there is the token."""
    config = server_config(None, data_dir=str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: write_token(config, documents_in(str(tmp_path))), range(8)))
    assert made == {write_token(config, documents_in(str(tmp_path)))}
    assert [path.name for path in tmp_path.iterdir() if "token" in path.name] == ["token"]
    (tmp_path / "token").write_text("mine\n")
    assert write_token(config, documents_in(str(tmp_path))) == "mine"
    (tmp_path / "token").write_text("two words")
    with pytest.raises(ConfigError, match=r"the server's token .*one word"):
        write_token(config, documents_in(str(tmp_path)))


def test_no_token_is_asked_for(place: ServerHome) -> None:
    """With auth=none everybody may write, as was before; with users there is no token, and both is a contradiction."""
    data = {"data_dir": str(place.home / "none")}
    with served(place, **data, security={"auth": "none"}) as (server, client):
        assert (server.token, client.headers) == ("", {})
        assert client.post("/changefeeds/none/pause").json["error_code"] == "CDC:ErrChangeFeedNotExists"
    assert not (place.home / "none" / "token").exists()
    with pytest.raises(ConfigError, match=r"security\.auth"):
        place.config(security={"auth": "none", "token-file": "x"})
    with pytest.raises(ConfigError, match="other machines reach"):
        place.config(addr="0.0.0.0:1", security={"auth": "none"})


def paused(client: Client, *more: str, **env: str) -> Result:
    """`tidegate cli changefeed pause` of a changefeed that is missing, by somebody without credentials of their own."""
    words = ["cli", "changefeed", "pause", "-c", "none", "--server", f"http://{client.address}", *more]
    env = {"TICDC_USER": "", "TICDC_PASSWORD": "", "HOME": "/nowhere", **env}
    return CliRunner(env=env).invoke(main, words)


def test_the_command_line_finds_it(plain: tuple[Server, Client], place: ServerHome, tmp_path: Path) -> None:
    """`tidegate cli` of the server's user needs no word about the token; others give the file, or the word as a
    password, as TiCDC's own does; without it they hear where it is."""
    server, client = plain
    cache = os.environ.get("TIDEGATE_CACHE", "")
    file = f"{place.home}/data/token"
    other = {"TIDEGATE_CACHE": str(tmp_path / "other")}
    known = {"TIDEGATE_CACHE": cache} if cache else {}
    let_in = [
        paused(client, HOME=os.environ["HOME"], **known),
        paused(client, "--token-file", file, **other),
        paused(client, "--user", "ann", "--password", server.token, **other),
        paused(client, TICDC_USER="ann", TICDC_PASSWORD=server.token, **other),
    ]
    assert ["CDC:ErrChangeFeedNotExists" in one.stderr for one in let_in] == [True] * 4, [one.output for one in let_in]
    refused = paused(client, **other)
    assert "[CDC:ErrCredentialNotFound]" in refused.stderr
    assert file in refused.stderr
    assert "--token-file" in refused.stderr


def test_a_note_of_a_server_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note that a user's command line reads is the user's alone, is gone with its server, and is not believed of a
    process that has died, nor for another machine: whoever has the port now would get the token."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    with announced(8300, "word"):
        note = cache_dir("servers") / "8300.json"
        assert (note.stat().st_mode & 0o777, note.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        for server in ("http://127.0.0.1:8300", "http://localhost:8300/", "https://[::1]:8300"):
            assert found_token(server) == "word"
        for server in ("http://127.0.0.1:8301", "http://127.0.0.1", "http://10.0.0.1:8300", "http://x:8300", "ftp://h"):
            assert found_token(server) == ""
        kept = note.read_text()
    assert not note.exists()
    note.write_text(json.dumps({**json.loads(kept), "pid": 4_194_305}))
    assert found_token("http://127.0.0.1:8300") == ""
    for broken in ("", "{", "[]", '{"pid": "x"}'):
        note.write_text(broken)
        assert found_token("http://127.0.0.1:8300") == ""


def test_one_token_of_a_store(tmp_path: Path) -> None:
    """Servers that share an object store share the token, so that each passes on what its clients send."""
    config, shared = server_config(None, data_dir="s3://bucket/tide"), documents_in(str(tmp_path))
    words = {write_token(config, shared) for _ in range(2)}
    assert len(words) == 1
    assert len(words.pop()) >= 32


def test_a_source_that_a_reader_names(plain: tuple[Server, Client], place: ServerHome, tmp_path: Path) -> None:
    """Who may only read learns tables and time of the server's own source; another one, and a sink, is opened for those
    who may write."""
    server, client = plain
    anybody = Client(client.address)
    body = {"sink_uri": place.sink("asked"), "start_ts": place.work(0)}
    own = {**body, "source_uri": server.config.source_uri}
    for path in ("/verify_table", "/get_all_tables"):
        assert anybody.post(path, body).json == anybody.post(path, own).json == client.post(path, body).json
        foreign = f"tidb://{tmp_path}"
        for other in ({"source_uri": foreign}, {"replica_config": {"source": {"uri": foreign}}}):
            assert anybody.post(path, {**body, **other}).status == 401
            assert client.post(path, {**body, **other}).status != 401
        assert "sink_met" not in client.post(path, body).json
    assert anybody.post("/verify_table?sink=true", body).status == 401
    assert client.post("/verify_table?sink=true", body).json["sink_met"] is False
    asked = [each.post("/tso", {"source_uri": foreign}).status for each in (anybody, client)]
    assert [anybody.post("/tso", {"source_uri": server.config.source_uri}).status, *asked] == [200, 401, 200]
