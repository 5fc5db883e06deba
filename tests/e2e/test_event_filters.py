"""Event filters of a changefeed that reads a topic: into a lake and into another topic, on a real broker."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidegate
from tests.e2e.rig import Topic, cli
from tests.engine.test_chain import Upstream
from tests.source.tidb.kit import Broker, feed, target
from tests.sources import topics_to_read
from tidegate.codec import decode, from_config
from tidegate.model.event import Ddl, Resolved, RowChange, images
from tidegate.source.kafka_fetch import messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PROTOCOLS = {"open": "open-protocol", "canal": "canal-json"}
SQL = (
    "CREATE TABLE k (id INT PRIMARY KEY, s VARCHAR(9), d DECIMAL(9, 2), e ENUM('x', 'y'))",
    "INSERT INTO a VALUES (1, 1, 1), (2, -1, 2), (3, 3, 3); INSERT INTO b VALUES (1, -1, 1)",
    "INSERT INTO k VALUES (1, 'one', 1.5, 'x'), (2, 'two', 2.5, 'y'), (3, 'three', 3.5, 'x'), (4, 'four', 4, 'x')",
    "DELETE FROM a WHERE id = 1; UPDATE a SET v = 13 WHERE id = 3; DELETE FROM b WHERE id = 1",
    "UPDATE k SET s = 'gone' WHERE id = 1; UPDATE k SET s = 'still' WHERE id = 3; UPDATE k SET d = 9 WHERE id = 4",
    "CREATE INDEX i ON k (s); TRUNCATE TABLE b; INSERT INTO b VALUES (2, 2, 2)",
)
FILTERS = """
[filter]
rules = ["test.*", "!test.c"]
[[filter.event-filters]]
matcher = ["test.a"]
ignore-event = ["delete"]
ignore-insert-value-expr = "v < 0"
[[filter.event-filters]]
matcher = ["test.k"]
ignore-update-new-value-expr = "s = 'gone'"
ignore-update-old-value-expr = "s like 'f%' and d = 4"
[[filter.event-filters]]
matcher = ["test.b"]
ignore-event = ["truncate table", "delete"]
"""
A, B = {1: 1, 3: 13}, {1: -1, 2: 2}
K = {1: "one", 2: "two", 3: "still", 4: "four"}


def made(bootstrap: str, kind: str, name: str, home: Path, sql: Sequence[str] = SQL) -> Topic:
    """A topic of two partitions with what an upstream did."""
    upstream, broker = Upstream(1, home / "log"), Broker(2)
    for each in sql:
        upstream.run(each)
    upstream.writer.write(empty=True)
    rules = ({"matcher": ["*.*"], "partition": "index-value"},)
    feed(home / "log", target(broker, PROTOCOLS[kind], rules), home / "state", rules=("test.*",)).run(idle_s=0)
    return Topic.fed(bootstrap, name, kind, [broker.messages["feed", number] for number in range(2)])  # type: ignore[misc]


@pytest.mark.parametrize("kind", PROTOCOLS)
def test_a_lake(spark: "SparkSession", bootstrap: str, tmp_path: Path, kind: str) -> None:
    """Rows are judged by what their messages say, DDLs by their kind, which canal-json does not name."""
    topic, file = made(bootstrap, kind, f"filtered-{kind}", tmp_path), tmp_path / "feed.toml"
    file.write_text(FILTERS)
    words = ("--source-uri", topic.uri(), "--sink-uri", f"delta://{tmp_path / 'lake'}", "--stop-when-idle", "1")
    result = cli("run", str(file), *words)

    assert result.exit_code == 0, result.output
    lake = tidegate.lake(str(tmp_path / "lake"))
    assert lake.tables() == ["test.a", "test.b", "test.k"]
    held = {name: {row["id"]: row for row in lake.arrow(f"test.{name}").to_pylist()} for name in "abk"}
    assert {key: row["v"] for key, row in held["a"].items()} == A
    assert {key: row["v"] for key, row in held["b"].items()} == B
    assert {key: row["s"] for key, row in held["k"].items()} == K
    assert str(held["k"][4]["d"]) == "4.00"


@pytest.mark.parametrize(
    ("kind", "rule", "code"),
    [
        ("canal", "ignore-insert-value-expr = \"e = 'x'\"", "ErrExpressionParseFailed"),
        ("open", 'ignore-delete-value-expr = "nothing = 1"', "ErrExpressionColumnNotFound"),
    ],
)
def test_rows_that_cannot_be_judged(  # noqa: PLR0917
    spark: "SparkSession",
    bootstrap: str,
    tmp_path: Path,
    kind: str,
    rule: str,
    code: str,
) -> None:
    """Their messages are bad ones: the feed stops before the first of them, and names table, ts and way out."""
    sql = (SQL[0], SQL[2], "DELETE FROM k WHERE id = 1")
    topic, file = made(bootstrap, kind, f"unjudged-{kind}", tmp_path, sql), tmp_path / "feed.toml"
    file.write_text(f'[[filter.event-filters]]\nmatcher = ["test.k"]\n{rule}\n')
    words = ("--source-uri", topic.uri(), "--sink-uri", f"delta://{tmp_path / 'lake'}", "--stop-when-idle", "1")
    result = cli("run", str(file), *words)

    assert result.exit_code == 1
    told = " ".join(result.stderr.split())
    assert f"CDC:{code}" in told
    assert "test.k" in told
    assert "at commit_ts" in told


def shown(topic: Topic, name: str, kind: str) -> list[RowChange | Ddl]:
    """The rows and DDLs of a topic."""
    options, found = from_config({"protocol": PROTOCOLS[kind]}), list[RowChange | Ddl]()
    for key, value, _ in messages(topics_to_read(topic.bootstrap, (name,), options)):
        found += [event for event in decode(key, value, options) if not isinstance(event, Resolved)]
    return found


def key_of(row: RowChange) -> object:
    """The value of `id`, wherever it stands."""
    before, after = images(row)
    return dict(zip([field.name for field in row.fields], after or before or (), strict=True))["id"]


@pytest.mark.parametrize(
    ("kind", "other", "command"),
    [
        ("open", "canal", "run"),
        ("canal", "open", "transcode"),
        pytest.param("canal", "open", "run", marks=pytest.mark.soak),
        pytest.param("open", "canal", "transcode", marks=pytest.mark.soak),
    ],
)
def test_a_topic(bootstrap: str, tmp_path: Path, kind: str, other: str, command: str) -> None:
    """The other topic has what the filters leave, tables of the rules alone; `transcode` counts what is left out."""
    topic, file = made(bootstrap, kind, f"sieved-{command}-{kind}", tmp_path), tmp_path / "feed.toml"
    file.write_text(FILTERS)
    name = f"sieved-{command}-to-{other}"
    sink = f"kafka://{bootstrap}/{name}?protocol={PROTOCOLS[other]}&partition-num=1&enable-tidb-extension=true"
    words = {
        "run": [str(file), "--source-uri", topic.uri(), "--sink-uri", sink, "--state-dir", str(tmp_path / "kept")],
        "transcode": ["--config", str(file), "--from", topic.uri(), "--to", sink],
    }
    result = cli(command, *words[command], "--stop-when-idle", "1", "--json")

    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    found = shown(topic, name, other)
    rows = [event for event in found if not isinstance(event, Ddl)]
    ddls = {event.query.split(" (")[0] for event in found if isinstance(event, Ddl)}
    assert ddls == {"CREATE TABLE a", "CREATE TABLE b", "CREATE TABLE k", "CREATE INDEX i ON k"}
    left = [(type(row).__name__, row.table, key_of(row)) for row in rows]
    assert sorted(left) == [
        ("Insert", "a", 1),
        ("Insert", "a", 3),
        ("Insert", "b", 1),
        ("Insert", "b", 2),
        ("Insert", "k", 1),
        ("Insert", "k", 2),
        ("Insert", "k", 3),
        ("Insert", "k", 4),
        ("Update", "a", 3),
        ("Update", "k", 3),
    ]
    assert report["rows"] == len(rows)
    assert command == "run" or (report["left_out"], report["refused"]) == (7, 0)


OLD_VALUES = "[sink.open]\noutput-old-value = false\n"
RULE = '[[filter.event-filters]]\nmatcher = ["a.b"]\n'


@pytest.mark.parametrize("sink", ["delta:///x", "kafka://h/u?protocol=canal-json&enable-tidb-extension=true"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[filter]\nignore-txn-start-ts = [1]", "messages do not contain the start_ts"),
        (f'{OLD_VALUES}{RULE}ignore-event = ["update"]', "UPDATEs look like INSERTs"),
        (f'{OLD_VALUES}{RULE}ignore-insert-value-expr = "x = 1"', "UPDATEs look like INSERTs"),
        ("bdr-mode = true", "bdr-mode"),
        ('[consistent]\nlevel = "eventual"', "consistent.level"),
        ("enable-sync-point = true", "sync points are for databases"),
        ('[sink]\ndispatchers = [{matcher = ["a.b"], target-schema = "c"}]', "target-schema"),
        ('[filter]\nignore-dml-event-filter = ["insert"]', "filter.ignore-dml-event-filter"),
    ],
)
def test_what_messages_do_not_tell(tmp_path: Path, sink: str, text: str, told: str) -> None:
    """Rules that would need it are refused before anything is read, and so are keys that would act elsewhere."""
    refused(tmp_path, sink, text, told)


def test_columns_are_chosen_where_a_topic_is_made(bootstrap: str, tmp_path: Path) -> None:
    """A feed from topic to topic sends the chosen columns alone; `transcode` passes messages on and refuses to."""
    topic, file = made(bootstrap, "open", "chosen-open", tmp_path, SQL[:3]), tmp_path / "feed.toml"
    file.write_text('[sink]\ncolumn-selectors = [{matcher = ["test.k"], columns = ["id", "d"]}]')
    sink = f"kafka://{bootstrap}/chosen?protocol=canal-json&enable-tidb-extension=true&partition-num=1"
    uris = "--source-uri", topic.uri(), "--sink-uri", sink
    done = cli("run", str(file), *uris, "--state-dir", str(tmp_path / "kept"), "--stop-when-idle", "1")
    transcoded = cli("transcode", "--config", str(file), "--from", topic.uri(), "--to", sink)

    assert done.exit_code == 0, done.stderr
    rows = [event for event in shown(topic, "chosen", "canal") if not isinstance(event, Ddl)]
    names = {(row.table, tuple(sorted(field.name for field in row.fields))) for row in rows}
    assert names == {("a", ("id", "u", "v")), ("b", ("id", "u", "v")), ("k", ("d", "id"))}
    assert transcoded.exit_code == 1
    assert "sink.column-selectors[].matcher" in transcoded.stderr


def refused(tmp_path: Path, sink: str, text: str, told: str) -> None:
    """Runs a feed from a topic with that file, which ends at once with an error."""
    file = tmp_path / "feed.toml"
    file.write_text(text)
    result = cli("run", str(file), "--source-uri", "kafka://h/t?protocol=open-protocol", "--sink-uri", sink)

    assert result.exit_code == 1
    assert told in " ".join(result.stderr.split())
    assert "CDC:Err" in result.stderr
