"""The DDL that is being applied: what every later step needs to know of it, errors included."""

from dataclasses import dataclass

from tidegate.model.errors import SchemaError
from tidegate.model.table import TableName

__all__ = ["DdlContext"]


@dataclass(frozen=True, slots=True)
class DdlContext:
    """One DDL event: `seq` is its place among all DDLs with this `commit_ts`."""

    commit_ts: int
    seq: int
    query: str

    def incarnation(self, made: int) -> str:
        """Return the name of the rows of the table number `made` (from 0) that this DDL creates or empties."""
        name = f"{self.commit_ts:x}-{self.seq}"
        return f"{name}-{made}" if made else name

    def error(self, table: TableName | str, what: str) -> SchemaError:
        """Return the error of a DDL that does not fit the tables; names table, timestamp and DDL."""
        return SchemaError(
            f"table {table}: {what} at commit_ts {self.commit_ts} by DDL {self.query[:500]!r}; "
            "the schema history and the topic disagree: start the feed again from a point before the table's creation"
        )
