"""TLS and accounts at a real broker: who is let in writes and reads; who is not is told why, at once, without secrets.

SASL_SSL   an account, by PLAIN (alice) or SCRAM (bob)
SSL        a client certificate, made by "ca"; so is the broker's own, which is for 127.0.0.1 alone
PLAINTEXT  the broker's own talk, and what the tests look at it by
"""

import json
import logging
import re
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

import tidegate
from tests.certificates import make_certificate
from tests.e2e.rig import cli
from tests.e2e.test_delta import stored
from tests.engine.test_chain import Upstream
from tests.engine.test_states import status
from tests.sources import topics_to_read
from tidegate.codec import decode, from_config
from tidegate.config.kafka import kafka_topics, parse_target
from tidegate.config.load import load
from tidegate.engine.progress import Progress
from tidegate.model.errors import ConfigError, LoginRefused, SourceError
from tidegate.model.event import Ddl, Insert, Resolved
from tidegate.model.event import Event as TopicEvent
from tidegate.sink import kafka_writer as writers
from tidegate.source.kafka_client import watermarks
from tidegate.source.kafka_fetch import messages
from tidegate_upstream import broker as brokers
from tidegate_upstream.broker import running_broker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl"),
]

PLAIN, SCRAM, WRONG = "pl41n&secret", "scr4m/secret", "wr0ng-secret"
ALICE = {"sasl-user": "alice", "sasl-password": PLAIN}
BOB = {"sasl-user": "bob", "sasl-password": SCRAM}
LISTENERS = """
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location=HOME/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location=HOME/ca.crt
listener.name.ssl.ssl.client.auth=required
"""
LOGIN = "listener.name.sasl_ssl.{}.sasl.jaas.config=org.apache.kafka.common.security.{}LoginModule required{};\n"


def free_ports() -> tuple[int, int]:
    """Two that nobody listens on."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@dataclass(frozen=True)
class Guarded:
    """A broker with guarded doors, and the certificates."""

    home: Path
    inner: str
    sasl: int
    ssl: int

    def uri(self, topic: str, port: int, host: str = "127.0.0.1", **parameters: str) -> str:
        """An address; `sasl_user` becomes `sasl-user`, and files are those of this broker by their names."""
        files = {name: str(self.home / word) for name, word in parameters.items() if name in {"ca", "cert", "key"}}
        given = {name.replace("_", "-"): value for name, value in (parameters | files).items()}
        query = "".join(f"&{name}={quote(value, safe='')}" for name, value in given.items())
        return f"kafka://{host}:{port}/{topic}?protocol=open-protocol{query}"

    def account(self, name: str, mechanism: ScramMechanism) -> None:
        """One more who is let in, with the same password as others."""
        wanted = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), SCRAM.encode())
        admin = AdminClient({"bootstrap.servers": self.inner})
        admin.alter_user_scram_credentials([wanted])[name].result(30)

    def events(self, topic: str) -> list[TopicEvent]:
        """What a topic holds, read by the inner door."""
        options = from_config({"protocol": "open-protocol"})
        held = messages(topics_to_read(self.inner, (topic,), options))
        return [event for key, value, _ in held for event in decode(key, value, options)]


def properties(home: Path, sasl: int, ssl: int) -> str:
    """The embedded broker's own, and two more listeners."""
    more = f",SASL_SSL://{{host}}:{sasl},SSL://{{host}}:{ssl}"
    text = brokers.PROPERTIES.replace("//{host}:{port}", "//{host}:{port}" + more) + LISTENERS.replace(
        "HOME", str(home)
    )
    text += LOGIN.format("plain", "plain.Plain", f' user_alice="{PLAIN}"')
    return text + "".join(LOGIN.format(f"scram-sha-{bits}", "scram.Scram", "") for bits in (256, 512))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker that lets in alice, bob and who has a certificate of ca's."""
    home = tmp_path_factory.mktemp("certificates")
    for name, by in (("ca", None), ("stranger", None), ("broker", "ca"), ("client", "ca")):
        make_certificate(home, name, by)
    (home / "broker.pem").write_text((home / "broker.key").read_text() + (home / "broker.crt").read_text())
    sasl, ssl = free_ports()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brokers, "PROPERTIES", properties(home, sasl, ssl))
        with running_broker() as broker:
            one = Guarded(home, broker.bootstrap, sasl, ssl)
            one.account("bob", ScramMechanism.SCRAM_SHA_256)
            one.account("bob", ScramMechanism.SCRAM_SHA_512)
            yield one


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """The Spark of this process."""
    from tidegate.spark.session import session

    started = session()
    yield started
    started.stop()


def names(**given: str) -> dict[str, str]:
    """The same as keyword arguments of an address."""
    return {name.replace("-", "_"): value for name, value in given.items()}


def test_through_guarded_doors(guarded: Guarded, spark: Any, tmp_path: Path) -> None:
    """From a log into a topic by PLAIN, from there into another one by SCRAM-256 and SCRAM-512 out of a file, and into
    a lake by a client certificate: rows, DDLs and resolved ts come through, and no password is said."""
    upstream = Upstream(1, tmp_path / "log")
    upstream.run(
        "INSERT INTO a VALUES (1, 1, 1), (2, 2, 2); ALTER TABLE a ADD COLUMN w INT; INSERT INTO b VALUES (3, 3, 3)"
    )
    upstream.writer.write(empty=True)
    ends = ["--state-dir", str(tmp_path / "state"), "--stop-when-idle", "0.5"]
    first = guarded.uri("first", guarded.sasl, ca="ca.crt", **names(**ALICE))
    written = cli("run", "--source-uri", f"tidb://{tmp_path / 'log'}", "--sink-uri", first, "--filter", "test.*", *ends)
    assert written.exit_code == 0, written.output
    held = guarded.events("first")
    assert {type(event) for event in held} == {Insert, Ddl, Resolved}
    assert len({str(e) for e in held if isinstance(e, Insert)}) == 3
    assert max(e.ts for e in held if isinstance(e, Resolved)) == upstream.writer.low

    file, ca = tmp_path / "copy.toml", f'ca = "{guarded.home / "ca.crt"}"\n'
    login = "".join(f'{name} = "{value}"\n' for name, value in BOB.items())
    file.write_text(
        f'[source]\n{ca}{login}sasl-mechanism = "scram-sha-256"\n'
        f'[sink.kafka-config]\n{ca}{login}sasl-mechanism = "SCRAM-SHA-512"\nenable-tls = true\n'
    )
    addresses = ["--source-uri", guarded.uri("first", guarded.sasl), "--sink-uri", guarded.uri("copy", guarded.sasl)]
    copied = cli("run", str(file), *addresses, *ends, "-c", "copy")
    assert copied.exit_code == 0, copied.output
    assert {type(event) for event in guarded.events("copy")} == {Insert, Ddl, Resolved}

    own = guarded.uri("copy", guarded.ssl, ca="ca.crt", cert="client.crt", key="client.key")
    landed = cli(
        "run", "--source-uri", own, "--sink-uri", f"delta://{tmp_path / 'lake'}", "--until", str(upstream.writer.low)
    )
    assert landed.exit_code == 0, landed.output
    lake = tidegate.lake(str(tmp_path / "lake"))
    assert {name: stored(lake, name) for name in "ab"} == {name: upstream.rows(name) for name in "ab"}
    assert not told_secrets(tmp_path / "state", written.output + copied.output + landed.output)
    assert not told_secrets(tmp_path / "lake", "")


def told_secrets(directory: Path, *texts: str) -> list[str]:
    """The passwords that stand in texts or in the files of a directory."""
    held = [path.read_bytes().decode(errors="replace") for path in directory.rglob("*") if path.is_file()]
    secrets = {form for word in (PLAIN, SCRAM, WRONG) for form in (word, quote(word, safe=""))}
    return [secret for secret in secrets for text in (*texts, *held) if secret in text]


REFUSED = {
    "wrong password": (
        {"ca": "ca.crt", "sasl-user": "alice", "sasl-password": WRONG},
        "Invalid username or password.*; check sasl-user, sasl-password and sasl-mechanism",
    ),
    "wrong password, SCRAM": (
        {"ca": "ca.crt", "sasl-user": "bob", "sasl-password": WRONG, "sasl-mechanism": "SCRAM-SHA-512"},
        "invalid credentials with SASL mechanism SCRAM-SHA-512",
    ),
    "a broker that nobody trusts": (
        {"enable-tls": "true", **ALICE},
        "certificate verify failed.*; check ca, cert, key",
    ),
    "a broker that others trust": ({"ca": "stranger.crt", **ALICE}, "certificate verify failed"),
    "another name": ({"ca": "ca.crt", "host": "localhost", **ALICE}, "certificate verify failed.*name in the broker's"),
}
"""What is given, and what is said."""


def refused(guarded: Guarded, case: str) -> str:
    """What is wrong with the errors of a case, that of a writer and that of a reader."""
    given, reason = REFUSED[case]
    uri = guarded.uri("first", guarded.sasl, **names(**given))
    with pytest.raises(LoginRefused) as sink:
        parse_target(uri).writer().partitions("first")
    with pytest.raises(SourceError) as source:
        watermarks(kafka_topics(uri))
    told = [str(sink.value), str(source.value)]
    wanted = re.compile(f"broker .*:{guarded.sasl} rejects the client: .*{reason}")
    strange = [text for text in told if not wanted.match(text)]
    return "".join(strange) or " ".join(told_secrets(guarded.home / "none", *told))


def test_who_is_not_let_in_hears_why(guarded: Guarded) -> None:
    """Writers and readers, in seconds: broker, reason, what to look at, and not the password."""
    began_s = time.monotonic()
    with ThreadPoolExecutor(len(REFUSED)) as threads:
        wrong = dict(zip(REFUSED, threads.map(lambda case: refused(guarded, case), REFUSED), strict=True))

    assert wrong == dict.fromkeys(REFUSED, "")
    assert time.monotonic() - began_s < writers.WAIT_S / 2


def test_without_a_certificate_of_ones_own(guarded: Guarded) -> None:
    """A broker that asks for one closes the door; a file that is not there is named, before any broker is asked."""
    with pytest.raises(LoginRefused, match=f":{guarded.ssl} rejects the client: .*alert.*; check ca, cert, key"):
        parse_target(guarded.uri("first", guarded.ssl, ca="ca.crt")).writer().partitions("first")
    nowhere = guarded.uri("first", guarded.ssl, ca="nowhere.crt")
    with pytest.raises(ConfigError, match=r"; ca is .*nowhere\.crt: is it there"):
        parse_target(nowhere).writer()
    with pytest.raises(ConfigError, match=r"; ca is .*nowhere\.crt: is it there"):
        watermarks(kafka_topics(nowhere))


def test_insecure_skip_verify(guarded: Guarded) -> None:
    """Neither who made the broker's certificate counts, nor for which name."""
    given = names(**ALICE, **{"enable-tls": "true", "insecure-skip-verify": "true"})
    writer = parse_target(guarded.uri("skipped", guarded.sasl, "localhost", **given)).writer()
    assert writer.partitions("skipped") == 3
    writer.send("skipped", 1, b"k", b"v")
    writer.flush()

    assert watermarks(kafka_topics(guarded.uri("skipped", guarded.sasl, **given)))["skipped"][1] == (0, 1)


def test_a_password_that_is_changed_under_way(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that asks for nothing but to write hears the reason too."""
    monkeypatch.setattr(writers, "WAIT_S", 2.0)
    uri = guarded.uri("first", guarded.sasl, **names(**REFUSED["wrong password"][0]))
    one, other = (parse_target(uri).writer() for _ in range(2))
    with pytest.raises(LoginRefused, match=r"topic first partition 0: .*Invalid username or password"):
        one.send("first", 0, None, b"1")
    other._created.add("first")
    other.send("first", 0, None, b"1")
    with pytest.raises(LoginRefused, match=r"has not acknowledged 1 messages .*Invalid username or password"):
        other.flush()
    other.abandon()


def test_a_feed_that_is_not_let_in_says_so(guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning after the first try, failed after the last; the password is in no report, file or log."""
    caplog.set_level(logging.DEBUG)
    Upstream(1, tmp_path / "log").writer.write(empty=True)
    sink = guarded.uri("never", guarded.sasl, **names(**REFUSED["wrong password"][0]))
    words = ["--state-dir", str(tmp_path / "state"), "--json", "-c", "feed"]
    done = cli("run", "--source-uri", f"tidb://{tmp_path / 'log'}?max-retry=1", "--sink-uri", sink, *words)
    kept = status(tmp_path / "state")

    assert done.exit_code == 1
    states = [state for state, _ in groupby(json.loads(line)["state"] for line in done.stdout.splitlines())]
    assert states == ["pending", "warning", "failed"]
    assert "CDC:ErrKafkaNewProducer" in done.stderr
    error = kept["error"]
    assert isinstance(error, dict)
    assert (kept["state"], error["code"], error["tries"]) == ("failed", "CDC:ErrKafkaNewProducer", 2)
    assert f"127.0.0.1:{guarded.sasl} rejects the client" in error["message"]
    assert not told_secrets(tmp_path / "state", done.output, done.stderr, str(kept), caplog.text)


def test_an_account_that_is_made_late(guarded: Guarded, tmp_path: Path) -> None:
    """The feed waits for it, and goes on by itself: nothing has to be started again."""
    Upstream(1, tmp_path / "log").writer.write(empty=True)
    login = {"sasl-user": "carol", "sasl-password": SCRAM, "sasl-mechanism": "SCRAM-SHA-256"}
    sink = guarded.uri("late", guarded.sasl, ca="ca.crt", **names(**login))
    seen: list[str] = []

    def show(progress: Progress) -> None:
        if progress.state == "warning" and "warning" not in seen:
            guarded.account("carol", ScramMechanism.SCRAM_SHA_256)
        seen.append(progress.state)

    log, state = tmp_path / "log", tmp_path / "state"
    config = load(source_uri=f"tidb://{log}", sink_uri=sink, state_dir=state, rules=("test.*",))
    tidegate.Changefeed(config).run(on_progress=show, idle_s=0)

    assert [state for state, _ in groupby(seen)] == ["pending", "warning", "normal", "stopped"]
    assert {type(event) for event in guarded.events("late")} == {Ddl, Resolved}


def test_readers_that_are_not_let_in_end(guarded: Guarded, spark: Any, tmp_path: Path) -> None:
    """From topic to topic at once, into a lake when patience is over; each with code, broker and reason."""
    source = guarded.uri("first", guarded.sasl, max_retry="0", **names(**REFUSED["wrong password"][0]))
    file = tmp_path / "feed.toml"
    file.write_text('changefeed-error-stuck-duration = "1s"\n')
    for sink in (f"kafka://{guarded.inner}/never?protocol=open-protocol", f"delta://{tmp_path / 'lake'}"):
        state = ["--state-dir", str(tmp_path / "state")]
        done = cli("run", str(file), "--source-uri", source, "--sink-uri", sink, *state)
        assert done.exit_code == 1
        assert f"CDC:ErrSource: broker 127.0.0.1:{guarded.sasl} rejects the client" in done.stderr, sink
        assert "Invalid username or password" in done.stderr
        assert not told_secrets(tmp_path, done.output, done.stderr)
