"""The topic of a seed as one of the other protocol, and that one as one of the first again.

    topic ── transcode ──► there ── transcode ──► back        0 refused; rows and DDLs say on both ways what they said

What docs/formats/transcoding.md lists as lost is not asked for: flags, row ids, the order of columns.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tests.workloads.reader import Frames, read_options
from tests.workloads.setting import CLAIM, PACKING, RAW, Setting
from tidegate.app.cli.transcode import transcode
from tidegate.codec import DecodeOptions, decode
from tidegate.codec.frame import pack_frame, read_frames
from tidegate.codec.neutral import event_object
from tidegate.model.event import Event, Resolved
from tidegate.testing.validators.events import Place

OTHER = {"open-protocol": "canal-json", "canal-json": "open-protocol"}
EXTENSION = "enable-tidb-extension=true"


def differences(frames: Frames, arrived: Mapping[Place, Sequence[Event]], setting: Setting, claims: Path) -> list[str]:
    """What is refused, or said otherwise, of a topic that is turned into the other protocol and back; `arrived` is what
    a consumer that fetches claim checks makes of it."""
    raw = b"".join(pack_frame(key, value) for held in frames.values() for key, value in held)
    told = [f"{word}={setting.words[word]}" for word in (PACKING, RAW) if word in setting.words]
    fetched = [f"claim-check-storage-uri={claims.as_uri()}"] if setting.large == CLAIM else []
    other = OTHER[setting.protocol]
    there = _run(raw, setting.protocol, other, [*told, *fetched])
    back = _run(there.stdout_bytes, other, setting.protocol, [])
    if refused := [line for one in (there, back) for line in one.stderr.splitlines() if one.exit_code]:
        return [f"{len(refused)} messages of {setting.protocol} refused: {refused[:2]}"]
    whole = [event for events in arrived.values() for event in events]
    first = [_told(event) for event in (whole if fetched else _events(raw, read_options(setting)))]
    ways = {"there": (there, other), "back": (back, setting.protocol)}
    return [
        f"{way}: {one} is {two}"
        for way, (result, protocol) in ways.items()
        for one, two in _unlike(first, [*map(_told, _events(result.stdout_bytes, DecodeOptions(protocol=protocol)))])
    ][:3]


def _run(raw: bytes, source: str, target: str, words: Sequence[str]) -> Result:
    given = [part for word in words for part in ("--from-set", word)]
    arguments = ["--from", source, "--to", target, *given]
    return CliRunner().invoke(transcode, [*arguments, *(("--set", EXTENSION) if target == "canal-json" else ())], raw)


def _events(raw: bytes, options: DecodeOptions) -> list[Event]:
    return [event for key, value in read_frames(raw) for event in decode(key, value, options)]


def _told(event: Event) -> str:
    """What both protocols say."""
    if isinstance(event, Resolved):
        return f"resolved {event.ts}"
    line: dict[str, Any] = event_object(event)
    if line["kind"] == "ddl":
        return json.dumps([line["schema"], line["table"], line["commit_ts"], line["query"]])
    images = [line["columns"], line["pre_columns"]]
    values = [image and sorted((c["name"], c["type"], repr(c["value"])) for c in image) for image in images]
    return json.dumps([line["op"], line["schema"], line["table"], line["commit_ts"], event.handle_only, values])


def _unlike(first: Sequence[str], other: Sequence[str]) -> list[tuple[str, str]]:
    if len(first) != len(other):
        return [(f"{len(first)} events", f"{len(other)} events")]
    return [(one, two) for one, two in zip(first, other, strict=True) if one != two]
