"""Recorded encoder runs, made ready to be run again: the options, the events with their tables, what came out.

The second emitter's recordings do not tell their configuration; their names do (`NEWARCH_CONFIG`).
"""

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.golden.codec_cases import DATA, Case, cases, variants
from tidegate.codec.batch import BatchEncoder, ClaimStore, Message, MessageKind
from tidegate.codec.claim import open_claim
from tidegate.codec.compression import decompress
from tidegate.codec.encoding import EncodeOptions, encode_options
from tidegate.codec.neutral_read import EventLine, EventReader
from tidegate.model.errors import EncodeError, TidegateError
from tidegate.model.event import Ddl, Resolved

SMALL_BATCH = 2000
NOW_MS = 1_795_222_273_679
"""Any clock of as many digits as the recorded one: sizes count them."""
TIDB = {"uri.enable-tidb-extension": "true"}
NEWARCH_CONFIG: dict[str, dict[str, object]] = {
    "open_default": {"uri.max-batch-size": "1"},
    "open_batch16": {"uri.max-batch-size": "16"},
    "open_batch16_max2000": {"uri.max-batch-size": "16"},
    "open_no_old_value": {"uri.max-batch-size": "1", "sink.open.output-old-value": False},
    "open_only_updated": {"uri.max-batch-size": "1", "uri.only-output-updated-columns": "true"},
    "open_delete_handle_key": {"uri.max-batch-size": "1", "sink.delete-only-output-handle-key-columns": True},
    "open_handle_key_only": {"uri.max-batch-size": "1", "large-message-handle-option": "handle-key-only"},
    "canal_default": {},
    "canal_tidb_ext": TIDB,
    "canal_compatible": {"uri.content-compatible": "true"},
    "canal_only_updated": {"uri.only-output-updated-columns": "true"},
    "canal_delete_handle_key": {"sink.delete-only-output-handle-key-columns": True},
    "canal_handle_key_only": {**TIDB, "large-message-handle-option": "handle-key-only"},
}
BUILD_TIME = re.compile(rb',"ts":(\d+),"sql":')
MYSQL_TYPE = re.compile(rb'"mysqlType":(\{(?:"(?:[^"\\]|\\.)*"|[^"}])*\})')


class Run(NamedTuple):
    """One line of a recording, to be encoded again; `marks` are rows and kind of each message."""

    case: Case
    options: EncodeOptions
    events: list[tuple[str, EventLine]]
    marks: list[tuple[int, int]]


class RecordedClaims(ClaimStore):
    """Gives the names that the recording gave, and keeps what is stored."""

    def __init__(self, names: Iterator[str]) -> None:
        self._names = names
        self.files: dict[str, bytes] = {}

    def new_name(self) -> str:
        """The next recorded name; any name for a row whose check was refused."""
        return next(self._names, "00000000-0000-0000-0000-000000000000.json")

    def put(self, name: str, body: bytes) -> None:
        """Keeps the file."""
        self.files[name] = body


@cache
def event_lines(stream: str) -> dict[str, EventLine]:
    """The recorded events of a stream, read as lines, by id."""
    reader, found = EventReader(), {}
    with gzip.open(DATA / "codec" / stream / "events.jsonl.gz", "rb") as file:
        for line in file:
            event = reader.read(line)
            if event is not None:
                found[str(msgspec.json.decode(line)["id"])] = event
    return found


def recorded(root: str) -> list[Path]:
    """The recordings of one emitter."""
    return [path for path in variants() if path.parent.parent.name == root]


def runs(path: Path) -> Iterator[Run]:
    """The encoder runs of one recording."""
    variant = path.name.split(".")[0]
    newarch = path.parent.parent.name == "codec_newarch"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for case, line in zip(cases(path), lines, strict=True):
        config: dict[str, object] = dict(NEWARCH_CONFIG[variant] if newarch else line["config"])
        if newarch:
            config |= {"dialect": "newarch", "newarch-faults": "all"}
        limit = line.get("max_message_bytes") or (SMALL_BATCH if variant.endswith("max2000") else None)
        if limit is not None:
            config["uri.max-message-bytes"] = str(limit)
        order = list(event_lines(case.stream))
        names = sorted({*case.events, *case.errors}, key=order.index)
        events = [(name, event_lines(case.stream)[name]) for name in names]
        if case.checkpoint_ts is not None:
            events.append(("", EventLine(Resolved(case.checkpoint_ts))))
        marks = [(message["rows"], message.get("msg_type") or kind(case, events)) for message in line["messages"] or []]
        yield Run(case, encode_options(config, line["protocol"]), events, marks)


def kind(case: Case, events: list[tuple[str, EventLine]]) -> int:
    """The kind of a message, which the second emitter's recordings leave out."""
    if case.checkpoint_ts is not None:
        return MessageKind.RESOLVED
    return MessageKind.DDL if isinstance(events[0][1].event, Ddl) else MessageKind.ROW


def encode(run: Run, now_ms: int) -> tuple[list[Message], dict[str, TidegateError], dict[str, bytes]]:
    """Messages, refused events and claim-check files of a run."""
    claims = RecordedClaims(iter(run.case.files))
    encoder = BatchEncoder(run.options, now_ms=lambda: now_ms, claims=claims)
    messages: list[Message] = []
    errors: dict[str, TidegateError] = {}
    for name, line in run.events:
        try:
            messages += encoder.append(line.event, line.table, line.row_key)
        except EncodeError as error:
            errors[name] = error
    return [*messages, *encoder.flush()], errors, claims.files


def build_time(values: list[bytes]) -> int:
    """Canal's `ts` of recorded values."""
    found = BUILD_TIME.search(values[0]) if values else None
    return int(found[1]) if found else NOW_MS


def masked(value: bytes) -> tuple[bytes, Any]:
    """A canal value without its `mysqlType`, and that as an object."""
    found = MYSQL_TYPE.search(value)
    if found is None:
        return value, None
    return value.replace(found[1], b"?", 1), json.loads(found[1])


def plain(run: Run, value: bytes | None) -> bytes:
    """A value without its compression (Open Protocol's: without the lengths as well)."""
    raw = value or b""
    compression = run.options.compression
    if compression == "none":
        return raw
    if run.case.open_protocol:
        body = raw[8:]
        return decompress(body, compression, "test", 0) if body else b""
    return decompress(raw, compression, "test", 0)


def claim_bodies(run: Run, body: bytes) -> object:
    """A claim-check file in comparable form: the clock and `mysqlType` of canal-json may differ."""
    if run.case.open_protocol:
        return body
    key, value = open_claim(body, run.case.options)
    return key, masked(BUILD_TIME.sub(b"", value))
