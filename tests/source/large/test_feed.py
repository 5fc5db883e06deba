"""The upstream, as the feed and as `tidegate decode` use it."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from pymysql.err import OperationalError

from tests.codec.encode_rows import TABLE, TS, delete, encoder, insert, update
from tests.counts import some
from tests.mariadb import AS_OF, QUOTED, Server
from tests.replay.hostile_kinds import split
from tests.replay.mutated import changed
from tests.source.kit import begin, land_batch
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.cli.main import main
from tidegate.codec import from_config
from tidegate.codec.stream import pack_frame
from tidegate.config.kafka import parse_source
from tidegate.config.uri import mask_uri
from tidegate.model.errors import ConfigError, SourceError, UriInvalid
from tidegate.model.event import Insert, Update
from tidegate.model.table import TableName
from tidegate.source import large as module
from tidegate.source.kafka_messages import LandPlan, TopicMessage, _reader, land_messages, recorded
from tidegate.source.kafka_replay import Bytes, replay, skip
from tidegate.source.large import UpstreamRows

LONG = "x" * 600


def messages(protocol: str = "open-protocol") -> list[TopicMessage]:
    """A small row, then an insert, an update and a delete that are too large."""
    extension = {"enable_tidb_extension": True} if protocol == "canal-json" else {}
    writer = encoder(
        protocol, large_message_handle_option="handle-key-only", max_message_bytes=500, max_batch_size=1, **extension
    )
    events = (insert(1, "small"), insert(2, LONG), update("y" * 600, LONG, 3), delete(4))
    made = [one for event in events for one in writer.append(event, TABLE)]
    return [TopicMessage(at, one.key, one.value) for at, one in enumerate([*made, *writer.flush()])]


def source(upstream: str, protocol: str = "open-protocol") -> str:
    """A source whose cut rows are read from `upstream`."""
    given = f"protocol={protocol}&enable-tidb-extension=true&large-message-upstream-uri={quote(upstream, safe='')}"
    return f"kafka://127.0.0.1:9092/t?{given}"


@pytest.fixture
def upstream(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that has the rows; what it had before the update is another text."""
    monkeypatch.setattr(module.sent, "AT_TS", AS_OF)
    text = "CREATE OR REPLACE TABLE s.t (id INT PRIMARY KEY, a VARCHAR(1000)) WITH SYSTEM VERSIONING"
    server.run("CREATE DATABASE IF NOT EXISTS s", text)
    server.at(TS - (1 << 20), f"INSERT INTO s.t VALUES (3, '{'y' * 600}'), (4, 'x')")
    server.at(TS, f"INSERT INTO s.t VALUES (2, '{LONG}')", f"UPDATE s.t SET a = '{LONG}' WHERE id = 3")
    _reader.cache_clear()
    return server


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_a_feed_lands_whole_rows(upstream: Server, protocol: str) -> None:
    """Rows cut down to their key land as the upstream had them, both images; a DELETE lands as it came."""
    read = parse_source(source(upstream.uri, protocol)).decode_options()

    landed = land_messages(messages(protocol), LandPlan("t", 0, read))

    assert landed.halt is None
    (table,) = landed.tables.values()
    found = {tuple(sorted(row["after"] or (), key=len)): row["before"] for row in table.to_pylist()}
    assert {(after[0], after[1][:3]) for after in found if after} == {(b"1", b"sma"), (b"2", b"xxx"), (b"3", b"xxx")}
    assert sorted(found[b"3", LONG.encode()], key=len) == [b"3", b"y" * 600]


@pytest.mark.slow
def test_decode_completes_rows(upstream: Server) -> None:
    """--complete-from prints whole rows; one that is not there comes as it was, with a line and status 1."""
    file = b"".join(pack_frame(one.key, one.value) for one in messages())
    words = ["decode", "--protocol", "open", "--complete-from", upstream.uri]

    good = CliRunner().invoke(main, words, input=file)
    upstream.run("SET timestamp = DEFAULT", "DROP TABLE s.t", "CREATE TABLE s.t (id INT PRIMARY KEY, a TEXT)")
    bad = CliRunner().invoke(main, words, input=file)

    assert (good.exit_code, good.stderr) == (0, "")
    lines = [json.loads(line) for line in good.stdout.splitlines()]
    assert [len(line["columns"] or line["pre_columns"]) for line in lines] == [2, 2, 2, 2]
    assert not [line for line in lines if "only_handle_key" in line]
    assert bad.exit_code == 1
    assert bad.stderr.count("warning CDC:ErrUpstreamRowMissing: message ") == 2
    assert QUOTED not in bad.stderr


def test_what_may_pass_fails_the_landing() -> None:
    """A database that does not answer makes no dead letters: the feed tries again."""
    read = parse_source(source("mysql://u:secret@127.0.0.1:1/")).decode_options()
    with pytest.raises(SourceError) as caught:
        land_messages(messages(), LandPlan("t", 0, read, skip_dead=True))
    assert caught.value.retry.value == "later"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@pytest.mark.parametrize("ts", [0, 1])
def test_no_snapshot_lies_before_the_first(protocol: str, ts: int) -> None:
    """A handle-key row of a time before which nothing was is a dead letter; nobody is asked, again and again."""
    read = parse_source(source("mysql://u:secret@127.0.0.1:1/", protocol)).decode_options()
    key, value = messages(protocol)[1][1:]
    given = split(protocol, key, value)
    given.at(ts)
    landed = land_messages([TopicMessage(0, *given.packed())], LandPlan("t", 0, read, skip_dead=True))
    assert [letter.error_code for letter in landed.letters] == ["CDC:ErrUpstreamRowMissing"]
    assert f"at ts {ts}" in landed.letters[0].error


def whole(event: Insert | Update) -> tuple[bytes | None, bytes | None]:
    """Key and value of the message of a row as it is."""
    writer = encoder()
    ((key, value, *_),) = [*writer.append(event, TABLE), *writer.flush()]
    return key, value


def canned(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the upstream have no row of the key, or refuse every statement with a number of its own."""

    def asked(_: object, statement: str, __: object = ()) -> Sequence[Sequence[bytes]]:
        if answer.isdigit():
            raise OperationalError(int(answer), "so it says")
        shown = b"CREATE TABLE `t` (`id` int NOT NULL, `a` varchar(1000), PRIMARY KEY (`id`))"
        return ((b"t", shown),) if "SHOW CREATE" in statement else ()

    monkeypatch.setattr(UpstreamRows, "_query", asked)


UNHAD = {"no row": "replay or skip", "9006": "replay or update", "1064": "skip"}
"""By what the upstream says: the ways out that the error names."""


@pytest.mark.parametrize(
    ("answer", "way"), [(answer, way) for answer, ways in UNHAD.items() for way in ways.split(" or ")]
)
def test_ways_out_of_a_row_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, way: str
) -> None:
    """The feed stands at its message, and goes on when that is skipped, or replayed with the whole row, or when it is
    left out and the row is sent again."""
    canned(answer, monkeypatch)
    lake, uri, cut = str(tmp_path), changelog_uri(str(tmp_path)), messages()[:2]
    read = parse_source(source("mysql://u@h/")).decode_options()
    (halt,) = land_batch(uri, begin(uri), {0: cut}, options=read).halted
    assert way in halt.reason.lower()

    rest = cut[1:]
    if way == "skip":
        skip(lake, halt.position)
    elif way == "replay":
        replay(lake, halt.position, Bytes(*whole(insert(2, LONG))), checkpoint_ts=0)
    else:
        rest.append(TopicMessage(2, *whole(update("x", LONG, 2))))
    known = {place.offset: one for place, one in recorded(lake).items()}
    state = land_batch(uri, begin(uri), {0: rest}, options=read, resolutions=known, skip_dead=way == "update")

    assert state.halted == ()
    log = Changelog(uri)
    log.refresh()
    offsets = log.slice(0, TS).read(TableName("s", "t")).column("offset").to_pylist()
    assert offsets == {"skip": [0], "replay": [0, 1], "update": [0, 2]}[way]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_no_handle_key_row_stops_the_landing(upstream: Server, protocol: str) -> None:
    """Whatever was changed in such a message, it lands, is left out as another table's, or is a dead letter."""
    read, cut = parse_source(source(upstream.uri, protocol)).decode_options(), messages(protocol)[1:3]
    plan = LandPlan("t", 0, read, skip_dead=True)
    letters = 0
    for seed in range(some(100, 10_000)):
        chance = random.Random(f"{protocol}-{seed}")
        given = split(protocol, *chance.choice(cut)[1:])
        part = "key" if given.open and chance.random() < 0.6 else "value"
        setattr(given, part, changed(getattr(given, part), chance))
        letters += len(land_messages([TopicMessage(0, *given.packed())], plan).letters)
    assert letters


def test_decode_says_that_nobody_answers() -> None:
    """One line that names the server and not the password; what came before is printed."""
    file = b"".join(pack_frame(one.key, one.value) for one in messages())
    words = ["decode", "--protocol", "open", "--complete-from", "mysql://u:secret@127.0.0.1:1/"]
    shown = CliRunner().invoke(main, words, input=file)
    assert shown.exit_code == 1
    assert shown.stderr.startswith("error CDC:ErrSource: s.t at ts")
    assert "127.0.0.1:1" in shown.stderr
    assert "secret" not in shown.stderr


@pytest.mark.parametrize("uri", ["mysql://u:secret@/", "postgres://u:secret@h/"])
def test_wrong_addresses_are_said_at_once(uri: str) -> None:
    """Before any message is read, and without the password."""
    with pytest.raises(UriInvalid, match="large-message-upstream-uri") as caught:
        parse_source(source(uri))
    shown = CliRunner().invoke(main, ["decode", "--protocol", "open", "--complete-from", uri], input=b"")
    assert shown.exit_code in {1, 2}
    assert "secret" not in str(caught.value) + shown.stderr


def test_the_password_is_shown_nowhere() -> None:
    """A source prints without it, and a masked URI has none."""
    uri = source("mysql://u:secret@h:4000/")
    assert "secret" not in repr(parse_source(uri))
    assert "secret" not in mask_uri(uri)
    assert "h%3A4000" in mask_uri(uri) or "xxxxx" in mask_uri(uri)


def test_the_command_line_wins_and_shows_nothing() -> None:
    """--complete-from stands before the address's own upstream; two that disagree are told without their passwords."""
    keys = ("large-message-upstream-uri", "uri.large-message-upstream-uri")
    with pytest.raises(ConfigError) as caught:
        from_config({"protocol": "open", keys[0]: "mysql://u:other@h/", keys[1]: "mysql://u:secret@h/"})
    assert "disagree" in str(caught.value)
    assert "secret" not in str(caught.value)
    words = ["--set", "large-message-upstream-uri=mysql://u:secret@h/", "--complete-from", "postgres://h/"]
    shown = CliRunner().invoke(main, ["decode", "--protocol", "open", *words], input=b"")
    assert "disagree" not in shown.stderr
    assert "secret" not in shown.stderr


def test_without_an_upstream_the_letter_says_so() -> None:
    """A cut row that nobody can complete names the parameter that would."""
    landed = land_messages(
        messages(), LandPlan("t", 0, parse_source("kafka://h/t?protocol=open-protocol").decode_options())
    )
    assert landed.halt is not None
    assert landed.halt.code == "CDC:ErrHandleKeyOnly"
    assert "large-message-upstream-uri" in landed.halt.reason


def test_accounts_and_servers_of_the_wrong_kind_stop_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only a person can mend is neither a dead letter nor tried again."""

    def refused(*_: Any) -> Any:
        raise ConfigError("no TiDB")

    monkeypatch.setattr("tidegate.source.large.UpstreamRows.whole", refused)
    read = parse_source(source("mysql://u@h/")).decode_options()
    with pytest.raises(ConfigError):
        land_messages(messages(), LandPlan("t", 0, read, skip_dead=True))
