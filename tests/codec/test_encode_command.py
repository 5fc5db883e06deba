"""`tidegate encode`: event lines in, framed messages out."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.golden.codec_cases import DATA
from tests.golden.encode_kit import masked, plain, recorded, runs
from tidegate.cli.decode import decode
from tidegate.cli.encode import encode
from tidegate.codec.stream import read_frames

EVENTS = DATA / "codec" / "types" / "events.jsonl.gz"
ROW = {
    "kind": "row",
    "op": "INSERT",
    "schema": "s",
    "table": "t",
    "commit_ts": 470606743881121792,
    "columns": [{"name": "id", "type": 3, "flag": 11, "value": {"i": 1}}],
}
OPEN = ("--protocol", "open-protocol")
CANAL = ("--protocol", "canal-json", "--ts", "7")


def run(*arguments: str, stdin: bytes | str | None = None) -> Result:
    """The command with these arguments."""
    return CliRunner().invoke(encode, list(arguments), input=stdin)


def line(**changes: object) -> str:
    """A row line."""
    return json.dumps({**ROW, **changes}) + "\n"


@pytest.mark.parametrize("variant", ["open_default", "open_only_updated", "canal_tidb_ext", "canal_compatible"])
def test_recorded_events_give_recorded_messages(variant: str) -> None:
    """With the recorded configuration as --set, a recorded stream gives the recorded messages of its rows and DDLs."""
    path = next(path for path in recorded("codec") if path.name.startswith(f"{variant}.") and "ddl" in path.parts)
    found = [each for each in runs(path) if each.case.events]
    config = gzip.decompress(path.read_bytes()).splitlines()[0]
    settings = [word for key, value in json.loads(config)["config"].items() for word in ("--set", f"{key}={value}")]
    result = run("--ts", "1234567890123", *settings, str(DATA / "codec" / "ddl" / "events.jsonl.gz"))
    assert result.exit_code == 0, result.output
    made = dict.fromkeys(read_frames(result.stdout_bytes))
    values = [masked(value) for _, value in made]
    for each in found:
        for key, value in each.case.messages:
            if each.case.open_protocol:
                assert (key, plain(each, value)) in made
            else:
                assert any(masked_clock(value, theirs) for theirs in values), each.case.name


def masked_clock(recorded_value: bytes | None, mine: tuple[bytes, object]) -> bool:
    """Whether a recorded canal value is ours but for its clock and the order of `mysqlType`."""
    theirs, types = masked(recorded_value or b"")
    clock = theirs.split(b',"ts":')[1][:13]
    return (theirs.replace(b',"ts":' + clock, b',"ts":1234567890123', 1), types) == mine


def test_what_is_encoded_decodes_to_the_same_lines(tmp_path: Path) -> None:
    """The way there and back, by way of a file, loses nothing when bytes that are not UTF-8 may stand raw."""
    exact = (*OPEN, "--set", "dialect=newarch", "--set", "newarch-faults=raw-bytes")
    first = run(*exact, str(EVENTS))
    (tmp_path / "a.bin").write_bytes(first.stdout_bytes)
    lines = CliRunner().invoke(decode, [*OPEN, str(tmp_path / "a.bin")])
    again = run(*exact, "-", stdin=lines.stdout_bytes)
    assert (first.exit_code, lines.exit_code, again.exit_code) == (0, 0, 0)
    assert again.stdout_bytes == first.stdout_bytes


@pytest.mark.parametrize("zipped", [False, True])
def test_standard_input(*, zipped: bool) -> None:
    """Standard input is the default, gzip or not; empty lines are passed over."""
    text = (line() + "\n" + line()).encode()
    result = run(*OPEN, stdin=gzip.compress(text) if zipped else text)
    ((key, _),) = read_frames(result.stdout_bytes)
    assert (result.exit_code, key.count(b'"t":1}')) == (0, 2)


def test_refused_events_are_told_and_do_not_stop_others() -> None:
    """Each on a line of standard error with its number; the status is 1."""
    lines = [line(), "{", line(columns=None), line(op="MERGE"), line(columns=[{"name": "id"}]), line()]
    result = run(*CANAL, "-", stdin="".join(each if each.endswith("\n") else each + "\n" for each in lines))
    assert result.exit_code == 1
    assert len(list(read_frames(result.stdout_bytes))) == 2
    told = result.stderr.splitlines()
    assert [each.split(": ")[1] for each in told] == ["line 2", "line 3", "line 4", "line 5"]
    assert all(each.startswith("error CDC:") for each in told)


@pytest.mark.parametrize(
    ("value", "code", "flag"),
    [
        ({"i": 1 << 40}, 3, 65),
        ({"i": True}, 3, 65),
        ({"s": "1"}, 3, 65),
        ({"b": "?"}, 15, 65),
        ({"i": 1}, 15, 64),
        ({"f64": "x"}, 5, 65),
        ({"b": "AA=="}, 246, 65),
        ("x", 15, 64),
        ({}, 12, 65),
    ],
)
def test_values_that_do_not_fit_their_column(value: object, code: int, flag: int) -> None:
    """Are refused with the column's name, or with its place when they are no values at all."""
    column = {"name": "col", "type": code, "flag": flag, "value": value}
    result = run(*OPEN, stdin=line(columns=[column]))
    assert result.exit_code == 1
    assert "'col'" in result.stderr or "columns[0].value" in result.stderr


def test_images_in_another_order_are_matched_by_name() -> None:
    """An old image belongs to the new one by column names; different columns are refused."""
    columns = [
        {"name": "id", "type": 3, "flag": 11, "value": {"i": 1}},
        {"name": "a", "type": 3, "flag": 65, "value": {"i": 2}},
    ]
    result = run(*CANAL, stdin=line(op="UPDATE", columns=columns, pre_columns=columns[::-1]))
    ((_, value),) = read_frames(result.stdout_bytes)
    assert json.loads(value)["old"] == [{"id": "1", "a": "2"}]
    assert run(*CANAL, stdin=line(op="UPDATE", columns=columns, pre_columns=columns[:1])).exit_code == 1
    assert run(*CANAL, stdin=line(op="UPDATE", columns=columns)).exit_code == 1
    assert run(*CANAL, stdin=line(columns=[columns[0], columns[0]])).exit_code == 1


def test_claim_checks_are_written(tmp_path: Path) -> None:
    """Into the storage, under random names or those of a list; a list that is too short is an error."""
    storage = tmp_path / "claims"
    settings = [
        "--set",
        "large-message-handle-option=claim-check",
        "--set",
        f"claim-check-storage-uri=file://{storage}",
    ]
    settings += ["--set", "uri.max-message-bytes=420"]
    names = tmp_path / "names"
    names.write_text("one.json\ntwo.json\n")
    big = {"name": "a", "type": 15, "flag": 64, "value": {"s": "b" * 1000}}
    row = line(columns=[*ROW["columns"], big])  # type: ignore[misc]
    assert run(*OPEN, *settings, "--claim-names", str(names), stdin=row + row).exit_code == 0
    assert sorted(path.name for path in storage.iterdir()) == ["one.json", "two.json"]
    assert run(*OPEN, *settings, stdin=row).exit_code == 0
    assert len(list(storage.iterdir())) == 3
    short = run(*OPEN, *settings, "--claim-names", str(names), stdin=row * 3)
    assert short.exit_code == 1


def test_storage_form() -> None:
    """--storage writes values with the terminator."""
    result = run(*CANAL, "--storage", stdin=line() * 2)
    assert result.stdout_bytes.count(b"}\r\n") == 2
    assert run(*OPEN, "--storage", stdin=line()).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--protocol", "avro"), "CDC:ErrSinkUnknownProtocol"),
        ((), "no protocol"),
        ((*OPEN, "--set", "x"), "KEY=VALUE"),
        ((*OPEN, "--set", "max-message-bytes=0"), "CDC:ErrCodecInvalidConfig"),
        ((*OPEN, "/nowhere/at/all"), "No such file"),
        ((*OPEN, "."), "directory"),
    ],
)
def test_wrong_use_is_one_clear_error(arguments: tuple[str, ...], text: str) -> None:
    """Wrong arguments and unreadable files are errors of the command, without a traceback."""
    result = run(*arguments)
    assert result.exit_code in {1, 2}
    assert isinstance(result.exception, SystemExit)
    assert text in result.stderr


def test_ignored_keys_are_told() -> None:
    """A key that changes nothing is named with the reason."""
    assert "encoder-concurrency is ignored" in run(*OPEN, "--set", "encoder-concurrency=4", stdin="").stderr
