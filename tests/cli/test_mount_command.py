"""`tidegate mount`: recorded keys and values to the recorded row events."""

import base64
import gzip
import json
from copy import deepcopy

import pytest
from click.testing import CliRunner

from tests.kv.kv_recordings import STREAMS, lines, text_of
from tidegate.cli.main import main
from tidegate.codec.zone import zone_shift
from tidegate.model.mysql import MysqlType

LOCAL = ("id", "sql", "sql_idx")
"""What tells where a row came from in the recording, and no changefeed knows."""


def mounted(path, *options):
    """The events that the command prints, its result besides."""
    result = CliRunner().invoke(main, ["mount", *options, str(path)])
    return [json.loads(line) for line in result.stdout.splitlines()], result


def recorded(stream):
    """The row events of a recording."""
    rows = [line["row"] for line in lines(stream) if line["kind"] == "record" and line.get("row")]
    return [{name: member for name, member in row.items() if name not in LOCAL} for row in rows]


@pytest.fixture
def file_of(tmp_path):
    """Writes a stream as a gzip file."""

    def write(stream):
        path = tmp_path / f"{stream}.jsonl.gz"
        path.write_bytes(gzip.compress(text_of(f"{stream}.jsonl").encode(), 1))
        return path

    return write


@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_rows(stream, file_of):
    """Every recorded key-value stream gives its row events, member by member; what cannot be mounted is told."""
    events, result = mounted(file_of(stream), "--force-replicate")

    assert events == recorded(stream)
    assert result.exit_code == 0
    unknown = [line for line in lines(stream) if line.get("unknown_table")]
    assert result.stderr.count("CDC:ErrSnapshotTableNotFound") == len(unknown)
    assert result.stderr.count("CDC:ErrSchemaStorage") == (stream == "rename_swap")


def test_eligible_rows_alone(file_of):
    """Without --force-replicate tables whose rows cannot be told apart are left out."""
    events, _ = mounted(file_of("interleave"))

    assert events == recorded("interleave.eligible_only")
    assert len(events) < len(recorded("interleave"))


def test_time_zone(file_of):
    """TIMESTAMP values are on the clocks of --time-zone; nothing else changes."""
    shift = zone_shift("Asia/Shanghai")
    moved = 0
    expected = deepcopy(recorded("types"))
    for row in expected:
        for column in (row["columns"] or []) + (row["pre_columns"] or []):
            if column["type"] == MysqlType.TIMESTAMP and column["value"]:
                moved += shift(column["value"]["s"]) != column["value"]["s"]
                column["value"]["s"] = shift(column["value"]["s"])

    events, _ = mounted(file_of("types"), "--force-replicate", "--time-zone", "Asia/Shanghai")

    assert events == expected
    assert moved > 5


def test_bytes_that_are_no_row(tmp_path):
    """A value that breaks its form is told with code, ts and key, the others are printed, and the status is 1."""
    stream = [json.loads(line) for line in text_of("rename_swap.jsonl").splitlines()]
    rows = [line for line in stream if line["kind"] == "record"]
    rows[0]["value_b64"] = base64.b64encode(b"\x80\x00\x01").decode()
    path = tmp_path / "damaged.jsonl"
    path.write_text("\n".join(map(json.dumps, stream)))

    events, result = mounted(path)

    assert [event["commit_ts"] for event in events] == [row["commit_ts"] for row in rows[1:]]
    assert f"error CDC:ErrDecodeRowToDatum: commit_ts {rows[0]['commit_ts']}" in result.stderr
    assert base64.b64decode(rows[0]["key_b64"]).hex() in result.stderr
    assert result.exit_code == 1


def test_rows_of_lossy_changes_are_skipped(tmp_path):
    """Rows that a change of type rewrote never reach a changefeed: marked lines are passed over."""
    stream = [json.loads(line) for line in text_of("rename_swap.jsonl").splitlines()]
    for line in stream:
        line["lossy_ddl_reorg"] = line["kind"] == "record"
    path = tmp_path / "marked.jsonl"
    path.write_text("\n".join(map(json.dumps, stream)))

    assert mounted(path)[0] == []


@pytest.mark.parametrize("text", ["not json\n", '{"kind": 1}\n', '{"kind":"record","key_b64":"?"}\n'])
def test_files_that_are_no_recording(text, tmp_path):
    """A line that is none is an error that names file and line."""
    path = tmp_path / "junk.jsonl"
    path.write_text(text)
    _, result = mounted(path)

    assert result.exit_code == 1
    assert "junk.jsonl, line 1" in str(result.stderr) + str(result.exception)


def test_missing_file(tmp_path):
    """A file that is not there is an error of one line."""
    _, result = mounted(tmp_path / "absent.jsonl")

    assert result.exit_code == 1
    assert "absent.jsonl: No such file" in str(result.stderr) + str(result.exception)
