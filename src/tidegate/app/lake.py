"""Reading a lake: all tables at one published timestamp.

    lake = tidegate.lake("/srv/lake")
    lake.tables()                       names at the newest snapshot
    lake.table("shop.orders", spark)    Spark DataFrame of that very version
    lake.arrow("shop.orders")           Arrow table, read by delta-rs, no Spark needed

Every table is read at the version that the snapshot names, so what is read together belongs together.
"""

from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tidegate.model.errors import ConfigError
from tidegate.model.table import TableInfo
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot, latest, published_at

__all__ = ["Lake"]

LATEST: Final = "latest"


class Lake:
    """A lake at one snapshot: the newest, or the newest at or before a timestamp."""

    def __init__(self, root: str, ts: int | str = LATEST) -> None:
        self.options = DeltaOptions(root=root, feed="")
        self.ts = ts

    def at(self, ts: int | str) -> "Lake":
        """The same lake at the newest snapshot whose checkpoint is not above `ts`."""
        return Lake(self.options.root, ts)

    @cached_property
    def snapshot(self) -> Snapshot:
        """What was published."""
        found = latest(self.options) if self.ts == LATEST else published_at(self.options, int(self.ts))
        if found.number < 0:
            raise ConfigError(f"{self.options.root} holds no published snapshot at or before {self.ts}")
        return found

    @property
    def checkpoint_ts(self) -> int:
        """Everything at or below it is in this snapshot."""
        return self.snapshot.checkpoint.ts

    def tables(self) -> list[str]:
        """The names of all tables, sorted."""
        return sorted(str(table.name) for table in self.snapshot.tables.values())

    def definition(self, name: str) -> TableInfo:
        """The table's definition at this snapshot."""
        return self._find(name)[1]

    def place(self, name: str) -> tuple[str, int]:
        """Where the table's rows lie and at which Delta version."""
        incarnation, _ = self._find(name)
        return self.options.table_uri(incarnation), self.snapshot.tables[incarnation].version

    def arrow(self, name: str) -> pa.Table:
        """The table's rows as Arrow, columns in the upstream's order."""
        uri, version = self.place(name)
        query = QueryBuilder().register("rows", DeltaTable(uri, version=version))
        rows = pa.table(query.execute("select * from rows").read_all())
        plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
        return rows.cast(pa.schema([field.with_type(plain.get(field.type, field.type)) for field in rows.schema]))

    def table(self, name: str, spark: Any = None) -> Any:
        """The table's rows as a Spark DataFrame."""
        from tidegate.spark.session import session

        uri, version = self.place(name)
        return (spark or session()).read.format("delta").option("versionAsOf", version).load(uri)

    def _find(self, name: str) -> tuple[str, TableInfo]:
        folded = name.lower()
        for incarnation, published in self.snapshot.tables.items():
            if str(published.name).lower() == folded:
                return incarnation, self.snapshot.state.tables[published.name.key]
        known = ", ".join(self.tables()) or "none"
        raise ConfigError(f"no table {name} in {self.options.root} at ts {self.checkpoint_ts}; it has: {known}")
