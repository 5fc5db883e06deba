"""What a TRUNCATE TABLE leaves to the new incarnation of a table whose past is kept.

    old incarnation   ──rows──rows──┤ TRUNCATE                     retired as it stands, FLASHBACK TABLE brings it back
    new incarnation                 ├─ a copy of the old one's changes or versions, the rows of then removed ──rows──►

The copy goes into the commit that makes the table.  A replica begins empty.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tidegate.feed.step import Position
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, TableSnapshot
from tidegate.sink.delta.changelog_rows import moved_rows
from tidegate.sink.delta.columns import LakeColumn, bounded, stored_columns
from tidegate.sink.delta.files import read, write
from tidegate.sink.delta.history import ended
from tidegate.sink.delta.history_files import by_kind
from tidegate.sink.delta.mode_steps import MOVES
from tidegate.sink.delta.modes import VALID_TO, Form, form_of
from tidegate.sink.delta.options import DeltaOptions

__all__ = ["inherited"]

Inherit = Callable[[TableSnapshot, TableInfo, Sequence[LakeColumn], str, Position], Iterator[Action]]


def inherited(
    table: TableInfo, uri: str, at: Position, options: DeltaOptions
) -> tuple[tuple[LakeColumn, ...], list[Action]] | None:
    """Return what `table`, emptied by a TRUNCATE at that position, leaves to its successor at `uri`: its stored
    columns, and the add actions of its past; None where nothing is kept."""
    inherit = INHERITS.get(form_of(table, options.mode))
    old = None if inherit is None else deltalog.load(options.table_uri(table.incarnation))
    if inherit is None or old is None:
        return None
    columns = stored_columns(old)
    return columns, list(inherit(old, table, columns, uri, at))


def _changes(
    old: TableSnapshot, table: TableInfo, columns: Sequence[LakeColumn], uri: str, at: Position
) -> Iterator[Action]:
    names = [column.name for column in columns]
    for file in old.files():
        yield from write(uri, read(old.uri, file, columns), columns, bounded(table, columns))
    for rows in MOVES["CHANGES"].now(old, table, columns):
        yield from write(uri, moved_rows(rows, "delete", at).select(names), columns, bounded(table, columns))


def _versions(
    old: TableSnapshot, table: TableInfo, columns: Sequence[LakeColumn], uri: str, at: Position
) -> Iterator[Action]:
    for file in old.files():
        versions = read(old.uri, file, columns)
        still = versions.column(VALID_TO).is_null().to_numpy().nonzero()[0]
        for rows in by_kind(ended(versions, still, at[0])):
            yield from write(uri, rows, columns, bounded(table, columns))


INHERITS: Final[Mapping[Form, Inherit]] = {"CHANGES": _changes, "VERSIONS": _versions}
