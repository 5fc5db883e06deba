"""Claim checks: bounded, side by side, and the same for the feed and for commands."""

import contextlib
import json
import os
import random
import socket
import string
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.codec.encode_rows import TABLE, Claims, encoder, insert
from tidegate.changelog.files import Encoder
from tidegate.cli.decode import decode as decode_command
from tidegate.codec import DecodeOptions, decode
from tidegate.codec.stream import pack_frame
from tidegate.model.errors import ClaimCheckUnavailable, EnvironmentFault, SinkError, SourceError
from tidegate.model.event import Insert, RowChange
from tidegate.sink.kafka_topics import ClaimFiles, random_names
from tidegate.source import kafka_messages
from tidegate.source import large as module
from tidegate.source.kafka_messages import LandedMessages, LandPlan, TopicMessage, land_chunk, land_messages
from tidegate.source.large import ClaimReader, WholeRows

TEXT_BYTES = 900
LETTERS = string.ascii_letters + string.digits


def text(key: int) -> str:
    """A text that no compression makes small enough for a message."""
    chooser = random.Random(key)
    return "".join(chooser.choice(LETTERS) for _ in range(TEXT_BYTES))


def claimed(directory: Path, count: int, protocol: str = "open-protocol", **settings: Any) -> list[TopicMessage]:
    """Messages of rows that lie in `directory`."""
    store = Claims()
    given = {"large_message_handle_option": "claim-check", "claim_check_storage_uri": directory.as_uri()}
    extension = {"enable_tidb_extension": True} if protocol == "canal-json" else {}
    writer = encoder(protocol, store, max_batch_size=1, max_message_bytes=800, **given, **extension, **settings)
    made = [m for key in range(count) for m in writer.append(insert(key, text(key)), TABLE)]
    assert len(store.files) == count
    for name, body in store.files.items():
        (directory / name).write_bytes(body)
    return [TopicMessage(at, one.key, one.value) for at, one in enumerate([*made, *writer.flush()])]


def options(directory: Path | str, protocol: str = "open-protocol", **changed: Any) -> DecodeOptions:
    """How such messages are read."""
    uri = directory if isinstance(directory, str) else directory.as_uri()
    return DecodeOptions(protocol=protocol, claim_check_storage_uri=uri, **changed)


def rows(messages: list[TopicMessage], read: DecodeOptions) -> list[RowChange]:
    """The rows as they came."""
    return [event for one in messages for event in decode(one.key, one.value, read) if isinstance(event, Insert)]


def texts(landed: LandedMessages) -> list[bytes]:
    """The texts of what has landed, in order."""
    images = [after for table in landed.tables.values() for after in table.column("after").to_pylist()]
    return [max(image, key=len) for image in images]


@pytest.mark.parametrize("compression", ["none", "snappy", "lz4"])
@pytest.mark.parametrize(("protocol", "raw"), [("open-protocol", False), ("canal-json", False), ("canal-json", True)])
def test_every_form_of_a_file(tmp_path: Path, protocol: str, *, raw: bool, compression: str) -> None:
    """Values may be compressed or raw; the feed and the command give the same whole rows."""
    messages = claimed(tmp_path, 3, protocol, large_message_handle_compression=compression, claim_check_raw_value=raw)
    read = options(tmp_path, protocol, compression=compression, claim_check_raw_value=raw)
    words = ["--protocol", protocol, "--set", f"claim-check-storage-uri={tmp_path.as_uri()}"]
    words += ["--set", f"large-message-handle-compression={compression}"]
    words += ["--set", f"claim-check-raw-value={'true' if raw else 'false'}"]

    landed = land_messages(messages, LandPlan("t", 0, read))
    shown = CliRunner().invoke(decode_command, words, input=b"".join(pack_frame(m.key, m.value) for m in messages))

    assert landed.halt is None
    assert texts(landed) == [text(key).encode() for key in range(3)]
    assert shown.exit_code == 0, shown.output
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    values = [{column["name"]: column["value"] for column in line["columns"]} for line in lines]
    assert [one["a"]["s"] for one in values] == [text(key) for key in range(3)]


class Slow(module._Directory):
    """A storage whose files are only given out when several are being asked for."""

    def __init__(self, path: Path, together: int) -> None:
        super().__init__(path)
        self.barrier = threading.Barrier(together, timeout=60)
        self.read_names: list[str] = []

    def read(self, name: str, most: int) -> bytes:
        """The file, when `together` calls wait for one."""
        self.read_names.append(name)
        self.barrier.wait()
        return super().read(name, most)


def test_several_are_fetched_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files are being read at the same time, and their rows come in the order of the messages."""
    monkeypatch.setattr(module, "_Directory", lambda path: Slow(path, 4))
    read = options(tmp_path)
    cut = rows(claimed(tmp_path, 8), read)

    found = list(WholeRows(read).whole(cut))

    assert [max(map(str, one.after), key=len) for one in found if isinstance(one, Insert)] == list(map(text, range(8)))


def test_no_more_is_fetched_than_may_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are taken in groups of IN_FLIGHT_BYTES; the next group waits until the one before has been taken."""
    asked = Slow(tmp_path, 2)
    monkeypatch.setattr(module, "_Directory", lambda _path: asked)
    cut = rows(claimed(tmp_path, 6), options(tmp_path))
    size_bytes = max(file.stat().st_size for file in tmp_path.iterdir())
    monkeypatch.setattr(module, "IN_FLIGHT_BYTES", 2 * size_bytes)

    found = WholeRows(options(tmp_path)).whole(cut)
    seen = [len(asked.read_names) for _ in found]

    assert seen == [2, 2, 4, 4, 6, 6]


def test_a_file_above_the_limit_is_never_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a dead letter that names table, ts, both sizes and the key to raise; the others land."""
    messages = claimed(tmp_path, 3)
    names = sorted(tmp_path.iterdir(), key=lambda file: int(file.stem))
    names[1].write_bytes(names[1].read_bytes().ljust(20_000))
    asked = Slow(tmp_path, 1)
    monkeypatch.setattr(module, "_Directory", lambda _path: asked)
    read = options(tmp_path, claim_check_max_bytes=19_999)

    landed = land_messages(messages, LandPlan("t", 0, read, skip_dead=True))

    assert names[1].name not in asked.read_names
    assert texts(landed) == [text(0).encode(), text(2).encode()]
    (letter,) = landed.letters
    assert letter.error_code == "CDC:ErrClaimCheckUnavailable"
    for word in ("s.t at ts", "20000", "19999", "claim-check-max-bytes"):
        assert word in letter.error


def test_a_file_that_grows_while_it_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds for what is read, whatever size was told before."""
    (tmp_path / "a.json").write_bytes(b"x" * 100)
    monkeypatch.setattr(module._Directory, "size", lambda _self, _name: 1)
    (found,) = ClaimReader(str(tmp_path), 99).bodies(["s3://elsewhere/a.json"])
    assert isinstance(found, ClaimCheckUnavailable)


@pytest.mark.parametrize("uri", ["file://{}", "{}", "local://{}"])
def test_storages(tmp_path: Path, uri: str) -> None:
    """A bare path, file:// and TiCDC's local:// are directories, which need no library."""
    (tmp_path / "a.json").write_bytes(b"body")
    found = list(ClaimReader(uri.format(tmp_path), 99).bodies(["x/a.json", "x/b.json", "x/.."]))
    assert found[0] == b"body"
    assert [type(one).__name__ for one in found[1:]] == ["ClaimCheckUnavailable", "DecodeError"]


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_only_regular_files_are_read(tmp_path: Path, scheme: str) -> None:
    """What somebody put into the directory to lead out of it, or to be waited for, is no file, now and later."""
    (tmp_path / "secret").write_bytes(b"secret")
    home = tmp_path / "claims"
    home.mkdir()
    (home / "link.json").symlink_to(tmp_path / "secret")
    (home / "loop.json").symlink_to(home / "loop.json")
    os.mkfifo(home / "pipe.json")
    (home / "folder.json").mkdir()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as door:
        door.bind(str(home / "door.json"))
    names = ["link.json", "loop.json", "pipe.json", "folder.json", "door.json", f"{'n' * 300}.json"]
    found = list(ClaimReader(f"{scheme}{home}", 99).bodies(names))
    assert [type(one).__name__ for one in found] == ["ClaimCheckUnavailable"] * len(names)


def test_files_are_written_where_they_are_named(tmp_path: Path) -> None:
    """A link in the place of a file to come is not followed."""
    (tmp_path / "target").write_bytes(b"kept")
    (tmp_path / "a.json").symlink_to(tmp_path / "target")
    with pytest.raises(SinkError, match=r"a\.json cannot be written"):
        ClaimFiles(tmp_path.as_uri(), random_names()).put("a.json", b"body")
    assert (tmp_path / "target").read_bytes() == b"kept"


def test_an_unknown_storage_is_said(tmp_path: Path) -> None:
    """A storage that no installed package knows is an error of this machine, or of the address."""
    with pytest.raises((EnvironmentFault, SourceError)) as caught:
        list(ClaimReader("nosuch://key:secret@bucket/", 99).bodies(["a.json"]))
    assert "secret" not in str(caught.value)


def test_a_storage_that_does_not_answer_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no dead letter: the landing fails with an error that may pass."""

    def away(_self: object, _name: str) -> int:
        raise TimeoutError

    monkeypatch.setattr(module._Directory, "size", away)
    messages = claimed(tmp_path, 1)
    with pytest.raises(SourceError) as caught:
        land_messages(messages, LandPlan("t", 0, options(tmp_path, claim_check_max_bytes=7), skip_dead=True))
    assert caught.value.retry.value == "later"
    assert str(tmp_path) not in str(caught.value)


def test_rows_of_a_chunk_are_written_out_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of small messages that stand for large rows lands in runs, none of which holds many of them."""
    messages = claimed(tmp_path, 9)
    monkeypatch.setattr(kafka_messages, "WHOLE_BYTES", 3 * TEXT_BYTES)
    plan = LandPlan("t", 0, options(tmp_path, claim_check_max_bytes=1 << 20))

    runs = list(land_chunk(messages, plan, Encoder(), start=0, clock=0))

    assert [len(texts(run)) for run in runs] == [3, 3, 3]
    assert [run.position for run in runs] == [3, 6, 9]
    assert [one for run in runs for one in texts(run)] == [text(key).encode() for key in range(9)]


def test_a_missing_file_is_a_line_and_a_status(tmp_path: Path) -> None:
    """`decode` prints the row as it came, says why on standard error, and exits with 1."""
    messages = claimed(tmp_path, 2)
    next(tmp_path.glob("1.json")).unlink()
    words = ["--protocol", "open", "--set", f"claim-check-storage-uri={tmp_path}"]
    shown = CliRunner().invoke(decode_command, words, input=b"".join(pack_frame(m.key, m.value) for m in messages))

    assert shown.exit_code == 1
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [("claim_check" in line) for line in lines] == [True, False]
    assert "warning CDC:ErrClaimCheckUnavailable: message 0: s.t at ts" in shown.stderr
