"""The other end of a workload: its topics land in a lake, which is compared with the upstream at every kept moment.

    partitions of all topics ──► landing in seeded batches ──► rounds up to each moment ──► rows by name ◄──► SELECT

The lake's own code does it, without Spark (tests/replay/stage.py). Partitions of several topics count as those of one,
as the frontier of a lake takes them; a topic without a living table is resolved no more, so its end is told by hand.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from tests.feed_tidb.promises import Place
from tests.feed_tidb.workload_truth import Moment, TrueTable
from tests.replay.stage import Stage
from tests.tidb.simulate.model import Shown
from tests.tidb.simulate.values import number_of
from tidegate.app.lake import Lake
from tidegate.codec import BatchEncoder, EncodeOptions
from tidegate.model.event import Resolved
from tidegate.source.kafka.message import Message

Frames = Mapping[Place, Sequence[tuple[bytes | None, bytes]]]
BATCH = 60
ZERO_DATE = -1
"""0000-00-00, which is NULL in a column of dates."""


def lake_differences(root: Path, protocol: str, frames: Frames, moments: Sequence[Moment], seed: int) -> Iterator[str]:
    """What a lake has otherwise than the database, at each of the moments, which are in order."""
    stage = Stage(root, protocol, _messages(protocol, frames, moments[-1].ts), seed)
    more, left = True, list(moments)
    while left:
        if more:
            more = stage.land(BATCH)
        while left and stage.round(left[0].ts) >= left[0].ts:
            moment = left.pop(0)
            for what in moment_differences(Lake(str(root)).at(moment.ts), moment):
                yield f"at {moment.ts}: {what}"
        if left and not more:
            yield f"the lake stands at {stage.sink.snapshot.checkpoint.ts}, and {left[0].ts} is to come"
            return


def moment_differences(lake: Lake, moment: Moment) -> Iterator[str]:
    """The same at one moment, of all tables that have a key."""
    if lake.checkpoint_ts != moment.ts:
        yield f"the snapshot is of {lake.checkpoint_ts}"
        return
    names = {name.removeprefix("gd."): name for name in lake.tables()}
    for name in names.keys() ^ moment.tables.keys():
        if name not in moment.late:
            yield f"table {name} is on one side only"
    for name in sorted(names.keys() & moment.tables.keys()):
        if lake.definition(names[name]).handle_key:
            yield from (f"table {name}: {what}" for what in _rows(lake, names[name], moment.tables[name]))


def _rows(lake: Lake, name: str, truth: TrueTable) -> Iterator[str]:
    found = lake.arrow(name)
    places = {column.lower(): at for at, column in enumerate(found.column_names)}
    if missing := set(truth.columns) - places.keys():
        yield f"columns {sorted(missing)} are missing"
        return
    if extra := places.keys() - set(truth.columns) - truth.late_columns:
        yield f"columns {sorted(extra)} are too many"
    columns = [[_number(value) for value in found.column(places[one]).to_pylist()] for one in truth.columns]
    rows = Counter(zip(*columns, strict=True))
    at = truth.columns.index("id")
    shown, late = _dated(truth.rows), _dated(truth.late_rows)
    expected, held = ({row: n for row, n in one.items() if row[at] not in truth.drifted} for one in (shown, rows))
    missing, more = Counter(expected) - Counter(held), Counter(held) - Counter(expected)
    if missing or not more <= late:
        yield f"{truth.columns}: {dict(more)} too many, {dict(missing)} missing"


def _dated(rows: Counter[Shown]) -> Counter[Shown]:
    """Rows with NULL for dates that are none."""
    return Counter({tuple(None if one == ZERO_DATE else one for one in row): n for row, n in rows.items()})


def _number(value: object) -> int | None:
    if isinstance(value, date):
        return value.day - 1
    return number_of(value)  # type: ignore[arg-type]


def _messages(protocol: str, frames: Frames, last_ts: int) -> dict[int, list[Message]]:
    """Each partition of each topic as one of the lake's, behind its last message the end of all."""
    encoder = BatchEncoder(EncodeOptions(protocol=protocol, enable_tidb_extension=True), now_ms=lambda: 0)
    (end,) = encoder.append(Resolved(last_ts))
    found = {}
    for number, (_, held) in enumerate(sorted(frames.items())):
        found[number] = [
            Message(at, key or None, value) for at, (key, value) in enumerate([*held, (end.key, end.value)])
        ]
    return found
