"""What has to hold of everything that arrived in the topics of a changefeed, whatever went wrong on the way.

    in_order        first sendings of a partition go up in commit_ts; rows of a DDL's ts stand before it, DELETEs of a
                    transaction before its UPDATEs before its INSERTs
    promised        behind a resolved ts nothing new comes at or below it; in the end every topic is resolved
    true_images     every row that arrived happened: table, commit_ts, the image before and the image after
    whole           every row that happened up to the checkpoint arrived, as it is or as its two halves
    ddls_in_place   every DDL in its partitions, behind all rows up to its ts and before all above it; no other DDL
    placed          rows lie where the dispatchers say, and those that share what picks the partition in one
    few_repeats     what was sent again lies where something went wrong, and as often at most

Order is a partition's.  It is the order of a key's changes where the dispatcher keeps a key in one partition:

    table, default    all changes of a table              index-value, rowid    of a handle key
    ts                of a timestamp, of no key           index, columns        of the values of these columns

Of canal-json without the TiDB extension a consumer has milliseconds and no watermark: order, images and DDLs are held
to milliseconds then, and there is nothing to promise.

A validator yields complaints. The facts come of workload_truth.py, which has them from the store, not from the feed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from tests.promises import resolved
from tests.workloads.faces import Facts, face_of, spread_columns
from tests.workloads.setting import SPREAD
from tests.workloads.truth import TrueDdl
from tidegate.model.event import Ddl, Event, Resolved, RowChange, images
from tidegate.schema.restore_ddl import restore_ddl
from tidegate.testing import validators
from tidegate.testing.validators import Partition, event_text

SYNTHESIZED = frozenset({4, 42, 47})
"""DROP TABLE and EXCHANGE PARTITION, whose text is not the user's."""

Partitions = Mapping[Partition, Sequence[Event]]
Validator = Callable[[Facts, Partitions], Iterator[str]]


def row_events(partitions: Partitions) -> Iterator[tuple[Partition, RowChange]]:
    """The row changes with their places."""
    for place, events in partitions.items():
        for event in events:
            if not isinstance(event, Ddl | Resolved):
                yield place, event


# --- validators ---


def in_order(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """First sendings go up in time."""
    setting = facts.setting
    kinds = not setting.split.newarch
    for place, events in partitions.items():
        for what in validators.in_order(events, setting.time, exact=setting.dated, kinds=kinds):
            yield f"{place}: {what}"


def promised(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """Nothing new at or below a resolved ts, and every topic resolved up to the checkpoint, living tables or not."""
    if not facts.setting.dated:
        yield from _undated(partitions)
        return
    for place, events in partitions.items():
        yield from (f"{place}: {what}" for what in validators.promised(events))
        mark = max(resolved(events), default=-1)
        if mark > facts.checkpoint:
            yield f"{place}: resolved {mark}, and the checkpoint is {facts.checkpoint}"
    for topic in {*facts.partitions, *(facts.setting.topic(table) for table in (*facts.living, ""))}:
        for number in range(facts.partitions.get(topic, 0)):
            marks = resolved(partitions.get((topic, number), ()))
            if facts.checkpoint > facts.start and (not marks or marks[-1] != facts.checkpoint):
                yield f"{topic}/{number}: ends with resolved {marks[-1:]}, not {facts.checkpoint}"


def _undated(partitions: Partitions) -> Iterator[str]:
    for place, events in partitions.items():
        for event in events:
            if isinstance(event, Resolved) or event.commit_ts is not None:
                yield f"{place}: {event} says more than the changefeed was told to"


def true_images(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """What arrived happened."""
    for place, event in row_events(partitions):
        face = face_of(event, facts.setting)
        if face not in facts.expected:
            yield f"{place}: {face} never happened; at that ts: {facts.near.get((face.ts, face.table))}"


def whole(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """What happened arrived."""
    arrived = Counter(face_of(event, facts.setting) for _, event in row_events(partitions))
    for face, rows in facts.expected.items():
        if arrived[face] < len(rows):
            yield f"{face} happened {len(rows)} times and arrived {arrived[face]} times"


def ddls_in_place(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """DDLs between the right rows, in the right partitions."""
    wanted: dict[Partition, list[TrueDdl]] = defaultdict(list)
    for ddl in facts.ddls:
        if facts.start < ddl.ts <= facts.checkpoint:
            topic = facts.setting.topic(ddl.home)
            for number in range(1 if facts.setting.canal else facts.partitions.get(topic, 0)):
                wanted[topic, number].append(ddl)
    for place in wanted.keys() | partitions.keys():
        events = partitions.get(place, ())
        yield from _ddls_of(facts, place, wanted[place], events)
        around = validators.around_ddls(events, facts.setting.time, exact=facts.setting.dated)
        yield from (f"{place}: {what}" for what in around)


def _ddls_of(facts: Facts, place: Partition, wanted: Sequence[TrueDdl], events: Sequence[Event]) -> Iterator[str]:
    setting = facts.setting
    found = {event_text(event): event for event in events if isinstance(event, Ddl)}
    for ddl in wanted:
        moment = setting.when(ddl.ts), ddl.table
        near = [text for text, one in found.items() if (setting.time(one), one.table.lower()) == moment]
        texts = {ddl.query, restore_ddl(ddl.query).text} if near else set()
        same = [text for text in near if ddl.type in SYNTHESIZED or found[text].query in texts]
        if same:
            del found[same[0]]
        elif near:
            yield f"{place}: {found.pop(near[0]).query!r} stands for {ddl}"
        else:
            yield f"{place}: {ddl} is missing"
    for event in found.values():
        yield f"{place}: {event} does not belong here"


def placed(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """Topics and partitions as the dispatchers say."""
    homes: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for (topic, number), event in row_events(partitions):
        table = event.table.lower()
        if topic != facts.setting.topic(table):
            yield f"a row of {table} lies in {topic}"
        way, rows = facts.setting.way(table), facts.expected.get(face_of(event, facts.setting), ())
        if way == "ts":
            if number not in {row.ts % facts.partitions.get(topic, 1) for row in rows}:
                yield f"a row of {table} at {facts.setting.time(event)} lies in partition {number} of {topic}"
        elif way not in SPREAD:
            homes[topic, table].add(number)
        elif rows and (shared := _shared(event, spread_columns(rows[0].stored, table, facts.setting))) is not None:
            homes[topic, table, shared].add(number)
    for what, numbers in homes.items():
        if len(numbers) > 1:
            yield f"rows of {what} lie in partitions {sorted(numbers)}"


def _shared(event: RowChange, names: Sequence[str]) -> object:
    """Names, types and values of the columns that pick the partition; None where the message has not all of them."""
    before, after = images(event)
    values = before if after is None else after
    assert values is not None
    known = {one.name.lower(): (one.type, value) for one, value in zip(event.fields, values, strict=True)}
    carried = {one.name.lower() for one in event.fields if one.handle} if event.handle_only else known.keys()
    return tuple((name, known[name]) for name in names) if carried >= set(names) else None


def few_repeats(facts: Facts, partitions: Partitions) -> Iterator[str]:
    """Repetitions where something went wrong, no more than it went wrong there."""

    def allowed(ts: int) -> int:
        edge = facts.setting.dated  # a millisecond may lie on both sides of one
        return sum(when(one.low) + edge <= ts <= when(one.high) for one in facts.disturbed)

    when = facts.setting.when

    for place, events in partitions.items():
        times = Counter(event_text(event) for event in events if not isinstance(event, Resolved))
        by_text = {event_text(event): event for event in events if not isinstance(event, Resolved)}
        for text, count in times.items():
            event = by_text[text]
            once = 1 if isinstance(event, Ddl) else len(facts.expected.get(face_of(event, facts.setting), ()))
            if count > once * (1 + allowed(facts.setting.time(event))):
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
