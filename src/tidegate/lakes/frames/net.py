"""Net changes by key: what is left of some changes of a table, for those who MERGE a stream by themselves.

    insert 7, update 7, delete 8, insert 8        ──►    7 upsert, 8 upsert
    update of 9, whose key becomes 10             ──►    9 delete, 10 upsert

One image of each key is left, the last: a row that came is `upsert`, one that left is `delete`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidegate.expr.tokens import quote_name
from tidegate.model.errors import ConfigError
from tidegate.sink.delta.changelog_rows import COMES
from tidegate.sink.delta.modes import CHANGE_SEQ, CHANGE_TIME, CHANGE_TS, CHANGE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OP: Final = "_op"
_LAST: Final = "_tidegate_last"


def net_changes(changes: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """Return one row for each key of `changes`, which are rows of the format `tidegate` or of a lake of mode changelog.

    The columns are the table's and `_op`, `upsert` or `delete`. ConfigError for a key that is no column."""
    from pyspark.sql import functions

    unknown = [name for name in key if name not in changes.columns]
    if unknown or not key:
        raise ConfigError(f"the key is to name columns of the changes; they are: {', '.join(changes.columns)}")
    columns = {name: functions.col(quote_name(name)) for name in changes.columns}
    comes = columns[CHANGE_TYPE].isin(*COMES)
    order = functions.struct(columns[CHANGE_TS], columns[CHANGE_SEQ], comes)
    op = functions.when(comes, "upsert").otherwise("delete").alias(OP)
    mine = [name for name in changes.columns if name not in {CHANGE_TYPE, CHANGE_TS, CHANGE_SEQ, CHANGE_TIME}]
    row = functions.struct(*(columns[name] for name in mine), op)
    last = changes.groupBy(*(columns[name] for name in key)).agg(functions.max_by(row, order).alias(_LAST))
    return last.select(*(functions.col(f"{_LAST}.{quote_name(name)}").alias(name) for name in (*mine, OP)))
