"""Messages made by hand and recorded, and a landing without Kafka and Spark."""

import gzip
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tidegate.changelog.changelog import claim, commit_batch
from tidegate.changelog.files import DEAD, HALT, ControlFiles, RowFiles, State, TaskReport
from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import read_frames
from tidegate.engine.frontier import Reached
from tidegate.source.kafka_messages import LandPlan, TopicMessage, land_messages

WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
OPEN = DecodeOptions(protocol="open-protocol")
TOPIC = "shop"
TS = 470607233549598720


def framed(parts: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">Q", len(part)) + part for part in parts)


def compact(part: dict[str, Any]) -> bytes:
    """JSON as TiCDC writes it, without spaces."""
    return json.dumps(part, separators=(",", ":")).encode()


def open_message(offset: int, *events: tuple[dict[str, Any], dict[str, Any] | None]) -> TopicMessage:
    """An Open Protocol message of (key JSON, value JSON) events."""
    key = struct.pack(">Q", 1) + framed([compact(key) for key, _ in events])
    value = framed([b"" if value is None else compact(value) for _, value in events])
    return TopicMessage(offset, key, value)


def insert(ts: int, number: int, table: str = "orders", **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    columns = {"id": {"t": 3, "h": True, "f": 11, "v": number}, "note": {"t": 15, "f": 64, "v": f"n{number}"}}
    return {"ts": ts, "scm": "shop", "tbl": table, "t": 1, **more}, {"u": columns}


def delete(ts: int, number: int, table: str = "orders", **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    columns = {"id": {"t": 3, "h": True, "f": 11, "v": number}}
    return {"ts": ts, "scm": "shop", "tbl": table, "t": 1, **more}, {"d": columns}


def ddl(ts: int, query: str, table: str = "orders") -> tuple[dict[str, Any], dict[str, Any]]:
    return {"ts": ts, "scm": "shop", "tbl": table, "t": 2}, {"q": query, "t": 3}


def resolved(ts: int) -> tuple[dict[str, Any], None]:
    return {"ts": ts, "t": 3}, None


def recording(name: str, partition: int) -> Iterator[TopicMessage]:
    """The messages of one partition of a recorded workload."""
    body = gzip.decompress((WORKLOAD / name / f"p{partition}.bin.gz").read_bytes())
    for offset, (key, value) in enumerate(read_frames(body)):
        yield TopicMessage(offset, key, value)


def manifest(name: str) -> dict[str, Any]:
    return json.loads((WORKLOAD / "manifest.json").read_text())["recordings"][name]


def begin(uri: str, partitions: int = 1, feed: str = "f") -> State:
    """Claim a changelog for a topic whose partitions begin at 0."""

    def positions(state: State) -> State:
        fresh = dict.fromkeys(range(partitions), Reached(0))
        return replace(state, positions={TOPIC: {**fresh, **state.positions.get(TOPIC, {})}})

    return claim(uri, feed, OPEN, positions)


def land_batch(
    uri: str, state: State, batch: Mapping[int, Sequence[TopicMessage]], *, flush_bytes: int = 1 << 20, **plan: Any
) -> State:
    """What a batch of the landing does, in this process."""
    reports = []
    for partition, messages in batch.items():
        files = RowFiles(uri, flush_bytes=flush_bytes)
        reports.append(_task(uri, state, messages, LandPlan(TOPIC, partition, **{"options": OPEN, **plan}), files))
    return commit_batch(uri, state, reports, order_by_offset=plan.get("order_by_offset", False))


def _task(uri: str, state: State, messages: Sequence[TopicMessage], plan: LandPlan, files: RowFiles) -> TaskReport:
    start = state.positions[TOPIC][plan.partition].offset
    landed = land_messages(messages, plan, start=start, clock=state.frontier or 0)
    files.add(landed.tables.items())
    controls = ControlFiles(uri, 1 << 20)
    controls.add(landed.ddls, [(DEAD, letter) for letter in landed.letters])
    if landed.halted_at is not None:
        controls.add((), [(HALT, landed.halted_at)])
    written = (*files.close(), *controls.close())
    return TaskReport(
        topic=TOPIC,
        partition=plan.partition,
        start=start,
        position=landed.position,
        resolved=landed.clock if plan.order_by_offset else landed.resolved,
        messages=landed.messages,
        ddls=len(landed.ddls),
        dead=len(landed.letters),
        tables=files.counts(),
        files=written,
        halt=landed.halt,
    )
