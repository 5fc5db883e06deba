"""A topic that a real TiCDC wrote, from its middle, behind a load of a server that holds what the TiDB held at S.

topic   ── up to S ──► embedded TiDB: the truth at S ── load, tidb_snapshot off ──┐
└───── cut before S, with what TiCDC sent again ──► changelog ── above S ───────┴──► lake: the truth, ever after
"""

from pathlib import Path

import msgspec
import pymysql
import pytest

from tests.mariadb import Server
from tests.real_topics import LEFT_OUT, TOPICS, differences, messages, tellable, truths
from tests.recorded import RecordedLanding
from tests.replay.test_database import unlike
from tests.replay.test_real_topics import LONG_NUMBERS, UNKNOWN_TO_OURS, rules, source_of
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import ChangelogSource
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.engine.filter import TableFilter
from tidegate.engine.load import LoadingSource
from tidegate.engine.load_plan import KeptPlan
from tidegate.engine.ports import LocalTasks
from tidegate.model.event import Resolved
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.source.kafka_messages import TopicMessage
from tidegate.source.load_sql import SqlReader
from tidegate.source.upstream_address import Address, SqlLoadOptions
from tidegate.testing.script import run_here
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = [pytest.mark.slow, pytest.mark.more]

BEGIN, LOADED = 1, 3
"""The truths at which the topic begins and of which the load is."""


def middle(topic: str, begin: int, ts: int) -> dict[int, list[TopicMessage]]:
    """The messages behind the first watermark at or above `begin`, by partition; those before are of `ts` at most."""
    options, left = DecodeOptions(protocol=TOPICS[topic][1]), dict[int, list[TopicMessage]]()
    for number, some in messages(topic).items():
        for at, message in enumerate(some):
            events = list(decode(message.key, message.value, options))
            marks = [event.ts for event in events if isinstance(event, Resolved)]
            assert all((event.commit_ts or 0) <= ts for event in events if not isinstance(event, Resolved))
            if any(begin <= mark <= ts for mark in marks):
                left[number] = some[at + 1 :]
                break
    assert left.keys() == messages(topic).keys()
    return left


@pytest.mark.parametrize("topic", ["new/open", "new/canal"])
def test_from_the_middle(tmp_path: Path, topic: str) -> None:
    """The lake equals the TiDB at S and at each later moment: no row is lost or doubled at the seam."""
    known, without = truths(topic), {*LEFT_OUT[topic], *UNKNOWN_TO_OURS}
    ts, lake = known[LOADED].ts, str(tmp_path / "lake")
    accept = TableFilter.parse(rules(without)).matches
    upstream = start_upstream(UpstreamOptions())
    try:
        port = upstream.port_of(1)
        with pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True) as open_:
            into = SqlSink(SqlOptions("f", "127.0.0.1", port))
            run_here(source_of(topic, tmp_path, str(tmp_path / "log")), into, until=ts, rules=rules(without))
            assert list(unlike(Server(port, open_), tellable(known[LOADED], without, LONG_NUMBERS))) == []
        landing = RecordedLanding(
            changelog_uri(lake), "f", DecodeOptions(protocol=TOPICS[topic][1]), middle(topic, known[BEGIN].ts, ts)
        )
        landing.start(LocalTasks())
        while landing.land(5000):
            pass
        address = Address("127.0.0.1", port, enable_tls=False)
        for truth in known[LOADED:]:
            source = LoadingSource(
                SqlReader(SqlLoadOptions(address, chunk_rows=500, snapshot=False)),
                KeptPlan(lake),
                accept,
                ChangelogSource(changelog_uri(lake)),
                ordered=False,
                ts=ts,
            )
            sink = DeltaSink(DeltaOptions(root=lake, feed="f", worker_count=1))
            done = run_here(source, sink, until=truth.ts, rules=rules(without))
            assert done.checkpoint_ts == truth.ts
            kept = {name: table for name, table in truth.tables.items() if name not in UNKNOWN_TO_OURS}
            seen = msgspec.structs.replace(truth, tables=kept)
            assert list(differences(tmp_path / "lake", seen, LONG_NUMBERS)) == []
    finally:
        stop_upstream(upstream)
