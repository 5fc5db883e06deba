"""The other end of a workload: its topics land in a lake, which is compared with the upstream at every kept moment.

    partitions of all topics ──► landing in seeded batches ──► rounds up to each moment ──► rows by name ◄──► SELECT

The lake's own code does it, without Spark (tests/replay/stage.py). Partitions of several topics count as those of one,
as the frontier of a lake takes them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from tests.replay import stage as stages
from tests.replay.stage import Stage
from tests.upstream.simulate.model import Shown
from tests.upstream.simulate.values import number_of
from tests.workloads.reader import Frames
from tests.workloads.setting import Setting
from tests.workloads.truth import Moment, TrueTable, Truth
from tests.workloads.unlike import Unlike, unlike
from tidegate.codec import DecodeOptions
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.apply import state_at
from tidegate.sink.delta.options import COMMIT_TS, OP, DeltaOptions
from tidegate.source.kafka_messages import TopicMessage

BATCH = 60
ZERO_DATE = -1
"""0000-00-00, which is NULL in a column of dates."""
NOTHING: Mapping[int, Unlike] = {}


@dataclass(frozen=True)
class Landing:
    """A lake in `root`, made of the messages of a changefeed; `seed` cuts its batches."""

    root: Path
    setting: Setting
    options: DecodeOptions
    seed: int

    def differences(self, frames: Frames, truth: Truth, moments: Sequence[Moment]) -> Iterator[str]:
        """What the lake has otherwise than the database, at each of the moments, which are in order."""
        with patch.object(stages, "DeltaOptions", partial(DeltaOptions, mode=self.setting.mode)):
            stage = Stage(self.root, self.setting.protocol, self._messages(frames), self.seed)
        stage.decode = self.options
        more, left = True, list(moments)
        while left:
            if more:
                more = stage.land(BATCH)
            while left and stage.round(left[0].ts) >= left[0].ts:
                moment = left.pop(0)
                known = {one.id: unlike(truth, self.setting, one.id, moment.ts) for one in moment.tables.values()}
                for what in moment_differences(Lake(str(self.root)).at(moment.ts), moment, known):
                    yield f"at {moment.ts}: {what}"
            if left and not more:
                yield f"the lake stands at {stage.sink.snapshot.checkpoint.ts}, and {left[0].ts} is to come"
                return

    def _messages(self, frames: Frames) -> dict[int, list[TopicMessage]]:
        """Each partition of each topic as one of the lake's."""
        return {
            number: [TopicMessage(at, key or None, value) for at, (key, value) in enumerate(held)]
            for number, (_, held) in enumerate(sorted(frames.items()))
        }


def moment_differences(lake: Lake, moment: Moment, known: Mapping[int, Unlike] = NOTHING) -> Iterator[str]:
    """The same at one moment, of all tables; `known` are those by id of which not all rows can be alike."""
    if lake.checkpoint_ts != moment.ts:
        yield f"the snapshot is of {lake.checkpoint_ts}"
        return
    names = {name.removeprefix("gd."): name for name in lake.tables()}
    for name in names.keys() ^ moment.tables.keys():
        if name not in moment.late:
            yield f"table {name} is on one side only"
    for name in sorted(names.keys() & moment.tables.keys()):
        truth = moment.tables[name]
        yield from (
            f"table {name}: {what}" for what in _differences(lake, names[name], truth, known.get(truth.id, Unlike()))
        )


def _differences(lake: Lake, name: str, truth: TrueTable, known: Unlike) -> Iterator[str]:
    stored = lake.arrow(name)
    if OP in stored.column_names:
        yield from _log(stored, known)
        return
    key = {one.lower() for one in lake.definition(name).handle_key}
    found = state_at(stored, [one for one in stored.column_names if one.lower() in key], lake.checkpoint_ts)
    places = {column.lower(): at for at, column in enumerate(found.column_names)}
    if missing := set(truth.columns) - places.keys():
        yield f"columns {sorted(missing)} are missing"
        return
    if extra := places.keys() - set(truth.columns) - truth.late_columns:
        yield f"columns {sorted(extra)} are too many"
    columns = [[_number(value) for value in found.column(places[one]).to_pylist()] for one in truth.columns]
    at = truth.columns.index("id")
    rows, shown = (
        Counter({row: n for row, n in one.items() if row[at] not in known.ids})
        for one in (Counter(zip(*columns, strict=True)), _dated(truth.rows))
    )
    missing, more = shown - rows, rows - shown
    if missing or more:
        yield f"{truth.columns}: {dict(more)} too many, {dict(missing)} missing"


def _log(stored: pa.Table, known: Unlike) -> Iterator[str]:
    """What stands in a log has happened, and so has nothing else since its first line."""
    told = set(zip(*(stored.column(one).to_pylist() for one in (OP, COMMIT_TS, "id")), strict=True))
    lines = {(op, ts, int(number)) for op, ts, number in told if op is not None}
    first = min((ts for _, ts, _ in lines), default=None)
    happened = {line for line in known.lines if first is not None and line[1] >= first}
    if lines != happened:
        yield f"the log has {sorted(lines - happened)} too many, {sorted(happened - lines)} are missing"


def _dated(rows: Counter[Shown]) -> Counter[Shown]:
    """Rows with NULL for dates that are none."""
    return Counter({tuple(None if one == ZERO_DATE else one for one in row): n for row, n in rows.items()})


def _number(value: object) -> int | None:
    if isinstance(value, date):
        return value.day - 1
    return number_of(value)  # type: ignore[arg-type]
