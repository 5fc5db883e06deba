"""A feed stays within the limits of docs/limits.md whatever its rows are like: those of benchmarks/shapes.py.

    topic of 300 MiB ──► tidegate run ──► lake                  landing and merging
    change log       ──► tidegate run ──► topic                 mounting and encoding

Peaks are logged (`--log-cli-level=INFO`), which is where docs/limits.md has them from.
"""

import sys
import uuid
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.counts import SOAK
from tests.e2e.rig import feed
from tests.memory.limits import beyond
from tests.memory.rig import watched
from tidegate_upstream.broker import MESSAGE_MAX_BYTES
from tidegate_upstream.demo.recorded import create_topic

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from backlog import write_backlog
from confluent_kafka.admin import AdminClient
from rig import send
from shapes import CASES, PROTOCOLS, TS, churn, topic_of

TOPIC_BYTES = (300 if SOAK else 40) << 20
SOME_ROWS = 300
PARTITIONS = 2
WIDEST = "120 columns", "canal-json"
EXTENSION = {"open-protocol": "", "canal-json": "&enable-tidb-extension=true"}
LARGE = """
[sink.kafka-config.large-message-handle]
large-message-handle-option = "handle-key-only"
"""


def cases(*, whole: bool) -> list[object]:
    """Each shape in each protocol that it is for; `make test-more` takes the widest, into a lake."""
    return [
        pytest.param(
            name,
            protocol,
            marks=(pytest.mark.slow, pytest.mark.more) if whole and (name, protocol) == WIDEST else pytest.mark.soak,
            id=f"{name}-{protocol}".replace(" ", "-"),
        )
        for (name, shape), protocol in product(CASES.items(), PROTOCOLS)
        if protocol in shape.protocols and (shape.whole or not whole)
    ]


@pytest.fixture
def topic(bootstrap: str) -> Iterator[str]:
    """A new topic, which goes when the test has ended: all of them would be too much for a disk in memory."""
    name = f"shapes-{uuid.uuid4().hex}"
    create_topic(bootstrap, name, PARTITIONS)
    yield name
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name], operation_timeout=30)[name].result(30)


def rows_for(name: str, protocol: str) -> int:
    """How many rows of a shape fill the topic."""
    sent = topic_of(churn(CASES[name], SOME_ROWS), CASES[name], protocol, tables=False, resolved=False)
    return SOME_ROWS * TOPIC_BYTES // sum(len(key or b"") + len(value) for _, key, value in sent)


@pytest.mark.parametrize(("name", "protocol"), cases(whole=True))
def test_into_a_lake(bootstrap: str, topic: str, tmp_path: Path, name: str, protocol: str) -> None:
    """A topic's backlog lands and is merged."""
    shape, rows = CASES[name], rows_for(name, protocol)
    send(bootstrap, topic, topic_of(churn(shape, rows), shape, protocol, partitions=PARTITIONS))
    source = f"kafka://{bootstrap}/{topic}?protocol={protocol}{EXTENSION[protocol]}"
    last = TS + ((rows - 1) // shape.together << 18)

    with watched(feed(source, tmp_path / "lake", "--until", str(last), moment=None), tmp_path / "home") as (run, seen):
        status, report = run.end()

    assert status == 0, run.stderr.read_text()[-2_000:]
    assert report["rows"] == rows
    assert beyond(seen.peaks) == {}, seen.peaks


@pytest.mark.parametrize(("name", "protocol"), cases(whole=False))
def test_from_a_change_log(bootstrap: str, topic: str, tmp_path: Path, name: str, protocol: str) -> None:
    """A log's backlog is mounted and becomes messages."""
    shape, config = CASES[name], tmp_path / "feed.toml"
    told = "".join(f"{key.replace('_', '-')} = true\n" for key, value in shape.encode.items() if value is True)
    config.write_text(f"[sink]\n{told}{'' if shape.whole else LARGE}")
    backlog = write_backlog(tmp_path / "log", name, rows_for(name, protocol))
    limit = shape.encode.get("max_message_bytes", MESSAGE_MAX_BYTES)
    sink = f"kafka://{bootstrap}/{topic}?protocol={protocol}{EXTENSION[protocol]}&partition-num={PARTITIONS}"
    words = ["run", str(config), "--source-uri", f"tidb://{tmp_path / 'log'}", "--until", str(backlog.high)]
    words += ["--sink-uri", f"{sink}&max-message-bytes={limit}", "--state-dir", str(tmp_path / "state")]

    with watched(words, tmp_path / "home") as (run, seen):
        status, report = run.end()

    assert status == 0, run.stderr.read_text()[-2_000:]
    assert report["rows"] == backlog.rows
    assert beyond(seen.peaks) == {}, seen.peaks
