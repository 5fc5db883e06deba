"""Messages that have landed and that a plan or a sink refuses: a value that its column cannot hold, an unreadable DDL.

    error with `messages` ─► dead-letter=skip   put_aside: what they hold leaves the changelog, and they become dead
                                                letters, in one commit; the round is planned anew
                             dead-letter=halt   note: they can be listed and shown; the feed ends, and somebody skips
                                                or replays them

A message goes as it has landed: whole, with the rows that it has of other tables, and a DDL with its repeats.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.changelog import ledger
from tidegate.changelog.changelog import Changelog
from tidegate.changelog.control import ControlFile
from tidegate.changelog.files import DEAD, REFUSED, ControlFiles, RowFiles
from tidegate.changelog.report import LandedFile
from tidegate.changelog.slice import ChangeSlice, RowGroup, groups_of
from tidegate.changelog.trim import rewritten
from tidegate.engine.change import DeadLetter, Place, PlacedDdl
from tidegate.engine.plan import identity
from tidegate.model.errors import SourceError
from tidegate.model.table import TableName

FLUSH_BYTES: Final = 64 << 20
NOTED_MAX: Final = 100
"""Messages that are kept of one error that ends a feed."""
TRIES: Final = 5

Instead = tuple[dict[TableName, pa.Table], Sequence[PlacedDdl]]


def note(changelog: Changelog, letters: Sequence[DeadLetter]) -> None:
    """Keep refused messages to be looked at, those that are not kept yet."""
    known = {letter.place for control in changelog.controls() for letter in control.refused}
    fresh = [letter for letter in letters[:NOTED_MAX] if letter.place not in known]
    if fresh:
        files = ControlFiles(changelog.uri, FLUSH_BYTES)
        files.add((), [(REFUSED, letter) for letter in fresh])
        ledger.append(changelog.uri, files.close(), rows=0, ddls=0)


def put_aside(changelog: Changelog, letters: Sequence[DeadLetter], instead: Instead | None = None) -> bool:
    """Take out what has landed of the messages of `letters`, which are dead letters then, or are replaced by rows and
    DDLs; False if nothing has landed of them."""
    for _ in range(TRIES):
        changelog.refresh()
        old_rows = _holders(changelog, letters)
        old_controls = _without(changelog, {letter.place for letter in letters})
        if not old_rows and not any(left.ddls != control.ddls for _, control, left in old_controls):
            return False
        rows, controls = RowFiles(changelog.uri, flush_bytes=FLUSH_BYTES), ControlFiles(changelog.uri, FLUSH_BYTES)
        for group in (group for file in old_rows for group in groups_of(changelog.uri, file.path)):
            kept = _kept(_read(changelog.uri, group), letters)
            if kept.num_rows:
                rows.add([(group.name, kept)])
        if instead is None:
            controls.add((), [(DEAD, letter) for letter in letters])
        else:
            rows.add(instead[0].items())
            controls.add(instead[1], ())
        left = rewritten(changelog.uri, [(file, left) for file, _, left in old_controls])
        old = [*old_rows, *(file for file, *_ in old_controls)]
        if ledger.replace(changelog.uri, old, (*rows.close(), *controls.close(), *left)):
            changelog.refresh()
            return True
    raise SourceError(f"{changelog.uri}: files went {TRIES} times in a row while messages were put aside")


def _holders(changelog: Changelog, letters: Sequence[DeadLetter]) -> list[LandedFile]:
    """The row files with rows of the messages."""
    times = [letter.commit_ts for letter in letters if letter.commit_ts is not None]
    low, high = min(times, default=0), max(times, default=(1 << 63) - 1)
    found = []
    for file in changelog.files():
        groups = groups_of(changelog.uri, file.path) if file.part == "rows" else ()
        near = (_read(changelog.uri, group) for group in groups if group.touches(low - 1, high))
        if any(_kept(rows, letters).num_rows < rows.num_rows for rows in near):
            found.append(file)
    return found


def _read(uri: str, group: RowGroup) -> pa.Table:
    return ChangeSlice(uri, group.min_ts - 1, group.max_ts, (group,)).read(group.name)


def _kept(rows: pa.Table, letters: Iterable[DeadLetter]) -> pa.Table:
    """The rows of other messages."""
    for (topic, partition), some in groupby(sorted(one.place for one in letters), lambda at: (at.topic, at.partition)):
        here = pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition))
        theirs: Any = pc.and_(here, pc.is_in(rows["offset"], pa.array([at.offset for at in some], pa.int64())))
        rows = rows.filter(pc.invert(pc.fill_null(theirs, fill_value=False)))
    return rows


def _without(changelog: Changelog, places: Collection[Place]) -> list[tuple[LandedFile, ControlFile, ControlFile]]:
    """The control files with DDLs of the messages, or with what was noted about them, before and after."""
    files = [file for file in changelog.files() if file.part == "control"]
    controls = list(zip(files, changelog.controls(), strict=True))
    gone = {_known(one) for _, control in controls for one in control.ddls if _message(one.place) in places}
    found = []
    for file, control in controls:
        left = replace(
            control,
            ddls=tuple(one for one in control.ddls if _known(one) not in gone),
            replayed=tuple(place for place in control.replayed if place not in places),
            refused=tuple(letter for letter in control.refused if letter.place not in places),
        )
        if left != control:
            found.append((file, control, left))
    return found


def _known(placed: PlacedDdl) -> tuple[int | None, str]:
    return placed.ddl.commit_ts, identity(placed.ddl)


def _message(place: Place) -> Place:
    return Place(place.topic, place.partition, place.offset)
