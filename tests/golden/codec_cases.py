"""The recorded messages and what they have to decode to, told per configuration.

A configuration takes something away from an event; `expected` takes the same away from the recorded event, so that
what is left must be equal in every field.
"""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidegate.codec import DecodeOptions, from_config
from tidegate.model.mysql import MysqlType

DATA = Path(__file__).parent.parent / "data"
HANDLE = 2
BLOBS = {MysqlType.TINY_BLOB, MysqlType.MEDIUM_BLOB, MysqlType.LONG_BLOB, MysqlType.BLOB}
TEXTS = {MysqlType.VARCHAR, MysqlType.VAR_STRING, MysqlType.STRING}
BAD_BYTE = re.compile("[\udc80-\udcff]")
NEW_ARCHITECTURE = {
    "open_no_old_value": {"sink.open.output-old-value": False},
    "open_snappy": {"large-message-handle-compression": "snappy"},
    "open_lz4": {"large-message-handle-compression": "lz4"},
}


class Case(NamedTuple):
    """One line of a recording: messages and the ids of the events that went in."""

    emitter: str
    stream: str
    variant: str
    name: str
    options: DecodeOptions
    events: list[str]
    messages: list[tuple[bytes | None, bytes | None]]
    errors: dict[str, str]
    files: dict[str, bytes]
    checkpoint_ts: int | None

    @property
    def open_protocol(self) -> bool:
        """Whether the messages are Open Protocol; else they are canal-json."""
        return self.variant.startswith("open_")

    @property
    def stale_flags(self) -> bool:
        """The new architecture caches flags by partition and forgets them by table, so DDLs leave old ones behind."""
        return self.emitter == "codec_newarch" and self.stream == "partition" and "batch16" in self.variant


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a gzip file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def variants() -> list[Path]:
    """Every recording of messages."""
    found = sorted(path for root in ("codec", "codec_newarch") for path in (DATA / root).glob("*/*.jsonl.gz"))
    return [path for path in found if path.name.split(".")[0] not in {"events", "dispatch"}]


def sampled(start: int, step: int = 6) -> list[Any]:
    """Every recording, of which the fast tests see one in `step`, from `start` on; the others are slow."""
    return [
        path if index % step == start else pytest.param(path, marks=pytest.mark.slow)
        for index, path in enumerate(variants())
    ]


def cases(path: Path) -> Iterator[Case]:
    """The cases of one recording."""
    variant = path.name.split(".")[0]
    for line in lines(path):
        config = line.get("config") or NEW_ARCHITECTURE.get(variant, {})
        yield Case(
            emitter=path.parent.parent.name,
            stream=path.parent.name,
            variant=variant,
            name=line["case"],
            options=from_config(config, line["protocol"]),
            events=line.get("events") or [],
            messages=[(_bytes(message["key_b64"]), _bytes(message["value_b64"])) for message in line["messages"] or []],
            errors={error["event"]: error["error"] for error in line.get("errors") or []},
            files={file["name"]: base64.b64decode(file["file_b64"]) for file in line.get("claim_check_files") or []},
            checkpoint_ts=line.get("checkpoint_ts"),
        )


@cache
def events(stream: str) -> dict[str, dict[str, Any]]:
    """The recorded events of a stream by id."""
    return {event["id"]: event for event in lines(DATA / "codec" / stream / "events.jsonl.gz") if "id" in event}


def expected(case: Case, event: dict[str, Any], *, full: bool = False) -> dict[str, Any]:
    """What is left of `event` in the messages of `case`; `full` for the file of a claim check."""
    if event["kind"] == "ddl":
        return _expected_ddl(case, event)
    op, after, before = event["op"], event["columns"], event["pre_columns"]
    cut = not full and any(word in case.variant for word in ("handle_key_only", "claim_check"))
    if cut or (op == "DELETE" and "delete_handle_key" in case.variant):
        after, before = (image and [column for column in image if column["flag"] & HANDLE] for image in (after, before))
    unchanged = op == "UPDATE" and [c["value"] for c in after] == [c["value"] for c in before]
    without_old = case.variant == "open_no_old_value"
    classic_partial = case.variant == "open_only_updated" and case.emitter == "codec" and unchanged
    if op == "UPDATE" and (without_old or classic_partial):
        op, before = "INSERT", None
    found = {
        "op": op,
        "schema": event["schema"],
        "table": event["table"],
        "commit_ts": event["commit_ts"] if case.open_protocol or "_tidb" in _carried(case) else None,
        "after": None if op == "DELETE" else _image(case, after),
        "before": None if op == "INSERT" else _image(case, before),
    }
    if case.open_protocol:
        found["row_id"] = (event["row_id"] or None) if case.emitter == "codec" else None
        found["partition_id"] = event["physical_table_id"] if event["is_partition"] else None
    else:
        found["pk_names"] = event["pk_names"] or []
        found["es_ms"] = event["commit_ts"] >> 18
    return found


def _expected_ddl(case: Case, event: dict[str, Any]) -> dict[str, Any]:
    found = {"schema": event["schema"], "table": event["table"], "query": event["query"]}
    if case.open_protocol:
        return {**found, "commit_ts": event["commit_ts"], "type": event["type"]}
    carried = event["commit_ts"] if "_tidb" in _carried(case) else None
    return {**found, "commit_ts": carried, "es_ms": event["commit_ts"] >> 18}


def _carried(case: Case) -> set[str]:
    """Which optional members the messages of a canal-json case have."""
    extended = ("tidb_ext", "handle_key_only", "claim_check", "snappy", "lz4", "too_large")
    return {"_tidb"} if any(word in case.variant for word in extended) else set()


def _image(case: Case, columns: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    flags = case.open_protocol and not case.stale_flags
    return {
        column["name"]: (column["type"], column["flag"] if flags else None, _value(case, column)) for column in columns
    }


def _value(case: Case, column: dict[str, Any]) -> Any:
    value = column["value"]
    if value is None:
        return None
    ((kind, content),) = [(k, v) for k, v in value.items() if k != "s" or len(value) == 1]
    if kind in {"f32", "f64"}:
        return float(content)
    if kind != "b":
        return content
    raw = base64.b64decode(content)
    if column["flag"] & 1:
        return raw
    text = raw.decode("utf-8", "surrogateescape")
    exact = case.open_protocol and (column["type"] in BLOBS or case.emitter == "codec_newarch")
    return text if exact else BAD_BYTE.sub("\ufffd", text)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
