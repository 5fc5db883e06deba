"""`tidegate decode`: files in, event lines out."""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.golden.codec_cases import DATA, cases
from tidegate.cli.decode import decode
from tidegate.codec.stream import pack_frame

WATERMARK = b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
CANAL = ("--protocol", "canal-json")


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    """The command with these arguments."""
    return CliRunner().invoke(decode, list(arguments), input=stdin)


def objects(result: Result) -> list[dict[str, Any]]:
    """The lines on standard output."""
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("standard_input", [False, True])
def test_framed_input(tmp_path: Path, *, zipped: bool, standard_input: bool) -> None:
    """A file or standard input, gzip or not, gives the same lines and status 0."""
    raw = pack_frame(None, WATERMARK) * 2
    content = gzip.compress(raw) if zipped else raw
    file = tmp_path / "x"
    file.write_bytes(content)
    result = run(*CANAL, stdin=content) if standard_input else run(*CANAL, str(file))
    assert result.exit_code == 0
    assert objects(result) == [{"kind": "resolved", "ts": 7}] * 2


def test_workload_partition() -> None:
    """A recorded partition prints one line an event."""
    file = DATA / "workload" / "canal" / "p1.bin.gz"
    found = objects(run(*CANAL, str(file)))
    assert len(found) == 4204
    assert {line["kind"] for line in found} == {"row", "resolved"}


def test_bad_messages_are_lines_and_a_status() -> None:
    """A message that cannot be read is a line between the others, and the status is 1; so is a cut file."""
    result = run(*CANAL, "-", stdin=pack_frame(None, b"{") + pack_frame(None, WATERMARK) + b"\0\0")
    assert result.exit_code == 1
    first, second, third = objects(result)
    assert (first["kind"], first["message_index"], first["code"]) == ("error", 0, "CDC:ErrDecodeFailed")
    assert second == {"kind": "resolved", "ts": 7}
    assert (third["kind"], third["message_index"], third["offset"]) == ("error", 2, 68)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--protocol", "open", "/nowhere/at/all"), "No such file"),
        (("--protocol", "open", "."), "directory"),
        (("--protocol", "avro"), "avro"),
        ((), "no protocol"),
        ((*CANAL, "--set", "x"), "KEY=VALUE"),
        ((*CANAL, "--set", "enable-tidb-extention=true"), "enable-tidb-extension"),
        ((*CANAL, "--from", "kafka://h/t", "file"), "mutually exclusive"),
    ],
)
def test_wrong_use_is_one_clear_error(arguments: tuple[str, ...], text: str) -> None:
    """Wrong arguments and unreadable files are errors of the command, without a traceback."""
    result = run(*arguments)
    assert result.exit_code in {1, 2}
    assert isinstance(result.exception, SystemExit)
    assert text in result.stderr


def test_cut_gzip_is_a_clear_error() -> None:
    """A gzip file that ends early is named."""
    result = run(*CANAL, stdin=gzip.compress(pack_frame(None, WATERMARK))[:-9])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("variant", ["canal_claim_check", "canal_claim_check_raw", "open_claim_check"])
def test_claim_checks_are_fetched_when_their_storage_is_given(tmp_path: Path, variant: str) -> None:
    """With the storage the whole row is printed, without it or without the file the mark."""
    case = next(case for case in cases(DATA / "codec" / "types" / f"{variant}.jsonl.gz") if case.messages)
    for name, body in case.files.items():
        (tmp_path / name).write_bytes(body)
    raw = b"".join(pack_frame(key, value) for key, value in case.messages)
    words = ["--protocol", case.options.protocol]
    if case.options.claim_check_raw_value:
        words += ["--set", "claim-check-raw-value=true"]
    (mark,) = objects(run(*words, stdin=raw))
    (whole,) = objects(run(*words, "--set", f"claim-check-storage-uri=file://{tmp_path}", stdin=raw))
    missing = run(*words, "--set", f"claim-check-storage-uri={tmp_path}/none", stdin=raw)
    assert mark["claim_check"].endswith(".json")
    assert objects(missing) == [mark]
    assert "warning" in missing.stderr
    assert "claim_check" not in whole
    assert len(whole["columns"]) > len(mark["columns"])


def test_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """--from reads a topic, takes the protocol from its URI, and says where a bad message stood."""
    asked: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    def messages(source: Any) -> Iterator[tuple[bytes | None, bytes | None, str]]:
        asked.append((source.bootstrap, source.topics))
        yield None, WATERMARK, "t/0/1"
        yield None, b"{", "t/0/2"

    stream = ModuleType("tidegate.source.kafka_fetch")
    stream.messages = messages  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tidegate.source.kafka_fetch", stream)
    result = run("--from", "kafka://127.0.0.1:9092/t?protocol=canal-json")
    assert asked == [(("127.0.0.1:9092",), ("t",))]
    assert result.exit_code == 1
    assert [line.get("place", line["kind"]) for line in objects(result)] == ["resolved", "t/0/2"]
