"""Recordings of a real cluster, captured through the whole client, into topics and databases: at recorded timestamps
each has what SQL returned there, but for what the documentation says is not known or refused."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path

import msgspec
import pymysql
import pytest
from pymysql.constants import CLIENT

from tests.e2e.pairs import Pair, World
from tests.e2e.rig import PROTOCOLS
from tests.mariadb import Server, connected, running_server
from tests.replay.stage import Stage
from tests.source.tidb import modify_recording
from tests.source.tidb.test_shown_log import switches
from tests.tikv.captured import Captured, captured
from tests.tikv.replayed import modify, recorded_ddls, workload
from tests.tikv.through import Count, compare_database, within_ddls
from tests.tikv.truth import modify_truths, workload_truths
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.model.errors import SinkRefused
from tidegate.model.mysql import ActionType
from tidegate.sink.sql.connection import SqlOptions, TargetSession, probe
from tidegate.sink.sql.ddl_ledger import list_ddls
from tidegate.verify.local import Truth, lake_at
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

SEED = 44
MOMENTS = 40
AT_ONCE = 8
"""Moments of which a lake publishes the first; the others are read from its live view."""
RECORDINGS = {"workload": (workload, workload_truths), "modify": (modify, modify_truths)}
REFUSED = {"shop.dropme": 4, "shop.flashed": 1}
"""Tables with a RECOVER TABLE and a FLASHBACK TABLE, which MariaDB has not (docs/formats/ddl-targets.md), and how many
DDLs they have."""
ZONES = {"md.t04.t1", "md.t04.t2", "md.t16.q2", "md.t16.q3"}
"""Columns whose values a DDL made in the time zone of its session, which no message tells (docs/conversions.md)."""
_COLUMN = re.compile(r"\S+ \d+ (\S+): row \(.*?\) column (\w+)")
Logs = Callable[[str], Captured]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    """Recordings by their names, each captured once."""
    with ExitStack() as stack:

        @cache
        def of(name: str) -> Captured:
            return stack.enter_context(captured(RECORDINGS[name][0](), SEED, tmp_path_factory.mktemp(name) / "log"))

        yield of


def settled(truths: Iterable[Truth], log: Path) -> Iterator[Truth]:
    """Truths by time, those at the very timestamp of a MODIFY that rewrites rows as of one timestamp later: rows with a
    value of their own follow it."""
    late = switches(log)
    for truth in sorted(truths, key=lambda truth: truth.ts):
        yield msgspec.structs.replace(truth, ts=truth.ts + (truth.ts in late))


def told(name: str, count: Count) -> None:
    """Say what was compared, and that nothing was wrong."""
    sys.stdout.write(f"{name}, seed {SEED}: {count}\n")
    assert not count.wrong, "\n".join(count.wrong[:20])
    assert count.rows


def landed_ddls(lake: Path, begin: int) -> list[int]:
    """The kinds of the DDLs that a lake has landed, in their order; a RENAME of several tables is one."""
    changelog = Changelog(changelog_uri(str(lake)))
    changelog.refresh()
    found: dict[int, list[int]] = {}
    for placed in changelog.ddls(begin, 1 << 62):
        found.setdefault(placed.ddl.commit_ts or 0, []).append(placed.ddl.type)
    return [kinds[0] if len(kinds) == 1 else ActionType.RENAME_TABLES for kinds in found.values()]


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(("workload", 1), marks=pytest.mark.more, id="workload"),
        pytest.param(("modify", 20), marks=pytest.mark.more, id="modify-20"),
        pytest.param(("modify", 1), marks=pytest.mark.soak, id="modify"),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_folds_to_what_sql_returned(
    tmp_path: Path, bootstrap: str, logs: Logs, sample: tuple[str, int], protocol: str
) -> None:
    """A topic of a real Kafka, read by key into a lake, has every recorded moment, and all DDLs in order."""
    name, step = sample
    count, feed, lake = Count(), logs(name), tmp_path / "landed"
    world = World(name, {"tikv": ""}, feed.recording.end, lambda _: (), lambda _: ())
    pair = Pair(world, "tikv", f"kafka-{protocol}", bootstrap, tmp_path)
    keyless = tmp_path / "keyless.toml"
    keyless.write_text("force-replicate = true\n")
    feed.run(pair.sink_uri, feed.recording.end, tmp_path / "state", path=keyless)
    written = pair._written()
    stage = Stage(lake, PROTOCOLS[protocol], written)
    while stage.land(max(map(len, written.values()))):
        pass
    truths = sorted(RECORDINGS[name][1](range(feed.begin, feed.recording.end + 1)), key=lambda truth: truth.ts)
    for number, truth in enumerate(truths[::step]):
        if number % AT_ONCE == 0:
            stage.round(truth.ts)
        with lake_at(str(lake), truth.ts, lambda *table, truth=truth: ".".join(table) in truth.tables) as (reader, _):
            count.compare(truth, reader, once=True)
    columns = [(each, _COLUMN.match(each)) for each in count.wrong]
    unknown = {each: ".".join(match.groups()) for each, match in columns if match}
    count.wrong = [each for each in count.wrong if unknown.get(each) not in ZONES]
    told(f"{name}, {protocol}", count)
    assert {*unknown.values()} == (ZONES if name == "modify" else set())
    assert landed_ddls(lake, feed.begin) == recorded_ddls(feed.recording)


@contextmanager
def server(kind: str, home: Path) -> Iterator[Server]:
    """An empty database."""
    if kind == "mariadb":
        with running_server(home) as found:
            yield found
        return
    upstream = start_upstream(UpstreamOptions())
    try:
        port = upstream.port_of(1)
        with closing(connected(port)) as connection:
            yield Server(port, connection)
    finally:
        stop_upstream(upstream)


def load_zone(found: Server, zone: str) -> None:
    """Load a time zone into a server, as the refusal of a DDL says."""
    words = ["mysql_tzinfo_to_sql", f"/usr/share/zoneinfo/{zone}", zone]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    account = {"host": "127.0.0.1", "port": found.port, "user": "root", "database": "mysql"}
    with (
        closing(pymysql.connect(**account, client_flag=CLIENT.MULTI_STATEMENTS)) as session,
        session.cursor() as cursor,
    ):
        cursor.execute(text)
        while cursor.nextset():
            pass


def moments_of(name: str) -> list[Truth]:
    """The truths that are compared in databases: all, or 40 of which SEED draws some."""
    if name == "workload":
        return list(workload_truths())
    every = sorted({truth.ts for truth in modify_recording.truths()} - {modify().ts0})
    return list(modify_truths(within_ddls(every, SEED, MOMENTS)))


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize(
    "kind", [pytest.param("mariadb", marks=pytest.mark.more), pytest.param("tidb", marks=pytest.mark.soak)]
)
def test_a_database_has_what_sql_returned(tmp_path: Path, logs: Logs, name: str, kind: str) -> None:
    """Stopped and started anew at timestamps spread over the recording, one inside each kind of DDL among them."""
    zones: list[str] = []
    count, feed, refused = Count(), logs(name), REFUSED if kind == "mariadb" else {}
    rules = ("*.*", *(f"!{table}" for table in refused))
    with server(kind, tmp_path / "server") as found:

        def run(until: int) -> None:
            try:
                feed.run(sink, until, tmp_path / "state", rules=rules)
            except SinkRefused as refusal:
                zones.extend(re.findall(r"depend on the time zone (\S+) .*mysql_tzinfo_to_sql", str(refusal)))
                load_zone(found, zones[0])
                feed.run(sink, until, tmp_path / "state", rules=rules)

        sink = f"{'mysql' if kind == 'mariadb' else 'tidb'}://root@127.0.0.1:{found.port}/"
        for truth in settled(moments_of(name), feed.log):
            tables = {table: rows for table, rows in truth.tables.items() if table not in refused}
            run(truth.ts)
            compare_database(count, found, msgspec.structs.replace(truth, tables=tables))
        run(feed.recording.end)
        with closing(TargetSession(SqlOptions("verify", "127.0.0.1", found.port))) as session:
            session.prepare(probe(session))
            ledger = list_ddls(session, "feed", every=True)
    told(f"{name}, {kind}", count)
    assert zones == (["America/New_York"] if (name, kind) == ("modify", "mariadb") else [])
    assert {ddl.state for ddl in ledger} <= {"done", "skipped"}
    done = {ddl.ddl_ts for ddl in ledger if ddl.ddl_ts >= feed.begin}
    left_out = sum(refused.values()) if name == "workload" else 0
    assert len(done) == len(recorded_ddls(feed.recording)) - left_out
