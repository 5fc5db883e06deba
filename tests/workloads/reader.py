"""What a consumer makes of the messages of a topic, with the changefeed's options and nothing else of ours.

    message ─► events ─► row with a claim check      its file is read: {"key", "value"} in base64, or the value itself
                     └─► row with its handle alone   the upstream is asked what it was at its commit_ts (here: Facts)
                     └─► anything else               as it came

Without commit timestamps rows and DDLs have milliseconds; that is the validators' business.  What a reader cannot go on
with is a problem, and so are messages above max-message-bytes and files of rows that would have fitted.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.workloads.faces import Face, Facts, face_of
from tests.workloads.setting import HANDLE_ONLY, PACKING, RAW, Setting
from tidegate.codec import DecodeOptions, decode
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, RowChange, Update
from tidegate.testing.validators import Partition

RECORD = 36
"""What TiCDC adds to key and value of a message before it looks at max-message-bytes."""
INT = 3
KINDS = {"insert": Insert, "update": Update, "delete": Delete}
CARRIED = ("schema", "table", "commit_ts", "pk_names", "handle_only", "es_ms", "build_ms", "row_id")
"""What a completed row keeps of its message."""

Frame = tuple[bytes | None, bytes]
Frames = Mapping[Partition, Sequence[Frame]]


def read_options(setting: Setting) -> DecodeOptions:
    """What a consumer has to be told."""
    packing, raw = setting.words.get(PACKING, "none"), setting.says(RAW, "false")
    return DecodeOptions(protocol=setting.protocol, compression=packing, claim_check_raw_value=raw)


@dataclass
class Consumer:
    """Reads all partitions; `claims` is the directory of claim checks."""

    facts: Facts
    claims: Path
    problems: list[str] = field(default_factory=list)
    cut: int = 0
    """Rows that came without all their columns."""

    def __post_init__(self) -> None:
        self.setting = self.facts.setting
        self.options = read_options(self.setting)

    def read(self, frames: Frames) -> dict[Partition, list[Event]]:
        """The events of each partition, rows whole."""
        return {place: [event for one in held for event in self._message(place, one)] for place, held in frames.items()}

    def _message(self, place: Partition, frame: Frame) -> Iterator[Event]:
        events, limit = decode(*frame, self.options), self.setting.limit
        if limit is not None and _size(frame) > limit and any(map(_is_row, events)):
            self.problems.append(f"{place}: a message of {_size(frame)} bytes, and {limit} are allowed")
        for event in events:
            yield self._whole(place, event) if _is_row(event) else event  # type: ignore[arg-type]

    def _whole(self, place: Partition, row: RowChange) -> RowChange:
        if not row.handle_only and row.claim_check is None:
            return row
        self.cut += 1
        if row.handle_only != (self.setting.large == HANDLE_ONLY):
            self.problems.append(f"{place}: {row} is not marked as {self.setting.large} does it")
        return self._asked(place, row) if row.claim_check is None else self._claimed(place, row)

    # --- claim checks ---

    def _claimed(self, place: Partition, row: RowChange) -> RowChange:
        """The row in the file of a claim check."""
        file = self.claims / str(row.claim_check).rpartition("/")[2]
        if not file.is_file():
            self.problems.append(f"{place}: {row} has no file")
            return row
        frame = self._opened(file.read_bytes())
        if _size(frame) <= (self.setting.limit or 0):
            self.problems.append(f"{place}: {row} would have fitted, with {_size(frame)} bytes")
        events = decode(*frame, self.options)
        if len(events) != 1 or not isinstance(events[0], Insert | Update | Delete):
            self.problems.append(f"{place}: the file of {row} holds {len(events)} events")
            return row
        whole, names = events[0], [one.name.lower() for one in row.fields]
        if face_of(whole, self.setting).of(names, self.setting) != face_of(row, self.setting):
            self.problems.append(f"{place}: the file of {row} holds {whole}")
        return whole

    def _opened(self, body: bytes) -> Frame:
        if self.options.claim_check_raw_value:
            return None, body
        held = json.loads(body)
        return base64.b64decode(held["key"]) if held["key"] else None, base64.b64decode(held["value"])

    # --- handle keys ---

    def _asked(self, place: Partition, row: RowChange) -> RowChange:
        """The row that the upstream had under these keys, values in numbers but for the keys."""
        seen, names = face_of(row, self.setting), [one.name.lower() for one in row.fields]
        found = [
            face for face in self.facts.near.get((seen.ts, seen.table), ()) if face.of(names, self.setting) == seen
        ]
        if len(found) != 1:
            self.problems.append(f"{place}: {row} is the key of {len(found)} rows")
            return row
        return _completed(row, found[0])


def _completed(row: RowChange, face: Face) -> RowChange:
    """A row with the columns of a face; those that it has stay."""
    known = {one.name.lower(): at for at, one in enumerate(row.fields)}
    shown = dict(face.after or face.before or ())
    given: dict[str, object] = {name: getattr(row, name) for name in CARRIED}
    for word, image in (("before", face.before), ("after", face.after)):
        if image is not None:
            held, values = getattr(row, word, getattr(row, "after", ())), dict(image)
            given[word] = tuple(held[known[name]] if name in known else values[name] for name in shown)
    kept = {name: msgspec.structs.replace(row.fields[at], handle=True) for name, at in known.items()}
    fields = tuple(kept.get(name, Field(name, INT)) for name in shown)
    return KINDS[face.kind](fields=fields, **given)  # type: ignore[arg-type]


def _is_row(event: Event) -> bool:
    return not isinstance(event, Ddl | Resolved)


def _size(frame: Frame) -> int:
    return len(frame[0] or b"") + len(frame[1]) + RECORD
