"""Who may ask a server, and what no request can do to it."""

import base64
import http.client
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.certificates import make_certificate
from tests.server.http_kit import Client, listening, port, served
from tests.server.kit import ServerHome, until
from tidegate.model.errors import ConfigError
from tidegate.model.option import MASK
from tidegate.server import entrance, web_server
from tidegate.server.entrance import hashed, read_users, with_user
from tidegate.server.record import FeedId
from tidegate.server.server import Server

pytestmark = pytest.mark.slow

SECRET = "geheim-4711"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path_factory.mktemp("admission"))


@pytest.fixture(scope="module")
def plain(place: ServerHome) -> Iterator[tuple[Server, Client]]:
    """A server of this machine without users."""
    with served(place) as found:
        yield found


@pytest.fixture(scope="module")
def users(place: ServerHome) -> Path:
    """Ann may write, Bob may read."""
    file = place.home / "users"
    file.write_text(with_user(with_user("", "ann", "pässword:1"), "bob", "b"))
    return file


@pytest.fixture(scope="module")
def strict(place: ServerHome, users: Path) -> Iterator[tuple[Server, Client]]:
    """A server with users and a token."""
    token = place.home / "token"
    token.write_text("tok-123\n")
    security = {"users-file": str(users), "token-file": str(token), "client-user-required": True,
                "client-allowed-user": ["ann"]}  # fmt: skip
    with served(place, data_dir=str(place.home / "strict"), security=security) as found:
        yield found


def basic(user: str, password: str) -> str:
    """The header of a user."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


ANN, BOB, TOKEN = basic("ann", "pässword:1"), basic("bob", "b"), "Bearer tok-123"


@pytest.mark.parametrize(
    ("method", "path", "sent", "status", "code"),
    [
        ("GET", "/api/v2/changefeeds", "", 401, "CDC:ErrCredentialNotFound"),
        ("GET", "/openapi.json", "", 401, "CDC:ErrCredentialNotFound"),
        ("GET", "/api/v2/nothing", "", 401, "CDC:ErrCredentialNotFound"),
        ("GET", "/healthz", "", 200, ""),
        ("GET", "/livez", "", 200, ""),
        ("GET", "/readyz", "", 200, ""),
        ("GET", "/api/v2/changefeeds", ANN, 200, ""),
        ("GET", "/api/v2/changefeeds", BOB, 200, ""),
        ("GET", "/api/v2/changefeeds", TOKEN, 200, ""),
        ("GET", "/api/v2/changefeeds", basic("ann", "b"), 401, "CDC:ErrUnauthorized"),
        ("GET", "/api/v2/changefeeds", basic("eve", "b"), 401, "CDC:ErrUnauthorized"),
        ("GET", "/api/v2/changefeeds", "Bearer tok-124", 401, "CDC:ErrUnauthorized"),
        ("GET", "/api/v2/changefeeds", "Basic ???", 401, "CDC:ErrUnauthorized"),
        ("GET", "/api/v2/changefeeds", "Digest x", 401, "CDC:ErrUnauthorized"),
        ("POST", "/api/v2/changefeeds/none/pause", ANN, 400, "CDC:ErrChangeFeedNotExists"),
        ("POST", "/api/v2/changefeeds/none/pause", BOB, 401, "CDC:ErrUnauthorized"),
        ("POST", "/api/v2/changefeeds/none/pause", TOKEN, 401, "CDC:ErrUnauthorized"),
        ("DELETE", "/api/v2/changefeeds/none", BOB, 401, "CDC:ErrUnauthorized"),
        ("POST", "/api/v2/log", BOB, 401, "CDC:ErrUnauthorized"),
        ("POST", "/api/v2/changefeeds/none/move_table", BOB, 401, "CDC:ErrUnauthorized"),
        ("POST", "/api/v2/tso", BOB, 200, ""),
        ("POST", "/api/v2/get_all_tables", BOB, 400, "CDC:ErrAPIInvalidParam"),
    ],
)
def test_users(strict: tuple[Server, Client], *, method: str, path: str, sent: str, status: int, code: str) -> None:
    """Readers read, writers write, strangers are told to say who they are, and probes are answered."""
    answer = strict[1].ask(method, path, **({"Authorization": sent} if sent else {}))

    assert answer.status == status, answer.text
    assert not code or answer.json["error_code"] == code
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_who_did_it(strict: tuple[Server, Client], place: ServerHome) -> None:
    """What was done is noted with the user who did it."""
    server, client = strict
    made = {"changefeed_id": "one", "sink_uri": place.sink("who")}
    assert client.post("/changefeeds", made, Authorization=ANN).status == 200

    newest = server.changefeeds.operations()[0]
    assert (newest.operation, newest.who) == ("create", "ann")


def test_a_users_file_is_followed(strict: tuple[Server, Client], users: Path) -> None:
    """A user who is added may ask at once, a password that is replaced is none, and a broken file changes nothing."""
    client, lines = strict[1], users.read_text()
    eve = basic("eve", "e")
    assert client.get("/status", Authorization=eve).status == 401
    users.write_text(with_user(lines, "eve", "e"))
    assert client.get("/status", Authorization=eve).status == 200
    users.write_text(with_user(users.read_text(), "eve", "f"))
    assert client.get("/status", Authorization=eve).status == 401
    users.write_text("nonsense:x\n")
    assert client.get("/status", Authorization=BOB).status == 200
    users.write_text(lines)


@pytest.mark.parametrize("line", ["ann:plain", "ann:scrypt$16384$8$1$?$?", "ann:scrypt$1099511627776$8$1$QQ==$QQ==",
                                  "ann:scrypt$2$8$1$QQ==$", "ann:md5$16384$8$1$QQ==$QQ=="])  # fmt: skip
def test_lines_that_are_no_users(tmp_path: Path, line: str) -> None:
    """A line without a hash, or with numbers that would take all memory, is refused by its name."""
    (tmp_path / "users").write_text(line)
    with pytest.raises(ConfigError, match="'ann'"):
        read_users(tmp_path / "users")


def test_passwords_are_not_kept() -> None:
    """Two lines of one password differ and hold nothing of it; names that cannot be sent are refused."""
    assert hashed(SECRET) != hashed(SECRET)
    assert SECRET not in hashed(SECRET)
    for name, password in (("", "x"), ("a:b", "x"), ("a\n", "x"), ("a", "")):
        with pytest.raises(ConfigError):
            with_user("", name, password)


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"Host": "localhost:8300"}, 200),
        ("GET", {"Host": "[::1]:8300"}, 200),
        ("GET", {"Host": "evil.example"}, 403),
        ("GET", {"Host": "127.0.0.1.evil.example:8300"}, 403),
        ("GET", {"Host": "[::1"}, 403),
        ("GET", {"Host": ""}, 403),
        ("GET", {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, 200),
        ("POST", {}, 400),
        ("POST", {"Origin": "http://evil.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("POST", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-site"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, 400),
        ("POST", {"Origin": "http://SELF", "Sec-Fetch-Site": "same-origin"}, 400),
        ("DELETE", {"Origin": "http://evil.example"}, 403),
        ("PUT", {"Origin": "http://evil.example"}, 403),
    ],
)
def test_pages_of_others(plain: tuple[Server, Client], method: str, headers: dict[str, str], status: int) -> None:
    """Without users a server answers to its machine's own names alone, and no page of another may change a thing.

    A request that may is a question for a changefeed that is missing (400), or for a list."""
    client = plain[1]
    path = {"GET": "/api/v2/changefeeds", "POST": "/api/v2/changefeeds/none/pause"}.get(method, "/api/v2/changefeeds/x")
    sent = client.headers | {name: value.replace("SELF", client.address) for name, value in headers.items()}
    connection = http.client.HTTPConnection(client.address, timeout=30)
    connection.putrequest(method, path, skip_host="Host" in sent)
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.endheaders()

    assert connection.getresponse().status == status


def test_logins_keep_nobody_waiting(strict: tuple[Server, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """While as many passwords as allowed are being checked, one more is put off, and who is known already is let in."""
    client = strict[1]
    assert client.get("/status", Authorization=ANN).status == 200
    monkeypatch.setattr(threading.BoundedSemaphore, "acquire", lambda *_, **__: False)
    put_off = client.get("/status", Authorization=basic("ann", "wrong"))

    assert (put_off.status, put_off.json["error_code"]) == (503, "CDC:ErrServerIsNotReady")
    assert client.get("/status", Authorization=ANN).status == 200


def test_reads_pass_writes_that_hang(
    plain: tuple[Server, Client], place: ServerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While fifty changefeeds are being made whose sinks do not answer, probes and lists are answered at once."""
    server, client = plain
    go = threading.Event()
    monkeypatch.setattr(server.changefeeds, "create", lambda *_: go.wait(60) and server.changefeeds.get(None))
    body = {"sink_uri": place.sink("hangs")}
    waiting = [threading.Thread(target=client.post, args=("/changefeeds", body)) for _ in range(50)]
    for one in waiting:
        one.start()
    until(lambda: sum(thread.name.startswith("AnyIO") for thread in threading.enumerate()) >= entrance.WRITES)
    began_s = time.monotonic()
    statuses = [client.ask("GET", path).status for path in ("/healthz", "/readyz", "/api/v2/changefeeds")]
    took_s = time.monotonic() - began_s
    go.set()
    for one in waiting:
        one.join(30)

    assert (statuses, took_s < 5) == ([200] * 3, True)


def test_every_answer_is_guarded(plain: tuple[Server, Client]) -> None:
    """Answers, errors and unknown paths alike tell browsers not to frame, guess or keep them."""
    for path in ("/api/v2/status", "/api/v2/changefeeds/none", "/nothing"):
        headers = plain[1].ask("GET", path).headers
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert headers["cache-control"] == "no-store"


def raw(address: str, head: str, body: bytes = b"") -> bytes:
    """The first bytes of the answer to a request as it stands."""
    host, _, number = address.rpartition(":")
    with socket.create_connection((host, int(number)), timeout=30) as client:
        client.sendall(head.encode() + b"\r\n\r\n")
        try:
            client.sendall(body)
            return client.recv(200)
        except (BrokenPipeError, ConnectionResetError):
            return b""


def test_bodies_are_bounded(plain: tuple[Server, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is too long is refused, announced or not; one that does not come ends with 408."""
    address = plain[1].address
    token = plain[1].headers["Authorization"]
    head = f"POST /api/v2/changefeeds HTTP/1.1\r\nHost: {address}\r\nAuthorization: {token}\r\n"
    size = entrance.BODY_BYTES + 1
    assert b" 413 " in raw(address, f"{head}Content-Length: {size}")
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (size, b"x" * size)
    assert b" 413 " in raw(address, f"{head}Transfer-Encoding: chunked", chunk)
    monkeypatch.setattr(entrance, "BODY_S", 0.2)
    assert b" 408 " in raw(address, f"{head}Content-Length: 9", b"{")


def test_heads_are_bounded(plain: tuple[Server, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers that are too long are refused; a client that never finishes them, first or later, is let go."""
    address = plain[1].address
    long = f"GET /healthz HTTP/1.1\r\nHost: {address}\r\nX: {'x' * (web_server.HEADER_BYTES + 1000)}"
    assert b" 413 " in raw(address, long)
    answer = raw(address, long + "x" * 300_000)
    assert b" 400 " in answer or not answer  # a reset, behind bytes that nobody read, may overtake the answer
    monkeypatch.setattr(web_server, "HEAD_S", 0.3)
    host, _, number = address.rpartition(":")
    whole = f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    for first in (b"", whole):
        with socket.create_connection((host, int(number)), timeout=10) as client:
            client.sendall(first)
            got = b"" if first else b"ok"
            while b"ok" not in got:
                got += client.recv(500)
            client.sendall(b"GET /healthz HT")
            began_s = time.monotonic()
            with suppress(ConnectionResetError):
                assert client.recv(500) == b""
            assert time.monotonic() - began_s < 5


def test_no_secret_in_answers_and_logs(
    plain: tuple[Server, Client], place: ServerHome, caplog: pytest.LogCaptureFixture
) -> None:
    """A secret of an address or a setting stands in no answer and no line of the log, and is kept through a change of
    what was shown."""
    server, client = plain
    home = quote(str(place.home / "sinks" / "secret"), safe="")
    sink = f"callback://tests.server.http_kit/guarded?home={home}&password={SECRET}"
    config = {"sink": {"kafka_config": {"sasl_password": SECRET}}}
    caplog.set_level(logging.DEBUG)
    body = {"changefeed_id": "secret", "sink_uri": sink, "replica_config": config}
    made = client.post("/changefeeds", body)
    assert made.status == 200, made.text
    wrong = {**body, "changefeed_id": "other", "sink_uri": f"kafka://u:{SECRET}@h:1/t#x?sasl-password={SECRET}"}
    texts = [made.text, client.post("/changefeeds", wrong).text, client.post("/verify_table", wrong).text]
    assert client.post("/changefeeds/secret/pause").status == 200
    shown = made.json
    back = {"sink_uri": shown["sink_uri"], "replica_config": shown["config"] | {"case_sensitive": True}}
    texts.append(client.put("/changefeeds/secret", back).text)
    paths = ("/changefeeds/secret", "/changefeeds?state=all", "/changefeeds/secret/status", "/unsafe/metadata")
    texts += [client.get(path).text for path in (*paths, f"/changefeeds?state=x&password={SECRET}")]

    assert MASK in "".join(texts)
    assert SECRET not in "".join(texts)
    assert f"password={SECRET}" not in caplog.text
    assert f"u:{SECRET}" not in caplog.text
    kept = next(view.record for view in server.changefeeds.listed() if view.id.name == "secret")
    assert kept.sink_uri == sink
    assert kept.config["case-sensitive"] is True
    assert kept.config["sink"]["kafka-config"]["sasl-password"] == SECRET


def test_no_secret_in_any_read(
    plain: tuple[Server, Client], place: ServerHome, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that quotes an address with its password is shown without it by every path that can be read, in the
    metrics and in the log."""
    server, client = plain
    caplog.set_level(logging.DEBUG)
    sink = "callback://tests.server.sinks/telling?password=" + SECRET
    made = client.post("/changefeeds", {"changefeed_id": "tells", "sink_uri": sink, "start_ts": 1})
    assert made.status == 200, made.text
    place.work()
    until(lambda: server.changefeeds.get(FeedId("default", "tells")).state == "failed")
    server.changefeeds.tick()
    schema = client.ask("GET", "/openapi.json").json
    read = [path for path, verbs in schema["paths"].items() if "get" in verbs]
    asked = [path.replace("{changefeed_id}", "tells").replace("{capture_id}", server.id) for path in read]
    texts = {path: client.ask("GET", path).text for path in asked}

    assert len(texts) > 15
    assert [path for path, text in texts.items() if SECRET in text] == []
    assert "CDC:ErrSinkRefused" in texts["/metrics"]
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("sink_uri", "@/etc/passwd"),
        ("sink_uri", "delta:///etc/lake"),
        ("sink_uri", "https://h/?token-file=/etc/passwd"),
        ("source_uri", "file:///etc?protocol=csv"),
        ("replica_config", {"source": {"uri": "changelog:///etc"}}),
        ("sink_uri", "env:HOME"),
        ("sink_uri", "env://HOME"),
        ("source_uri", "@/etc/passwd"),
        ("source_uri", "env:HOME"),
        ("replica_config", {"source": {"uri": "@/etc/passwd"}}),
        ("sink_uri", "callback://os/system?command=true"),
        ("sink_uri", "CALLBACK://os/system?command=true"),
        ("sink_uri", "callback+x://tests.e2e.collected/into"),
        ("sink_uri", "callback://tests.e2e/collected"),
        ("sink_uri", "callback://tests.server.sinks/run?args=true"),
        ("sink_uri", "callback://tests.server.sinks/Path?home=x"),
        ("sink_uri", "callback://tests.server.sinks/borrowed"),
        ("sink_uri", "callback://tests.server.http_kit/other"),
    ],
)
def test_clients_reach_no_files_and_no_modules(
    plain: tuple[Server, Client], place: ServerHome, what: str, given: object
) -> None:
    """No address of a client reads a file or the environment of the server, or calls what its file does not allow, in
    a new changefeed and in a change of one."""
    client = plain[1]
    body = {"changefeed_id": "reach", "sink_uri": place.sink("reach")}
    client.post("/changefeeds", body)
    client.post("/changefeeds/reach/pause")
    answers = [
        client.post("/changefeeds", {**body, "changefeed_id": "reach-2", what: given}),
        client.post("/verify_table", {**body, what: given}),
        client.put("/changefeeds/reach", {what: given}),
    ]

    assert [(each.status, each.json["error_code"]) for each in answers] == [(400, "CDC:ErrSinkURIInvalid")] * 3
    assert "root:" not in str(answers)


def test_certificates(place: ServerHome) -> None:
    """With mtls a client shows a certificate of the authority and of a name that is allowed; without one it is not
    heard at all."""
    home = place.home / "tls"
    home.mkdir()
    make_certificate(home, "ca")
    for name in ("server", "friend", "stranger"):
        make_certificate(home, name, by="ca")
    security = {"ca-path": str(home / "ca.crt"), "cert-path": str(home / "server.crt"), "mtls": True,
                "key-path": str(home / "server.key"), "cert-allowed-cn": ["friend"]}  # fmt: skip

    def ask(name: str) -> int:
        context = ssl.create_default_context(cafile=str(home / "ca.crt"))
        if name:
            context.load_cert_chain(home / f"{name}.crt", home / f"{name}.key")
        connection = http.client.HTTPSConnection(client.address, timeout=30, context=context)
        connection.request("GET", "/api/v2/status")
        return connection.getresponse().status

    with served(place, data_dir=str(place.home / "mtls"), security=security) as (_, client):
        assert (ask("friend"), ask("stranger")) == (200, 401)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask("")


# Two servers of one store.


def test_a_server_that_does_not_own_asks_the_owner(place: ServerHome) -> None:
    """Each of two servers answers for both; the other goes on when one is gone; circles end."""
    data = {"data_dir": str(place.home / "two"), "capture_session_ttl": 2}
    with served(place, **data) as (first, one), port() as (listener, address):
        second, two = place.server(advertise_addr=address, **data), Client(address, **one.headers)
        try:
            until(second.joined.is_set)
            with listening(second, listener):
                made = two.post("/changefeeds", {"changefeed_id": "one", "sink_uri": place.sink("two")})
                assert (made.status, made.json["id"]) == (200, "one")
                shown = [client.get("/changefeeds?state=all").json["items"][0]["id"] for client in (one, two)]
                assert shown == ["one", "one"]
                assert two.get("/changefeeds/none").json["error_code"] == "CDC:ErrChangeFeedNotExists"
                assert (two.get("/status").json["is_owner"], one.get("/status").json["is_owner"]) == (False, True)
                assert {item["is_owner"] for item in two.get("/captures").json["items"]} == {True, False}
                again = two.get("/changefeeds", TiCDC_ForwardTimes="1")
                assert (again.status, again.json["error_code"]) == (500, "ErrRequestForwardErr")
                first.stop()
                assert one.get("/changefeeds").status == 503
                assert one.ask("GET", "/readyz").json["error_code"] == "CDC:ErrServerIsNotReady"
                until(lambda: second.changefeeds.is_owner)
                assert two.get("/changefeeds/one").status == 200
        finally:
            second.stop()


def test_an_owner_that_is_gone(place: ServerHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the owner is gone and nobody has taken over, the other server says that it does not answer."""
    data = {"data_dir": str(place.home / "gone")}
    with port() as (_, nobody), port() as (listener, address):
        owner = place.server(advertise_addr=nobody.replace("127.0.0.1", "127.0.0.2"), **data)
        until(lambda: owner.changefeeds.is_owner)
        second = place.server(advertise_addr=address, **data)
        try:
            until(second.joined.is_set)
            with listening(second, listener):
                answer = Client(address).get("/changefeeds")
                assert (answer.status, answer.json["error_code"]) == (500, "ErrRequestForwardErr")
        finally:
            second.stop()
            owner.stop()


def test_before_it_has_joined(place: ServerHome) -> None:
    """A server that has not joined answers 503 to the API, and lives."""
    from tests.server.kit import HereHost

    with port() as (listener, address):
        server = Server(place.config(data_dir=str(place.home / "new"), advertise_addr=address), HereHost())
        with listening(server, listener):
            client = Client(address)
            assert client.get("/changefeeds").json["error_code"] == "CDC:ErrServerIsNotReady"
            assert [client.ask("GET", path).status for path in ("/livez", "/readyz")] == [200, 503]
