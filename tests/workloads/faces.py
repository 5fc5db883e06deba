"""Faces: what row events say, in numbers, beside what they have to say.

    TrueRow (workload_truth.py) ── the options of the changefeed ──► faces that have to arrive: one, or two of a split
    RowChange that arrived ───────────────────────────────────────► its face

A face's time is a commit timestamp, or milliseconds where messages tell no more.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tests.upstream.simulate.values import number_of
from tests.workloads.feed import Disturbance
from tests.workloads.setting import Setting
from tests.workloads.truth import (
    OWN_DATABASE,
    Image,
    TrueDdl,
    TrueRow,
    handle_of,
    unique_columns,
)
from tidegate.model.event import Field, RowChange, Values, images
from tidegate.model.mysql import MysqlType
from tidegate.schema.stored.definition import StoredTable
from tidegate.schema.stored.snapshot import table_info

Frozen = tuple[tuple[str, int | None], ...] | None


class Face(NamedTuple):
    """What a row event says, with numbers for values."""

    ts: int
    table: str
    kind: str
    before: Frozen
    after: Frozen

    def of(self, names: Sequence[str], setting: Setting) -> "Face":
        """What is seen of it with these columns alone."""
        before, after = (
            None if one is None else {name: value for name, value in one if name in names}
            for one in (self.before, self.after)
        )
        return _told(self.ts, self.table, before, after, setting)


@dataclass
class Facts:
    """What is true, and what the feed says of itself: it has done all of (start, checkpoint]."""

    setting: Setting
    rows: Sequence[TrueRow]
    ddls: Sequence[TrueDdl]
    checkpoint: int
    start: int = 0
    disturbed: Sequence[Disturbance] = ()
    living: frozenset[str] = frozenset()
    """Tables that are replicated at the checkpoint."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many partitions each topic has."""

    @cached_property
    def expected(self) -> Mapping[Face, list[TrueRow]]:
        """The faces that have to arrive, each with the rows that it belongs to."""
        found: dict[Face, list[TrueRow]] = defaultdict(list)
        for row in self.rows:
            if self.start < row.ts <= self.checkpoint:
                for face in faces(row, self.setting):
                    found[face].append(row)
        return found

    @cached_property
    def near(self) -> Mapping[tuple[int, str], list[Face]]:
        """The same by time and table."""
        found: dict[tuple[int, str], list[Face]] = defaultdict(list)
        for face in self.expected:
            found[face.ts, face.table].append(face)
        return found


def faces(row: TrueRow, setting: Setting) -> list[Face]:
    """How a row change has to arrive."""
    before, after = row.before, row.after
    if before is not None and after is not None and is_split(row, setting):
        return [_face(row, setting, before, None), _face(row, setting, None, after)]
    return [_face(row, setting, before, after)]


def is_split(row: TrueRow, setting: Setting) -> bool:
    """Whether an UPDATE has to come as DELETE and INSERT: a key changes, or what its dispatcher goes by."""
    assert row.before is not None
    assert row.after is not None
    changed = {name for name in row.after if row.before[name] != row.after[name]}
    moved = set(spread_columns(row.stored, row.table, setting))
    return bool(changed & moved) or (setting.split.unique_keys and bool(changed & unique_columns(row.stored)))


def spread_columns(stored: StoredTable, table: str, setting: Setting) -> tuple[str, ...]:
    """The columns whose values pick the partition."""
    rule, way = setting.rule(table), setting.way(table)
    if way == "columns":
        return tuple(name.lower() for name in rule["columns"])  # type: ignore[attr-defined]
    if way != "index-value":
        return ()
    index = str(rule.get("index", "")).lower()
    named = (
        one.columns
        for one in table_info(stored, OWN_DATABASE, 0).indexes
        if one.name.lower() == index or (one.primary and index == "primary")
    )
    return tuple(name.lower() for name in next(named, handle_of(stored)))


def _face(row: TrueRow, setting: Setting, before: Image | None, after: Image | None) -> Face:
    if after is None and setting.says("delete-only-output-handle-key-columns", "false"):
        assert before is not None
        before = {name: before[name] for name in handle_of(row.stored)}
    return _told(setting.when(row.ts), row.table, before, after, setting)


def _told(ts: int, table: str, before: Image | None, after: Image | None, setting: Setting) -> Face:
    """A face as the options let it be seen."""
    kind = "insert" if before is None else "delete" if after is None else "update"
    unseen = setting.words.get("output-old-value") == "false"
    same = setting.says("only-output-updated-columns", "false") and before == after
    if kind == "update" and (unseen or same):
        kind, before = "insert", None
    return Face(ts, table, kind, _frozen(before), _frozen(after))


def _frozen(image: Image | None) -> Frozen:
    return None if image is None else tuple(sorted(image.items()))


def face_of(event: RowChange, setting: Setting) -> Face:
    """What an event says."""
    before, after = (None if values is None else _numbers(event.fields, values) for values in images(event))
    return _told(setting.time(event), event.table.lower(), before, after, setting)


def _numbers(fields: Sequence[Field], values: Values) -> Image:
    found: dict[str, int | None] = {}
    for one, value in zip(fields, values, strict=True):
        is_label = one.type == MysqlType.ENUM and value is not None
        found[one.name.lower()] = int(value) - 1 if is_label else number_of(value)  # type: ignore[arg-type]
    return found
