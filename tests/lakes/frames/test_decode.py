"""Decoding a DataFrame of messages."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import read_frames
from tidegate.lakes.frames import EVENT_DDL, EVENT_SCHEMA, decode_batches, decode_frame

WORKLOAD = Path(__file__).parents[2] / "data" / "workload"


def messages(recording: str) -> list[tuple[bytes, bytes]]:
    return list(read_frames(gzip.decompress((WORKLOAD / recording / "p0.bin.gz").read_bytes())))[:500]


def batch(pairs) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True)
    return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], names=["key", "value"])


@pytest.mark.parametrize(("recording", "protocol"), [("open", "open-protocol"), ("canal", "canal-json")])
def test_every_event_is_a_row(recording, protocol):
    """Rows, DDLs and resolved timestamps come out as rows; values stand by column name."""
    (found,) = decode_batches([batch(messages(recording))], DecodeOptions(protocol=protocol))
    rows = found.to_pylist()

    assert {row["kind"] for row in rows} == {"row", "ddl", "resolved"}
    inserts = [row for row in rows if row["op"] == "INSERT" and row["table"] == "accounts"]
    assert dict(inserts[0]["after"])["balance"].isdigit()
    assert inserts[0]["before"] is None
    assert not any(row["error"] for row in rows)


def test_a_broken_message_is_a_row_too():
    """What cannot be decoded keeps its bytes, its reason and its place."""
    (found,) = decode_batches([batch([(b"k", b"{broken")])], DecodeOptions(protocol="canal-json"))

    (row,) = found.to_pylist()
    assert (row["kind"], row["raw_key"], row["raw_value"]) == ("error", b"k", b"{broken")
    assert row["error_code"] == "CDC:ErrDecodeFailed"
    assert found.schema == EVENT_SCHEMA


@pytest.mark.slow
def test_spark_decodes_a_frame():
    """A DataFrame of key and value becomes a DataFrame of events in the executors."""
    from tidegate.spark.session import session

    spark = session()
    pairs = messages("open")
    frame = spark.createDataFrame(pairs, "key binary, value binary")
    events = decode_frame(frame, protocol="open-protocol")
    (direct,) = decode_batches([batch(pairs)], DecodeOptions(protocol="open-protocol"))

    assert events.count() == direct.num_rows
    assert list(events.columns) == [part.split()[0] for part in EVENT_DDL.split(", ")]
    ddls = events.where("kind = 'ddl'").select("event").collect()
    assert "CREATE DATABASE" in ddls[0].event
