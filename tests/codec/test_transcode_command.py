"""`tidegate transcode`: the messages of one protocol as those of the other."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.codec.encode_rows import TABLE, TS, Claims, delete, encoder, insert, update
from tests.codec.there_and_back import there_and_back
from tests.golden.codec_cases import DATA, cases, events
from tidegate.cli.decode import decode
from tidegate.cli.transcode import transcode
from tidegate.codec import DecodeOptions, Message
from tidegate.codec.batch import MessageKind
from tidegate.codec.stream import pack_frame, read_frames
from tidegate.model.event import Ddl, Resolved

pytestmark = pytest.mark.slow

EXTENDED = ("--set", "enable-tidb-extension=true")
STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")
ROWS = (insert(), update("a", "b"), delete())


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    """The command with these arguments."""
    return CliRunner().invoke(transcode, list(arguments), input=stdin)


def lines(raw: bytes, *words: str) -> list[dict[str, Any]]:
    """The events of framed messages."""
    found = CliRunner().invoke(decode, list(words), input=raw)
    assert found.exit_code == 0, found.output
    return [json.loads(line) for line in found.stdout.splitlines()]


def framed(messages: tuple[Message, ...]) -> bytes:
    """Messages as a file."""
    return b"".join(pack_frame(message.key, message.value) for message in messages)


def made(protocol: str, *events: Any, **settings: object) -> bytes:
    """A file of these events."""
    writer = encoder(protocol, Claims(), **settings)
    done = [m for e in events for m in writer.append(e, TABLE if hasattr(e, "fields") else None)]
    return framed((*done, *writer.flush()))


def told(line: dict[str, Any]) -> tuple[Any, ...]:
    """What both protocols say of a row."""
    images = (line["columns"], line["pre_columns"])
    values = [image and {c["name"]: (c["type"], repr(c["value"])) for c in image} for image in images]
    return line["op"], line["schema"], line["table"], line["commit_ts"], values


@pytest.mark.parametrize("name", ["sysbench", "wide"])
def test_there_and_back(name: str) -> None:
    """Rows keep their values, images and times from Open Protocol to Canal-JSON and back."""
    raw = gzip.decompress((DATA / "speed" / f"open_{name}.bin.gz").read_bytes())
    raw = framed(tuple(Message(*frame, 0, MessageKind.ROW) for frame in list(read_frames(raw))[:20]))
    there = run(*EXTENDED, stdin=raw)
    back = run(stdin=there.stdout_bytes)
    assert (there.exit_code, back.exit_code) == (0, 0), there.stderr + back.stderr
    canal = lines(there.stdout_bytes, "--protocol", "canal-json")
    first, last = (list(map(told, lines(each, "--protocol", "open"))) for each in (raw, back.stdout_bytes))
    assert first == list(map(told, canal)) == last


@pytest.mark.parametrize("emitter", ["codec", "codec_newarch"])
@pytest.mark.parametrize("stream", ["types", "partition", "ddl", "interleave"])
def test_recorded_streams(emitter: str, stream: str) -> None:
    """Every recorded Open Protocol message of a default configuration becomes canal-json that says the same."""
    path = DATA / emitter / stream / "open_default.jsonl.gz"
    messages = [message for case in cases(path) for message in case.messages]
    raw = b"".join(pack_frame(*message) for message in messages)
    result = run(*EXTENDED, "--ts", "7", stdin=raw)
    assert (result.exit_code, result.stderr) == (0, "")
    theirs = lines(raw, "--protocol", "open")
    ours = lines(result.stdout_bytes, "--protocol", "canal-json")
    assert [line["kind"] for line in theirs] == [line["kind"] for line in ours]
    for one, other in zip(theirs, ours, strict=True):
        assert one["kind"] == "resolved" or one.get("commit_ts") == other.get("commit_ts")
        if one["kind"] == "row":
            assert (one["op"], one["table"]) == (other["op"], other["table"])


WAYS = [
    (f"{emitter}/{stream}", variant)
    for emitter in ("codec", "codec_newarch")
    for stream in STREAMS
    for variant in ("open_default", "open_only_updated", "open_delete_handle_key", "canal_tidb_ext")
    if (DATA / emitter / stream).exists()
]


@pytest.mark.parametrize(("stream", "variant"), WAYS)
def test_recorded_topics_go_there_and_back(stream: str, variant: str) -> None:
    """Every row, image and DDL that TiCDC sent: none is refused, none is changed."""
    messages = [message for case in cases(DATA / stream / f"{variant}.jsonl.gz") for message in case.messages]
    protocol = "open-protocol" if variant.startswith("open") else "canal-json"
    raw = b"".join(pack_frame(*message) for message in messages)

    assert there_and_back(raw, DecodeOptions(protocol=protocol)) == []


@pytest.mark.parametrize(
    "name", ["open", pytest.param("canal", marks=pytest.mark.soak), pytest.param("open_table", marks=pytest.mark.soak)]
)
def test_a_recorded_changefeed_goes_there_and_back(name: str) -> None:
    """So do the topics of a whole recording, with their watermarks."""
    protocol = "open-protocol" if name.startswith("open") else "canal-json"
    for path in sorted((DATA / "workload" / name).glob("p*.bin.gz")):
        assert there_and_back(gzip.decompress(path.read_bytes()), DecodeOptions(protocol=protocol)) == []


@pytest.mark.parametrize("compression", ["none", "snappy", "lz4"])
@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_the_same_protocol_with_other_options(protocol: str, compression: str) -> None:
    """--to may be the protocol that comes; compression is found out and may change."""
    raw = made(protocol, *ROWS, large_message_handle_compression=compression, enable_tidb_extension=True)
    result = run("--to", protocol, *EXTENDED, "--ts", "7", stdin=raw)
    assert result.stdout_bytes == made(protocol, *ROWS, enable_tidb_extension=True)


def test_told_instead_of_found_out() -> None:
    """--from and --from-set say what sniffing would have found."""
    raw = made("open", *ROWS, large_message_handle_compression="lz4")
    words = ("--from", "open", "--from-set", "large-message-handle-compression=lz4", *EXTENDED, "--ts", "7")
    assert run(*words, stdin=raw).stdout_bytes == run(*EXTENDED, "--ts", "7", stdin=raw).stdout_bytes


def test_resolved_timestamps_need_the_extension() -> None:
    """Canal-JSON has them only there; without it they are left out, as TiCDC does."""
    raw = made("open", Resolved(TS), *ROWS, Resolved(TS))
    assert len(list(read_frames(run(*EXTENDED, stdin=raw).stdout_bytes))) == 5
    assert len(list(read_frames(run(stdin=raw).stdout_bytes))) == 3


def test_ddl_words_and_actions() -> None:
    """A DDL whose word and statement mean one action has that action; any other is refused."""
    drop = Ddl(schema="s", table="t", query="DROP TABLE t", commit_ts=TS, type=4)
    alter = Ddl(schema="s", table="t", query="ALTER TABLE `t` NEWS", commit_ts=TS, type=5)
    result = run(stdin=made("canal", drop, alter, *ROWS, enable_tidb_extension=True))
    assert result.exit_code == 1
    assert result.stderr.startswith("error CDC:ErrEncodeFailed: message 1: the DDL 'ALTER")
    found = lines(result.stdout_bytes, "--protocol", "open")
    assert [(line["kind"], line.get("type")) for line in found] == [("ddl", 4), *[("row", None)] * 3]


def test_times_without_the_extension_are_refused() -> None:
    """Canal-JSON without commitTs has milliseconds only, of which no commit_ts is made up."""
    result = run(stdin=made("canal", *ROWS))
    assert (result.exit_code, result.stdout_bytes, len(result.stderr.splitlines())) == (1, b"", 3)
    assert "no commit_ts" in result.stderr


def test_marks_need_the_extension() -> None:
    """A row cut down to its handle is not passed off as a whole one."""
    limit = {"max_message_bytes": 250, "large_message_handle_option": "handle-key-only"}
    raw = made("open", insert(text="x" * 300), insert(2), **limit)
    refused, kept = run(stdin=raw), run(*EXTENDED, stdin=raw)
    assert (refused.exit_code, kept.exit_code) == (1, 0)
    assert "enable-tidb-extension" in refused.stderr
    assert [line.get("only_handle_key") for line in lines(kept.stdout_bytes, "--protocol", "canal")] == [True, None]


def test_claim_checks_are_fetched(tmp_path: Path) -> None:
    """With their storage given, whole rows are written."""
    case = next(c for c in cases(DATA / "codec" / "types" / "open_claim_check.jsonl.gz") if c.files)
    for name, body in case.files.items():
        (tmp_path / name).write_bytes(body)
    raw = b"".join(pack_frame(*message) for message in case.messages)
    result = run("--from-set", f"claim-check-storage-uri=file://{tmp_path}", *EXTENDED, stdin=raw)
    (line,) = lines(result.stdout_bytes, "--protocol", "canal")
    assert "claim_check" not in line
    assert len(line["columns"]) > 1


def test_bad_messages_do_not_stop_others() -> None:
    """Each is a line on standard error with its number; a cut file is one too; the status is 1."""
    good = made("open", ROWS[0])
    result = run(*EXTENDED, stdin=good + pack_frame(b"\0", b"") + good + b"\0\0")
    assert result.exit_code == 1
    assert len(list(read_frames(result.stdout_bytes))) == 2
    first, second = result.stderr.splitlines()
    assert first.startswith("error CDC:ErrDecodeFailed: message 1: ")
    assert second.startswith("error CDC:ErrDecodeFailed: frame: ")


@pytest.mark.parametrize(
    ("arguments", "stdin", "text"),
    [
        (("--set", "content-compatible=true"), made("open", *ROWS), "parameters"),
        (
            ("--set", "output-row-key=true", *EXTENDED, "--set", "dialect=newarch"),
            made("open", *ROWS),
            "output-row-key",
        ),
        (("--set", "x"), made("open", *ROWS), "--set x: write KEY=VALUE"),
        (("--from-set", "x"), b"", "--from-set x: write KEY=VALUE"),
        (("--from", "avro"), b"", "avro"),
        (("--to", "avro"), made("open", *ROWS), "avro"),
        ((), pack_frame(None, b"I,t,1\r\n"), "set --from"),
        ((), b"\0", "set --from"),
        (("/nowhere/at/all",), None, "No such file"),
    ],
)
def test_wrong_use_is_one_clear_error(arguments: tuple[str, ...], stdin: bytes | None, text: str) -> None:
    """Wrong arguments and input that is no message are errors of the command, without a traceback."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code in {1, 2}
    assert isinstance(result.exception, SystemExit)
    assert text in " ".join(result.stderr.split())


def test_nothing_is_nothing() -> None:
    """An empty file has no messages."""
    assert (run(stdin=b"").exit_code, run(stdin=b"").stdout_bytes) == (0, b"")


@pytest.mark.parametrize("text", ["query", "event_query"])
def test_every_recorded_ddl_goes_there_and_back(text: str) -> None:
    """DDLs as TiCDC sends them and as users wrote them, from either protocol to the other and back, none refused."""
    recorded = [line for stream in STREAMS for line in events(stream).values() if line["kind"] == "ddl"]
    ddls = [
        Ddl(schema=line["schema"], table=line["table"], query=line[text], commit_ts=TS + at, type=line["type"])
        for at, line in enumerate(recorded)
    ]
    raw = made("open-protocol", *ddls)
    there = run(*EXTENDED, stdin=raw)
    back = run(stdin=there.stdout_bytes)

    assert (there.exit_code, there.stderr, back.exit_code, back.stderr) == (0, "", 0, "")
    assert back.stdout_bytes == raw
    assert run(*EXTENDED, "--ts", "7", stdin=back.stdout_bytes).stdout_bytes == made(
        "canal-json", *ddls, enable_tidb_extension=True
    )


def test_content_compatible_needs_whole_types() -> None:
    """Types without their parameters are not passed off as official Canal's."""
    raw = made("canal-json", insert(), enable_tidb_extension=True)
    whole = made("canal-json", insert(), enable_tidb_extension=True, content_compatible=True)
    words = ("--to", "canal-json", "--set", "content-compatible=true", *EXTENDED, "--ts", "7")
    refused, kept = run(*words, stdin=raw), run(*words, stdin=whole)

    assert (refused.exit_code, refused.stdout_bytes) == (1, b"")
    assert "parameters of types" in refused.stderr
    assert (kept.exit_code, kept.stderr) == (0, "")


def test_a_delete_of_a_unique_key_keeps_its_columns() -> None:
    """Canal-JSON names no handle but the primary key: without one, the handle of a DELETE is all that is known."""
    value = json.loads(made("canal-json", delete(), enable_tidb_extension=True)[8:])
    raw = pack_frame(None, json.dumps({**value, "pkNames": None}).encode())
    words = ("--set", "delete-only-output-handle-key-columns=true", *EXTENDED, "--ts", "7")
    result = run("--to", "canal-json", *words, stdin=raw)

    assert result.exit_code == 0, result.stderr
    (whole,), (line,) = (lines(each, "--protocol", "canal-json") for each in (raw, result.stdout_bytes))
    assert line["pre_columns"] == whole["pre_columns"]
    assert len(line["pre_columns"]) > 1
