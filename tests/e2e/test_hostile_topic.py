"""Topics with messages of every kind that nobody should send, in a real broker: what arrives, what is told, what it
costs."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.counts import some
from tests.e2e.rig import EXTENSION, PROTOCOLS, cli, feed
from tests.memory.limits import beyond
from tests.memory.rig import watched
from tests.replay.hostile import TABLES, Topic, claim_files, differences, topic
from tests.replay.hostile_kinds import KINDS
from tidegate.lakes.lake import Lake
from tidegate_upstream.broker import MESSAGE_MAX_BYTES
from tidegate_upstream.demo.recorded import create_topic

pytestmark = pytest.mark.slow


def sent(bootstrap: str, name: str, given: Topic, claims: str, **more: str) -> str:
    """Put the topic into the broker; return its address."""
    create_topic(bootstrap, name, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": MESSAGE_MAX_BYTES, "log_level": 3})
    for message in given.messages:
        producer.produce(name, message.value, message.key or None, 0)
    assert producer.flush(60) == 0
    kind = next(kind for kind, protocol in PROTOCOLS.items() if protocol == given.protocol)
    told = {"claim-check-storage-uri": claims, "large-message-handle-compression": given.compression, **more}
    words = "".join(f"&{key}={value}" for key, value in told.items())
    return f"kafka://{bootstrap}/{name}?protocol={given.protocol}{EXTENSION[kind]}{words}"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("protocol", "compression"), [("open-protocol", "lz4"), pytest.param("canal-json", "none", marks=pytest.mark.soak)]
)
def test_skip(bootstrap: str, tmp_path: Path, protocol: str, compression: str) -> None:
    """Every good row arrives, every bad message is told with its reason, and no process needs more than it may."""
    given = topic(protocol, some(50, 2_000), 19, compression=compression)
    uri = sent(bootstrap, f"hostile-{protocol}", given, claim_files(tmp_path / "claims"), **{"dead-letter": "skip"})
    lake = tmp_path / "lake"

    with watched(feed(uri, lake, "--until", str(given.ts), moment=None), tmp_path / "home") as (running, sampler):
        status, report = running.end()

    assert status == 0, running.stderr.read_text()[-3_000:]
    assert report["dead_letters"] == len(given.bad)
    letters = {one["offset"]: one for one in json.loads(cli("dlq", "list", str(lake), "--json").stdout)}
    assert {at: given.bad.get(at) for at in letters} == given.bad
    for at, letter in letters.items():
        assert letter["code"] in KINDS[given.bad[at]].codes, (given.bad[at], letter["reason"])
        assert letter["value_b64"] is not None
    assert differences(Lake(str(lake)), given) == {}
    assert beyond(sampler.peaks) == {}


@pytest.mark.usefixtures("spark")
def test_halt(bootstrap: str, tmp_path: Path) -> None:
    """A row and a DDL that do not fit end the feed each in its turn: it names them and what to type, which leads on."""
    given = topic("canal-json", 2, 20, ["declared_otherwise", "unreadable_ddl"])
    uri, lake = sent(bootstrap, "hostile-halt", given, claim_files(tmp_path / "claims")), tmp_path / "lake"
    words = feed(uri, lake, "--until", str(given.ts), moment=None)
    (unfit, ((_, right), row)), (ddl, _) = given.right.items()
    (tmp_path / "right").write_bytes(right)

    met = []
    while (done := cli(*words)).exit_code:
        (letter,) = json.loads(cli("dlq", "list", str(lake), "--json").stdout)[:1]
        at = f"hostile-halt/0/{letter['offset']}"
        assert f"tidegate dlq skip {lake} --at {at}" in done.stderr
        assert letter["state"] == "refused"
        met.append(letter["offset"])
        replay = ["replay", str(lake), "--at", at, "--value-file", str(tmp_path / "right")]
        decided = cli("dlq", *(replay if letter["offset"] == unfit else ["skip", str(lake), "--at", at]))
        assert decided.exit_code == 0, decided.stderr
        assert len(met) < 3

    given.truth[TABLES[0]].append(row)
    assert sorted(met) == [unfit, ddl]
    assert differences(Lake(str(lake)), given) == {}
