"""Topics that a real TiCDC wrote of a real TiDB, in every target: at each recorded TSO it holds what the TiDB held."""

from collections.abc import Collection, Iterable
from pathlib import Path

import pymysql
import pytest

from tests.mariadb import Server, running_server
from tests.real_topics import LEFT_OUT, TOPICS, differences, files, messages, tellable, truths
from tests.recorded import RecordedLanding
from tests.replay.stage import Stage, moments
from tests.replay.test_database import unlike
from tests.source.storage.kit import Polled
from tests.sources import files_to_read
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import ChangelogSource, LandedSource
from tidegate.codec.options import DecodeOptions
from tidegate.engine.ports import LocalTasks, Source
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.source.storage_options import CanalDialect
from tidegate.testing.script import run_here
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = pytest.mark.slow

FILES, MORE = "files", [pytest.mark.more]
FIRST, *OTHERS = TOPICS
SOURCES = [FIRST, pytest.param(FILES, marks=MORE), *(pytest.param(one, marks=pytest.mark.soak) for one in OTHERS)]
BY_TIDB = {"new/open", FILES}
"""What an embedded TiDB gets behind `make test`; in the soak it gets all."""
UNKNOWN_TO_OURS = {"rc_types.jsonmv", "rc_gbk.g"}
"""Of the embedded TiDB: it has no indexes of many values, and no order of gbk_chinese_ci."""
REFUSED_BY_MARIADB = {"rc_ddl.tr", "rc_ddl.tr_fb", "rc_part.kk", "rc_part.l", "rc_part.l2", "rc_目录.表 格"}
"""RECOVER, FLASHBACK, TRUNCATE of a partition by KEY, a column's name that utf8mb3 lacks: see
docs/formats/ddl-targets.md."""
LONG_NUMBERS = {("rc_types.types", "j")}
"""A JSON number of 21 digits, which a TiDB before 9.0 prints in full, and the embedded one with an exponent."""


def source_of(topic: str, home: Path, lake: str) -> Source:
    """A topic, or the storage sink's files, that lands in a lake."""
    if topic == FILES:
        read = files_to_read(str(files(home)), "in", CanalDialect(DecodeOptions(protocol="canal-json")))
        return LandedSource(lambda: Polled(read, lake, "f"), changelog_uri(lake))
    landing = RecordedLanding(changelog_uri(lake), "f", DecodeOptions(protocol=TOPICS[topic][1]), messages(topic))
    landing.start(LocalTasks())
    while landing.land(5000):
        pass
    return ChangelogSource(changelog_uri(lake))


def rules(without: Iterable[str]) -> list[str]:
    """Filter rules for all tables but some."""
    return ["*.*", *("!`{}`.`{}`".format(*name.split(".", 1)) for name in without)]


@pytest.mark.parametrize(
    "topic", [pytest.param(one, marks=MORE if number else []) for number, one in enumerate(TOPICS)]
)
def test_lake(tmp_path: Path, topic: str) -> None:
    """A lake of a topic that comes bit by bit equals the TiDB at every TSO."""
    stage = Stage(tmp_path, TOPICS[topic][1], messages(topic), seed=1)

    for truth in moments(stage, truths(topic)):
        assert list(differences(tmp_path, truth)) == []


def test_lake_of_files(tmp_path: Path) -> None:
    """A lake of the storage sink's files equals the TiDB at every TSO, each reached by a run of its own."""
    lake = str(tmp_path / "lake")
    for truth in truths(FILES):
        source, sink = source_of(FILES, tmp_path, lake), DeltaSink(DeltaOptions(root=lake, feed="f", worker_count=1))
        run_here(source, sink, until=truth.ts, rules=rules(LEFT_OUT[FILES]))
        assert list(differences(tmp_path / "lake", truth)) == []


def replayed(home: Path, server: Server, topic: str, refused: Collection[str]) -> list[str]:
    """Bring a topic into a database, but for some tables; return what differs from the TiDB at the end."""
    truth, without = truths(topic)[-1], {*refused, *LEFT_OUT[topic]}
    source, sink = source_of(topic, home, str(home / "changelog")), SqlSink(SqlOptions("f", "127.0.0.1", server.port))
    run_here(source, sink, until=truth.ts, rules=rules(without))
    return list(unlike(server, tellable(truth, without, LONG_NUMBERS)))


@pytest.mark.parametrize("topic", SOURCES)
def test_mariadb(tmp_path: Path, topic: str) -> None:
    """A MariaDB equals the TiDB at the end."""
    with running_server(tmp_path) as server:
        assert replayed(tmp_path, server, topic, REFUSED_BY_MARIADB) == []


@pytest.mark.parametrize(
    "topic", [pytest.param(one, marks=MORE if one in BY_TIDB else pytest.mark.soak) for one in (*TOPICS, FILES)]
)
def test_tidb(tmp_path: Path, topic: str) -> None:
    """An embedded TiDB equals the TiDB at the end."""
    upstream = start_upstream(UpstreamOptions())
    try:
        port = upstream.port_of(1)
        with pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True) as open_:
            assert replayed(tmp_path, Server(port, open_), topic, UNKNOWN_TO_OURS) == []
    finally:
        stop_upstream(upstream)
