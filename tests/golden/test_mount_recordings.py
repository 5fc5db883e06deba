"""From keys and values to messages: mounted rows encode to what the recorded events encode to."""

from collections.abc import Iterator

import pytest

from tests.golden.encode_kit import NOW_MS, event_lines
from tests.kv.kv_recordings import STREAMS, lines, raw
from tidegate.codec.batch import BatchEncoder, Message
from tidegate.codec.encoding import EncodeOptions, encode_options
from tidegate.codec.wire_table import WireTable
from tidegate.engine.mount import Mounted, Mounter
from tidegate.model.errors import SchemaError
from tidegate.model.event import RowChange
from tidegate.schema.job import decode_job_row
from tidegate.schema.stored.snapshot import SchemaHistory

OPTIONS = {
    "open": encode_options({"uri.max-batch-size": "1"}, "open-protocol"),
    "canal": encode_options({"uri.content-compatible": "true", "uri.enable-tidb-extension": "true"}, "canal-json"),
}


def mounted(stream: str) -> Iterator[tuple[str, Mounted]]:
    """The recorded id of each row, and the row as mounted."""
    history = SchemaHistory()
    mounter = Mounter(history, force_replicate=True)
    for line in lines(stream):
        key, value = raw(line, "key_b64") if "key_b64" in line else b"", None
        if line.get("ddl_done") and not line.get("mount_error"):
            history.apply(decode_job_row(key, raw(line, "value_b64")), line["commit_ts"])
        if line["kind"] == "record" and line.get("row"):
            value, old = raw(line, "value_b64"), raw(line, "old_value_b64")
            found = mounter.mount(key, value, old, line["commit_ts"])
            assert found is not None
            yield line["row"]["id"], found


def messages(options: EncodeOptions, row: RowChange, table: WireTable) -> list[Message]:
    """The messages of one row."""
    encoder = BatchEncoder(options, now_ms=lambda: NOW_MS)
    return [*encoder.append(row, table), *encoder.flush()]


@pytest.mark.parametrize("protocol", OPTIONS)
@pytest.mark.parametrize("stream", STREAMS)
def test_mounted_rows_encode_as_recorded(stream, protocol):
    """Each mounted row gives byte for byte the messages of its recorded event."""
    recorded, count = event_lines(stream), 0
    for row_id, found in mounted(stream):
        expected = recorded[row_id]
        count += 1
        assert messages(OPTIONS[protocol], found.row, found.table.wire) == messages(
            OPTIONS[protocol], expected.event, expected.table
        )

    assert count >= 4


def test_jobs_of_a_stream_apply_once():
    """A job whose row is written again after it is done changes nothing a second time."""
    history = SchemaHistory()
    for line in lines("ddl"):
        if line.get("ddl_done"):
            job = decode_job_row(raw(line, "key_b64"), raw(line, "value_b64"))
            history.apply(job, line["commit_ts"])
            before = history.at(line["commit_ts"])
            history.apply(job, line["commit_ts"] + 1)
            assert history.at(line["commit_ts"] + 1) is before
    with pytest.raises(SchemaError):
        history.at(-1)
