"""What has to hold of everything that arrived in the topics of a changefeed, whatever went wrong on the way.

    in_order        first sendings of a partition go up in commit_ts; rows of a DDL's ts stand before it, DELETEs of a
                    transaction before its UPDATEs before its INSERTs
    promised        behind a resolved ts nothing new comes at or below it; in the end every topic is resolved
    true_images     every row that arrived happened: table, commit_ts, the image before and the image after
    whole           every row that happened up to the checkpoint arrived, as it is or as its two halves
    ddls_in_place   every DDL in its partitions, behind all rows up to its ts and before all above it; no other DDL
    placed          rows lie where the dispatchers say, those of one key in one partition
    few_repeats     what was sent again lies where something went wrong, and as often at most

A validator yields complaints. The facts come of workload_truth.py, which has them from the store, not from the feed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from tests.feed_tidb.promises import Place, told
from tests.feed_tidb.workload_feed import Disturbance
from tests.feed_tidb.workload_setting import SPREAD, Setting
from tests.feed_tidb.workload_truth import Image, TrueDdl, TrueRow, handle_of, unique_columns
from tests.tidb.simulate.values import number_of
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, RowChange, Update, Values, images
from tidegate.model.mysql import MysqlType

SYNTHESIZED = frozenset({4, 42})
"""DROP TABLE and EXCHANGE PARTITION, whose text is not the user's."""
_KINDS: dict[type, int] = {Delete: 0, Update: 1, Insert: 2}

Frozen = tuple[tuple[str, int | None], ...] | None


class Face(NamedTuple):
    """What a row event says, with numbers for values."""

    ts: int
    table: str
    kind: str
    before: Frozen
    after: Frozen


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


Partitions = Mapping[Place, Sequence[Event]]
Validator = Callable[[Facts, Partitions], Iterator[str]]


# --- faces ---


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
    rule = setting.rule(row.table)
    moved: set[str] = set()
    if rule.get("partition") == "index-value":
        moved = set(handle_of(row.stored))
    elif rule.get("partition") == "columns":
        moved = set(rule["columns"])  # type: ignore[call-overload]
    return bool(changed & moved) or (setting.split.unique_keys and bool(changed & unique_columns(row.stored)))


def _face(row: TrueRow, setting: Setting, before: Image | None, after: Image | None) -> Face:
    if after is None and setting.says("delete-only-output-handle-key-columns", "false"):
        assert before is not None
        before = {name: before[name] for name in handle_of(row.stored)}
    return _told(row.ts, row.table, before, after, setting)


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
    return _told(event.commit_ts or 0, event.table.lower(), before, after, setting)


def _numbers(fields: Sequence[Field], values: Values) -> Image:
    found: dict[str, int | None] = {}
    for one, value in zip(fields, values, strict=True):
        is_label = one.type == MysqlType.ENUM and value is not None
        found[one.name.lower()] = int(value) - 1 if is_label else number_of(value)  # type: ignore[arg-type]
    return found


def row_events(partitions: Partitions) -> Iterator[tuple[Place, RowChange]]:
    """The row changes with their places."""
    for place, events in partitions.items():
        for event in events:
            if not isinstance(event, Ddl | Resolved):
                yield place, event


# --- validators ---


def in_order(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """First sendings go up in time."""
    for place, events in partitions.items():
        last, seen, kind = -1, set[str](), (-1, -1)
        for event in events:
            if isinstance(event, Resolved) or (text := told(event)) in seen:
                continue
            seen.add(text)
            at = 2 * (event.commit_ts or 0) + isinstance(event, Ddl)
            if at < last:
                yield f"{place}: {text[:200]} comes behind commit_ts {last // 2}"
            now = (at, _KINDS.get(type(event), 3))
            if now < kind and at == last and not facts.setting.split.newarch:
                yield f"{place}: {text[:200]} stands behind later kinds of its transaction"
            last, kind = max(last, at), now


def promised(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """Nothing new at or below a resolved ts, and every living topic resolved up to the checkpoint."""
    for place, events in partitions.items():
        mark, seen = -1, set[str]()
        for event in events:
            if isinstance(event, Resolved):
                mark = max(mark, event.ts)
            elif (text := told(event)) not in seen:
                seen.add(text)
                if (event.commit_ts or 0) <= mark:
                    yield f"{place}: {text[:200]} is new behind resolved {mark}"
        if mark > facts.checkpoint:
            yield f"{place}: resolved {mark}, and the checkpoint is {facts.checkpoint}"
    for topic in {facts.setting.topic(table) for table in (*facts.living, "")}:
        for number in range(facts.partitions.get(topic, 0)):
            marks = [event.ts for event in partitions.get((topic, number), ()) if isinstance(event, Resolved)]
            if facts.checkpoint > facts.start and (not marks or marks[-1] != facts.checkpoint):
                yield f"{topic}/{number}: ends with resolved {marks[-1:]}, not {facts.checkpoint}"


def true_images(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """What arrived happened."""
    near: dict[tuple[int, str], list[Face]] = defaultdict(list)
    for face in facts.expected:
        near[face.ts, face.table].append(face)
    for place, event in row_events(partitions):
        face = face_of(event, facts.setting)
        if face not in facts.expected:
            yield f"{place}: {face} never happened; at that ts: {near[face.ts, face.table]}"


def whole(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """What happened arrived."""
    arrived = Counter(face_of(event, facts.setting) for _, event in row_events(partitions))
    for face, rows in facts.expected.items():
        if arrived[face] < len(rows):
            yield f"{face} happened {len(rows)} times and arrived {arrived[face]} times"


def ddls_in_place(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """DDLs between the right rows, in the right partitions."""
    wanted: dict[Place, list[TrueDdl]] = defaultdict(list)
    for ddl in facts.ddls:
        if facts.start < ddl.ts <= facts.checkpoint:
            topic = facts.setting.topic(ddl.home)
            for number in range(1 if facts.setting.canal else facts.partitions.get(topic, 0)):
                wanted[topic, number].append(ddl)
    for place in wanted.keys() | partitions.keys():
        events = partitions.get(place, ())
        yield from _ddls_of(place, wanted[place], events)
        yield from _rows_around(place, events)


def _ddls_of(place: Place, wanted: Sequence[TrueDdl], events: Sequence[Event]) -> Iterator[str]:
    found: dict[tuple[int, str], Ddl] = {}
    for event in events:
        if isinstance(event, Ddl):
            found.setdefault((event.commit_ts or 0, event.table.lower()), event)
    for ddl in wanted:
        event = found.pop((ddl.ts, ddl.table), None)
        if event is None:
            yield f"{place}: {ddl} is missing"
        elif ddl.type not in SYNTHESIZED and event.query != ddl.query:
            yield f"{place}: {event.query!r} stands for {ddl}"
    for event in found.values():
        yield f"{place}: {event} does not belong here"


def _rows_around(place: Place, events: Sequence[Event]) -> Iterator[str]:
    first: dict[str, int] = {}
    for at, event in enumerate(events):
        if not isinstance(event, Resolved):
            first.setdefault(told(event), at)
    rows = [(events[at].commit_ts or 0, at) for at in first.values() if not isinstance(events[at], Ddl)]  # type: ignore[union-attr]
    for at in first.values():
        ddl = events[at]
        if isinstance(ddl, Ddl):
            ts = ddl.commit_ts or 0
            if any(when <= ts and where > at for when, where in rows):
                yield f"{place}: {ddl.query!r} at {ts} comes before a row up to it"
            if any(when > ts and where < at for when, where in rows):
                yield f"{place}: {ddl.query!r} at {ts} comes behind a row above it"


def placed(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """Topics and partitions as the dispatchers say."""
    homes: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for (topic, number), event in row_events(partitions):
        table = event.table.lower()
        if topic != facts.setting.topic(table):
            yield f"a row of {table} lies in {topic}"
        rule = facts.setting.rule(table)
        way = str(rule.get("partition", "table"))
        if way == "ts":
            if number != (event.commit_ts or 0) % facts.partitions.get(topic, 1):
                yield f"a row of {table} at {event.commit_ts} lies in partition {number} of {topic}"
            continue
        homes[topic, table, _spread_by(facts, event, way, rule)].add(number)
    for what, numbers in homes.items():
        if len(numbers) > 1:
            yield f"rows of {what} lie in partitions {sorted(numbers)}"


def _spread_by(facts: Facts, event: RowChange, way: str, rule: Mapping[str, object]) -> object:
    """What decides the partition: nothing, or the columns' names, types and values."""
    if way not in SPREAD:
        return None
    rows = facts.expected.get(face_of(event, facts.setting))
    names = rule["columns"] if way == "columns" else handle_of(rows[0].stored) if rows else ()
    before, after = images(event)
    values = before if after is None else after
    assert values is not None
    kinds = {one.name.lower(): (one.type, value) for one, value in zip(event.fields, values, strict=True)}
    return tuple((name, kinds.get(name)) for name in names)  # type: ignore[attr-defined]


def few_repeats(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """Repetitions where something went wrong, no more than it went wrong there."""

    def allowed(ts: int) -> int:
        return sum(one.low < ts <= one.high for one in facts.disturbed)

    for place, events in partitions.items():
        times = Counter(told(event) for event in events if not isinstance(event, Resolved))
        by_text = {told(event): event for event in events if not isinstance(event, Resolved)}
        for text, count in times.items():
            event = by_text[text]
            once = 1 if isinstance(event, Ddl) else len(facts.expected.get(face_of(event, facts.setting), ()))
            if count > once * (1 + allowed(event.commit_ts or 0)):
                yield f"{place}: {count} times {text[:200]}"
        marks = [event.ts for event in events if isinstance(event, Resolved)]
        back = sum(one >= other for one, other in pairwise(marks))
        if back > len(facts.disturbed):
            yield f"{place}: resolved goes back {back} times"


VALIDATORS: tuple[Validator, ...] = (
    in_order,
    promised,
    true_images,
    whole,
    ddls_in_place,
    placed,
    few_repeats,
)


def complaints(facts: Facts, partitions: Partitions) -> list[str]:
    """What is wrong, by the name of the validator that says so."""
    return [f"{one.__name__}: {what}" for one in VALIDATORS for what in one(facts, partitions)]
