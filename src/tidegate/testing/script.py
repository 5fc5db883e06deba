"""A database in memory that does what a script says: transactions, DDLs, resolved timestamps, and the rows they leave.

    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9))")
    story.commit(put("shop.t", id=1, v="a"), put("shop.u", id=7))     one transaction over two tables
    story.commit(put("shop.t", id=1, v="b"), remove("shop.u", id=7))  `put` of a known key is an UPDATE
    story.resolve()

    story.events        row changes and DDLs in commit order, each with its commit_ts
    story.marks         the resolved timestamps
    story.tables(ts)    the rows of every table as they are at `ts`

Each call takes the next timestamp, a second after the one before; rows that come `along` a DDL have its commit_ts and
lie before it.  Tables are followed by schema/state.py; a DDL that cannot be followed changes nothing.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from tidegate.codec.wire_table import wire_table
from tidegate.engine.ddl_event import action_of_text
from tidegate.model.errors import InputError, SchemaError
from tidegate.model.event import Ddl, Delete, Insert, RowChange, Update, Value, Values, images
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import compose
from tidegate.schema import effects
from tidegate.schema.literal import stored_value
from tidegate.schema.partition import partition_of
from tidegate.schema.state import SchemaState, apply_ddl

Row: TypeAlias = Mapping[str, Value]
"""The values of a row by column name."""
BEGIN_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1000
UNREAD: Final = 51
"""The action of a DDL whose text cannot be read: TiDB's CREATE PLACEMENT POLICY."""


class ScriptedWrite(NamedTuple):
    """What a transaction does to one row of `table`; `values` of a removal are its key, and with `bare` all that its
    DELETE tells."""

    table: str
    values: Row
    removes: bool = False
    bare: bool = False


def put(table: str, **values: Value) -> ScriptedWrite:
    """Insert a row, or change those columns of the row that has its key. A new row has NULL where nothing is given."""
    return ScriptedWrite(table, values)


def remove(table: str, **key: Value) -> ScriptedWrite:
    """Delete the row of that key."""
    return ScriptedWrite(table, key, removes=True)


def remove_bare(table: str, **key: Value) -> ScriptedWrite:
    """Delete the row of that key by a DELETE that has the handle columns alone, as TiCDC sends it with
    `delete-only-output-handle-key-columns`."""
    return ScriptedWrite(table, key, removes=True, bare=True)


class ScriptedTables:
    """The tables of a database and their rows, moved on event by event."""

    def __init__(self) -> None:
        self.state = SchemaState()
        self._rows: dict[str, list[Row]] = {}
        self._seq, self._ts = 0, 0

    def rows(self) -> dict[str, list[Row]]:
        """Return the rows of every table by its name."""
        return {str(table.name): list(self._rows[table.incarnation]) for table in self.state.tables.values()}

    def of(self, name: str) -> TableInfo:
        """Return the definition of the table that is called so now."""
        table = self.state.table(TableName(*name.split(".")))
        assert table is not None, name
        return table

    def find(self, table: TableInfo, values: Row) -> Row | None:
        """Return the row of `table` that has the key of `values`; a table without a key has no such row."""
        key = table.handle_key
        same = (row for row in self._rows[table.incarnation] if all(row[name] == values[name] for name in key))
        return next(same, None) if key else None

    def apply(self, event: RowChange | Ddl) -> None:
        """Move on by one event."""
        if isinstance(event, Ddl):
            self._ddl(event)
            return
        table = self.of(f"{event.schema}.{event.table}")
        rows = self._rows[table.incarnation]
        before, after = (_row(event, values) for values in images(event))
        if before is not None:
            is_bare = before.keys() == set(table.handle_key)
            rows.remove((self.find(table, before) if is_bare else None) or before)
        if after is not None:
            rows.append(after)

    def _ddl(self, ddl: Ddl) -> None:
        ts = ddl.commit_ts or 0
        self._seq, self._ts = (self._seq + 1 if ts == self._ts else 1), ts
        try:
            self.state, found = apply_ddl(self.state, ddl, self._seq)
        except (InputError, SchemaError):
            return
        for effect in found:
            self._effect(effect)

    def _effect(self, effect: effects.Effect) -> None:
        match effect:
            case effects.TableCreated(table) | effects.TableTruncated(_, table):
                self._rows[table.incarnation] = []
            case effects.TableAltered(old, new):
                self._rows[new.incarnation] = [_altered(row, old, new) for row in self._rows[old.incarnation]]
            case effects.PartitionsTruncated(table, names, _) | effects.PartitionsDropped(table, names, _):
                self._rows[table.incarnation] = [
                    row for row in self._rows[table.incarnation] if _partition(table, row) not in names
                ]
            case effects.PartitionExchanged(partitioned, partition, other):
                mine, theirs = self._rows[partitioned.incarnation], self._rows[other.incarnation]
                leaving = [row for row in mine if _partition(partitioned, row) == partition]
                self._rows[partitioned.incarnation] = [row for row in mine if row not in leaving] + theirs
                self._rows[other.incarnation] = leaving
            case _:
                pass


class Script:
    """What a database did; see the module's example. `begin` is the ts before all of it."""

    def __init__(self) -> None:
        self.begin = int(compose(BEGIN_MS))
        self.ts = self.begin
        self.events: list[RowChange | Ddl] = []
        self.marks: list[int] = []
        self._now = ScriptedTables()

    def tick(self) -> int:
        """Return the next timestamp."""
        self.ts = int(compose((self.ts >> 18) + STEP_MS))
        return self.ts

    def commit(self, *writes: ScriptedWrite) -> int:
        """Commit one transaction; return its commit_ts."""
        ts = self.tick()
        self._write(ts, writes)
        return ts

    def ddl(self, name: str, query: str, *, along: tuple[ScriptedWrite, ...] = (), again: bool = False) -> int:
        """Do a DDL; return its commit_ts. `name` is its table's afterwards, or a database's.

        `along` has the same commit_ts and lies before it; `again` gives it the ts of the last transaction or DDL."""
        ts = self.ts if again else self.tick()
        self._write(ts, along)
        schema, _, table = name.partition(".")
        action = action_of_text(query, schema) or UNREAD
        self._add(Ddl(schema=schema, table=table, query=query, commit_ts=ts, type=action))
        return ts

    def resolve(self) -> int:
        """Resolve all that was done; return the resolved ts, which is the last commit_ts."""
        self.marks.append(self.ts)
        return self.ts

    def rows(self, upto: int) -> list[RowChange]:
        """Return the row changes with commit_ts <= upto, in commit order."""
        return [one for one in self.events if not isinstance(one, Ddl) and (one.commit_ts or 0) <= upto]

    def ddls(self, upto: int) -> list[Ddl]:
        """Return the DDLs with commit_ts <= upto, in order."""
        return [one for one in self.events if isinstance(one, Ddl) and (one.commit_ts or 0) <= upto]

    def tables(self, upto: int) -> dict[str, list[Row]]:
        """Return the rows of every table at `upto`, DDLs of that very ts done."""
        tables = ScriptedTables()
        for event in self.events:
            if (event.commit_ts or 0) <= upto:
                tables.apply(event)
        return tables.rows()

    def _write(self, ts: int, writes: tuple[ScriptedWrite, ...]) -> None:
        for write in writes:
            self._add(self._change(ts, write))

    def _change(self, ts: int, write: ScriptedWrite) -> RowChange:
        table = self._now.of(write.table)
        wire = wire_table(table)
        names = [field.name for field in wire.fields]
        known = self._now.find(table, write.values)
        shared = {
            "schema": table.name.schema,
            "table": table.name.table,
            "fields": wire.fields,
            "pk_names": wire.pk_names,
            "commit_ts": ts,
        }
        before = None if known is None else tuple(known[name] for name in names)
        after = tuple({**(known or {}), **write.values}.get(name) for name in names)
        if write.removes:
            assert before is not None, write
            if write.bare:
                told = [at for at, field in enumerate(wire.fields) if field.handle]
                shared["fields"] = tuple(wire.fields[at] for at in told)
                before = tuple(before[at] for at in told)
            return Delete(before=before, **shared)  # type: ignore[arg-type]
        if before is not None:
            return Update(before=before, after=after, **shared)  # type: ignore[arg-type]
        return Insert(after=after, **shared)  # type: ignore[arg-type]

    def _add(self, event: RowChange | Ddl) -> None:
        self._now.apply(event)
        self.events.append(event)


def _row(event: RowChange, values: Values | None) -> Row | None:
    if values is None:
        return None
    return {field.name: value for field, value in zip(event.fields, values, strict=True)}


def _altered(row: Row, old: TableInfo, new: TableInfo) -> Row:
    """A stored row under the next definition; columns that are new have their default."""
    names = {column.id: column.name for column in old.columns}
    return {
        column.name: row[names[column.id]] if column.id in names else stored_value(column) for column in new.columns
    }


def _partition(table: TableInfo, row: Row) -> str | None:
    assert table.partition is not None, table.name
    return partition_of(table.partition, table.columns, primary_key=table.handle_key)(row)
