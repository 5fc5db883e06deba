"""What must hold of a table after each step of a job, whatever came between asking for it and its beginning.

    asked for                           done first                       so it is refused
    DROP COLUMN a                       ADD INDEX ((concat(a, 'x')))     3108 a generated column needs it
    RENAME COLUMN a                     ADD COLUMN b AS (a + 1)          3108
    ADD COLUMN b AS (a + 1)             DROP COLUMN a                    1054 nothing of that name is there
    RENAME COLUMN a                     (PARTITION BY HASH (a + 1))      3855 the partitions need it
    RENAME COLUMN a TO b                ADD COLUMN b                     1060 two columns of one name
    RENAME INDEX i TO j                 ADD INDEX j                      1061 two indexes of one name

A plan looks at the tables of its moment and refuses the same; jobs of one table run one after the other, so a job that
was queued behind another meets a table that it was not planned for.

Source: TiDB pkg/ddl (checks that onDropColumn, onModifyColumn, onAddColumn make again in the job).
"""

from collections import Counter
from collections.abc import Iterator

from tidegate.model.errors import SqlRefused
from tidegate.schema.stored.definition import StoredColumn, StoredPartition, StoredTable
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import column_of
from tidegate_upstream.change.restore import restore


def check_invariants(before: StoredTable, after: StoredTable) -> None:
    """SqlRefused where a job, which makes `after` of `before`, takes away what something needs."""
    _check_names(after)
    old = {column.id for column in before.cols or ()}
    for column in after.cols or ():
        for name in column.dependences or ():
            if _stays(before, after, name):
                continue
            if column.id in old:
                raise SqlRefused(3108, f"Column '{name}' has a generated column dependency.", "HY000")
            raise SqlRefused(1054, f"Unknown column '{name}' in 'generated column function'", "42S22")
    for name in partition_columns(after.partition):
        if not _stays(before, after, name):
            message = f"Column '{name}' has a partitioning function dependency and cannot be dropped or renamed"
            raise SqlRefused(3855, message, "HY000")


def _check_names(table: StoredTable) -> None:
    columns = Counter(column.name.lower for column in table.cols or ())
    indexes = Counter(index.idx_name.lower for index in table.index_info or ())
    for name, count in columns.items():
        if count > 1:
            raise SqlRefused(1060, f"Duplicate column name '{name}'", "42S21")
    for name, count in indexes.items():
        if count > 1:
            raise SqlRefused(1061, f"Duplicate key name '{name}'", "42000")


def _stays(before: StoredTable, after: StoredTable, name: str) -> bool:
    """Whether there is such a column, and it is not on its way out."""
    found, earlier = column_of(after, name), column_of(before, name)
    return found is not None and (_is_public(found) or earlier is None or not _is_public(earlier))


def _is_public(column: StoredColumn) -> bool:
    return column.state == ElementState.PUBLIC


def partition_columns(partition: StoredPartition | None) -> Iterator[str]:
    """Return the columns by which a table is partitioned, in lower case."""
    if partition is None:
        return
    yield from (name.lower for name in partition.columns or ())
    if partition.expr:
        yield from restore(partition.expr).columns
