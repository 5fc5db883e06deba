"""An expression over the images of a change: which columns it names, and its value.

    old.balance - new.balance > 1000         the row before and behind the change, NULL where there is none
    upper(status)                            a bare column is of the row as it is, or of a DELETE as it was
    event.op                                 insert, update or delete; table_schema, table_name, commit_ts

    text ──► node, every column with its image ──► compiled for the columns of one table ──► value of each row

What is another value each time (NOW, RAND ..) is refused: a restart could not count the same again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, Final, TypeAlias

from sqlglot import exp

from tidegate.expr.compiler import compile_scalar, condition_node, told_collation, value_reader, wide_bit
from tidegate.expr.scope import Scope, Slot
from tidegate.model.errors import SqlRefused
from tidegate.model.event import Value
from tidegate.model.feed_errors import ExpressionParseFailed
from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.values import Context, SqlValue

ROW: Final = "row"
IMAGES: Final = (ROW, "old", "new", "event")
EVENT_COLUMNS: Final[Mapping[str, ColumnType]] = {
    "op": ColumnType(MysqlType.VARCHAR, 6),
    "table_schema": ColumnType(MysqlType.VARCHAR, 64),
    "table_name": ColumnType(MysqlType.VARCHAR, 64),
    "commit_ts": ColumnType(MysqlType.LONGLONG, unsigned=True, charset="binary"),
}
Named: TypeAlias = tuple[str, str]
"""An image, and a column of it as it is written (of `event` in lower case)."""
_UNSTEADY: Final = frozenset(
    {
        *("NOW", "SYSDATE", "LOCALTIME", "LOCALTIMESTAMP", "CURDATE", "CURTIME", "CURRENT_DATE", "CURRENT_TIME"),
        *("CURRENT_TIMESTAMP", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "RAND", "UUID", "CONNECTION_ID", "USER"),
        *("CURRENT_USER", "SESSION_USER", "DATABASE", "SCHEMA", "FOUND_ROWS", "ROW_COUNT", "LAST_INSERT_ID"),
    }
)
_OF_NOW: Final = "UNIX_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class RowText:
    """A parsed expression; `columns` are those that it names, `single` the one that it is, if it is one alone."""

    text: str
    node: Any
    columns: tuple[Named, ...]
    single: Named | None
    sql_mode: frozenset[str]

    def compiled(
        self, types: Mapping[Named, ColumnType], clocks: tzinfo, zone: tzinfo
    ) -> Callable[[Sequence[Value]], SqlValue]:
        """Return the function of the values of `columns`; `types` are theirs, `clocks` those of TIMESTAMPs in them.

        Raises ExpressionParseFailed. What it returns raises UpstreamError, EncodeError."""
        slots = tuple(
            Slot(at, name, wide_bit(types[image, name]), told_collation(types[image, name]), image)
            for at, (image, name) in enumerate(self.columns)
        )
        try:
            run = compile_scalar(self.node, Scope(slots, clause="expression"))
        except SqlRefused as refused:
            raise ExpressionParseFailed(f"{self.text!r}: {refused.message}") from refused
        readers = [value_reader(slot.type, clocks, zone) for slot in slots]
        context = Context(datetime.fromtimestamp(0, UTC), zone, self.sql_mode)

        def value(values: Sequence[Value]) -> SqlValue:
            context.warnings.clear()
            return run([read(one) for read, one in zip(readers, values, strict=True)], context)

        return value


@lru_cache(maxsize=1024)
def row_text(text: str, sql_mode: frozenset[str] = frozenset()) -> RowText:
    """Return the expression that a text is. ExpressionParseFailed for one that is none, or is not steady."""
    node = condition_node(text, sql_mode).copy()
    if node.find(exp.Query) is not None:
        raise ExpressionParseFailed(f"{text!r}: an expression of a rule has no subqueries")
    for call in node.find_all(exp.Anonymous):
        name = call.name.upper()
        if name in _UNSTEADY or (name == _OF_NOW and not call.expressions):
            raise ExpressionParseFailed(
                f"{text!r}: {name}() is another value each time, so a restart could not count the same again"
            )
    named: dict[Named, None] = {}
    for column in node.find_all(exp.Column):
        image = lowered(column.table) or ROW
        if image not in IMAGES[1:] and column.table:
            raise ExpressionParseFailed(
                f"{text!r}: write old.{column.name}, new.{column.name} or {column.name}, not {column.sql()}"
            )
        column.set("table", exp.to_identifier(image))
        named[image, lowered(column.name) if image == "event" else column.name] = None
    columns = tuple(named)
    single = columns[0] if isinstance(node, exp.Column) else None
    return RowText(text, node, columns, single, sql_mode)
