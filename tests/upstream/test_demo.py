"""The demo feeds a recording as it was recorded, side by side, and tells what became of it."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.errors import ConfigError, SourceError
from tidegate_upstream.demo.recorded import (
    Feeder,
    RecordedRun,
    _verdict,
    create_topic,
    find_recording,
    read_partitions,
    scratch,
    slices,
)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(1, 9))
def test_slices(sizes, count):
    """Slices hold every message once, keep each partition's order, and no partition runs ahead of the others."""
    partitions = [[(b"", bytes([n])) for n in range(size)] for size in sizes]
    steps = list(slices(partitions, count))
    assert len(steps) == count
    for number, messages in enumerate(partitions):
        assert [frame for step in steps for part, frame in step if part == number] == messages
        for step in steps:
            assert sum(part == number for part, _ in step) <= -(-len(messages) // count)


def test_recording_of_the_source_tree():
    """From a checkout the demo finds its recording, with three partitions for each protocol."""
    recording = find_recording()
    assert recording == Path(__file__).parents[1] / "data" / "workload"
    for name in ("open", "canal"):
        assert len(read_partitions(recording / name)) == 3


def test_no_recording(tmp_path):
    """A directory without partitions, and a partition that is no gzip, are named."""
    with pytest.raises(ConfigError, match="no recorded topic"):
        read_partitions(tmp_path)
    (tmp_path / "p0.bin.gz").write_bytes(b"junk")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_partitions(tmp_path)
    (tmp_path / "p0.bin.gz").rename(tmp_path / "p1.bin.gz")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_partitions(tmp_path)


def test_scratch(tmp_path):
    """A scratch directory goes away, also after an interrupt; a given one keeps each run apart."""
    place = scratch(None)
    where = place.__enter__()
    (where / "x").write_text("x")
    assert not place.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert not where.exists()
    for number in (1, 2):
        with scratch(tmp_path / "kept") as where:
            assert where == tmp_path / "kept" / f"demo-{number}"
    assert where.exists()


def outcome(protocol, tables, different=0):
    """An outcome of so many tables."""
    return RecordedRun(protocol, 10, 9, 8, 1.0, tables, different)


def test_verdict():
    """The last line says that all tables are equal, or how many are not."""
    both = [outcome("open-protocol", 14), outcome("canal-json", 14)]
    assert _verdict(both, as_json=False) == "all 14 tables equal"
    assert _verdict([both[0], outcome("canal-json", 14, 2)], as_json=False) == "2 of 28 tables differ"
    assert _verdict(both, as_json=True) == '{"equal":true,"tables":28,"different":0}'


@pytest.mark.slow
def test_feeder():
    """Through a real broker every partition holds exactly the recorded messages, in order; canal's keys are None."""
    from confluent_kafka import Consumer, TopicPartition

    from tidegate_upstream.broker import running_broker

    messages = [[(b"", b"a%d" % n) for n in range(300)], [(b"k", b"b%d" % n) for n in range(7)]]
    with running_broker() as broker:
        create_topic(broker.bootstrap, "t", 2)
        feeder = Feeder(broker.bootstrap, "t", messages, threading.Event())
        feeder.landing.set()
        feeder.start()
        feeder.join()
        assert feeder.failure is None
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        for number, expected in enumerate(messages):
            consumer.assign([TopicPartition("t", number, 0)])
            found = consumer.consume(len(expected), 30)
            assert [(message.key() or b"", message.value()) for message in found] == expected
        consumer.close()
        with pytest.raises(SourceError, match="cannot be created"):
            create_topic(broker.bootstrap, "t", 2)
