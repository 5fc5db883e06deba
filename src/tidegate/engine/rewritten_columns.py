"""What TiCDC leaves out of rows while TiDB gives a column new bytes. Pure.

    … rows ── rows with NULL ─┤ MODIFY COLUMN (commit_ts)      a topic, a storage directory
         since the table's    last steps of the job
         DDL before

In the last steps of such a job nodes of the newer version do not write the old column any more, and TiCDC, which goes
by it until the job is done, sends NULL in its place.  No message tells where these steps begin, so the window is what
is known of it: behind the table's DDL before, up to this one.  A change log has the rows themselves.

Source: recorded topics of TiCDC 8.5 beside a TiDB 8.5; docs/online-schema-change.md.
"""

from collections.abc import Iterable, Iterator

from tidegate.engine.change import Place
from tidegate.model.event import Ddl
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.schema.effects import Effect, TableAltered
from tidegate.schema.modify_kind import ModifyKind, kind_of_types


def null_warnings(ddl: Ddl, place: Place | None, found: Iterable[Effect]) -> Iterator[str]:
    """Return what a user has to know of a DDL that came in a message or a file."""
    if place is None or not place.topic:
        return
    for effect in found:
        if not isinstance(effect, TableAltered):
            continue
        for column in rewritten(effect.old, effect.new):
            yield (
                f"table {effect.old.name} column {column.name}: the DDL of ts {ddl.commit_ts} rewrites its values, and "
                "TiCDC sends NULL for it in rows that are committed in the last steps of such a DDL: compare rows of "
                f"({effect.old.version}, {ddl.commit_ts}] that have NULL there with the upstream "
                f"(docs/online-schema-change.md). DDL: {ddl.query[:500]}"
            )


def rewritten(old: TableInfo, new: TableInfo) -> list[ColumnInfo]:
    """Return the columns of `old` whose values TiDB writes anew for their types in `new`."""
    before = {column.id: column for column in old.columns if not column.virtual}
    pairs = ((before[column.id], column) for column in new.columns if column.id in before)
    return [was for was, column in pairs if kind_of_types(was.type, column.type) is ModifyKind.LOSSY]
