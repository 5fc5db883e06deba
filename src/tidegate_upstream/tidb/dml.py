"""INSERT, REPLACE, UPDATE and DELETE: the rows they select, assignments, foreign keys, and the outcome.

    UPDATE t SET .. WHERE id IN (1, 2) AND v > 3 ORDER BY v LIMIT 1
                          └─ equal: {"id": (1, 2)} ─► TableReader.find ─► WHERE again ─► sorted ─► cut

All rows are found before the first one is changed, so that a statement never sees its own changes.  An unchanged row is
not written, and ON UPDATE CURRENT_TIMESTAMP does not apply to it.

    VALUES (..), (..)   SET a = 1   SELECT ..        later values of a row may refer to its earlier ones
    SET a = a + 1, b = a                             left to right: b gets the new a, as column a converted it
    a = DEFAULT, a = DEFAULT(b)                      a generated column takes DEFAULT alone: else 3105
    ON DUPLICATE KEY UPDATE                          changes the row that holds the key; VALUES(a): the new row's a
    REPLACE                                          first removes the rows that hold its keys
    IGNORE                                           values are adjusted, refused rows skipped, each with a warning

    affected            INSERT 1   ON DUPLICATE KEY 2, 0 when nothing changed   REPLACE 1 + removed rows
                        UPDATE rows that changed (matched: rows that WHERE selected)   DELETE removed rows
    last_insert_id      the first generated number

Foreign keys are enforced from write-only on, but not assumed.  A key with a NULL in it refers to nothing.

    INSERT, UPDATE of a child       the parent's row must exist, else 1452; it is locked, so that it is not removed
    DELETE, UPDATE of a parent      RESTRICT, NO ACTION, none: 1451    CASCADE: children are removed or get the new key
                                    SET NULL: children lose the key

`OpenTables` gives the tables of an open transaction by name, to be read or changed (1146 unknown, 1288 for views);
`PastTables` gives relations at tidb_snapshot.  Other names are resolved by `system`.  A table that is not public does
not exist.  Shapes are cached by definition.

Source: MySQL manual, "INSERT", "INSERT ... ON DUPLICATE KEY UPDATE", "REPLACE", "UPDATE", "DELETE", "FOREIGN KEY
Constraints", "mysql_affected_rows()", "mysql_info()"; TiDB pkg/executor (insert.go, update.go, delete.go, write.go,
foreign_key.go).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from tidegate.expr.cast import convert, fitted
from tidegate.expr.comparison import truth
from tidegate.expr.compiler import compile_scalar
from tidegate.expr.dialect import Node
from tidegate.expr.scope import Compiled, Relation, Relations, Row, Scope
from tidegate.model.errors import SqlRefused, TidegateError
from tidegate.model.name import lowered
from tidegate.mysql.values import Context, SqlValue, from_column, sort_key_of
from tidegate.schema.stored.definition import ElementState, Name, StoredForeignKey, StoredTable
from tidegate.schema.stored.meta import Reader
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.errors import missing_name
from tidegate_upstream.f1 import ElementKind, Touch, access
from tidegate_upstream.tidb.select import conjuncts, cut, equality_of, in_order, limits_of, select
from tidegate_upstream.tidb.table_access import (
    DEFAULT,
    Assigned,
    Conflict,
    Fits,
    ForeignKeys,
    StoredAutoIds,
    TableAccess,
    TableReader,
    fits_partition,
)
from tidegate_upstream.tidb.table_rows import ROW_ID, RowImage, ShapeColumn, TableShape, same, unknown_column
from tidegate_upstream.tidb.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Outcome:
    """`affected` rows as MySQL counts them (REPLACE and ON DUPLICATE KEY UPDATE count 2 for a changed row);
    `last_insert_id` is 0 where no number was generated; `matched` are the rows that UPDATE found."""

    affected: int = 0
    last_insert_id: int = 0
    info: str = ""
    matched: int | None = None


_CLAUSE: Final = "field list"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column and its compiled value; None is DEFAULT."""

    column: ShapeColumn
    value: Compiled | None
    default_of: ShapeColumn | None = None
    """The column of DEFAULT(column)."""


def named_column(access: TableAccess, name: str) -> ShapeColumn:
    """Return the public column of that name; SqlRefused 1054."""
    column = access.shape.by_name.get(lowered(name))
    if column is None or column.stored.hidden:
        raise unknown_column(name, _CLAUSE)
    return column


def assignment(access: TableAccess, column: ShapeColumn, node: Node, scope: Scope) -> Assignment:
    """Return the assignment of an expression to a column; SqlRefused 3105 for a generated column."""
    if isinstance(node, exp.Var) and node.name.upper() == "DEFAULT":
        return Assignment(column, None)
    if column.generated:
        raise SqlRefused(
            3105,
            f"The value specified for generated column '{column.target.name}' in table '{access.name}' is not allowed.",
        )
    if isinstance(node, exp.Anonymous) and node.this == "DEFAULT" and len(node.expressions) == 1:
        return Assignment(column, None, named_column(access, node.expressions[0].name))
    return Assignment(column, compile_scalar(node, scope))


def assignments_of(nodes: Iterable[Node], access: TableAccess, scope: Scope) -> list[Assignment]:
    """Return the assignments of SET."""
    return [
        assignment(access, named_column(access, node.this.name), node.expression, scope.at(_CLAUSE)) for node in nodes
    ]


def assign_all(
    assignments: Iterable[Assignment], access: TableAccess, row: list[SqlValue], context: Context, base: int = 0
) -> dict[str, Assigned]:
    """Return the values by column; later assignments see the earlier ones through `row`, from slot `base` on."""
    slots = {column.id: base + index for index, column in enumerate(access.shape.public)}
    values: dict[str, Assigned] = {}
    for item in assignments:
        target, name = item.column.target, item.column.stored.name.lower
        if item.value is None:
            kept = None if item.column.generated else access.default_of(item.default_of or item.column)
            shown = from_column((item.default_of or item.column).target.type, kept, context.zone)
            values[name] = DEFAULT if item.default_of is None else shown
        else:
            value = fitted(item.value.run(row, context), item.value.type, target.type)
            values[name] = value
            shown = from_column(target.type, convert(value, target, context).value, context.zone)
        row[slots[item.column.id]] = shown
    return values


_CASCADE, _SET_NULL = 2, 3
MISSING_PARENT: Final = 1452
CHILD_IN_THE_WAY: Final = 1451
Open = Callable[[str, str], TableAccess]


def keys_between(snapshot: StoredSnapshot, version: TableVersion, tables: Open) -> "Keys | None":
    """Return the foreign keys from and to a table; None if there are none."""
    own = [key for key in version.stored.fk_info or () if _enforced(key)]
    name = (lowered(version.schema), version.stored.name.lower)
    others = [
        (other.schema, other.stored.name.lower, key)
        for other in snapshot.tables.values()
        if other.stored.fk_info
        for key in other.stored.fk_info or ()
        if _enforced(key) and (key.ref_schema.lower or lowered(other.schema), key.ref_table.lower) == name
    ]
    return Keys(own, others, tables) if own or others else None


def _enforced(key: StoredForeignKey) -> bool:
    return access(ElementKind.CONSTRAINT, ElementState(key.state)).insert is Touch.PUT


@dataclass(frozen=True)
class Keys:
    """The foreign keys of a table (`own`), and those of its children: (schema, table, key)."""

    own: list[StoredForeignKey]
    others: list[tuple[str, str, StoredForeignKey]]
    tables: Open

    def added(self, child: TableAccess, old: RowImage | None, new: RowImage) -> None:
        """Raise SqlRefused 1452 if a row refers to a parent that does not exist."""
        for key in self.own:
            columns = key_columns(child.reader, key.cols)
            values = key_values(child.reader, columns, new)
            if None in values or (old is not None and not _differ(columns, old, new)):
                continue
            parent = self.tables(key.ref_schema.original or child.version.schema, key.ref_table.original)
            parent_row = next(matching(parent.reader, key.ref_cols, values), None)
            own = key.ref_table.lower == child.shape.stored.name.lower
            if parent_row is not None:
                parent.lock(parent_row)
            elif not own or key_values(child.reader, key_columns(child.reader, key.ref_cols), new) != values:
                raise SqlRefused(
                    MISSING_PARENT,
                    f"Cannot add or update a child row: a foreign key constraint fails ({_shown(child, key)})",
                    "23000",
                )

    def removed(self, parent: TableAccess, old: RowImage, new: RowImage | None) -> None:
        """Apply the referential action for a deleted or changed parent; SqlRefused 1451 if children restrict it."""
        for schema, table, key in self.others:
            columns = key_columns(parent.reader, key.ref_cols)
            if new is not None and not _differ(columns, old, new):
                continue
            values = key_values(parent.reader, columns, old)
            if None in values:
                continue
            child = self.tables(schema, table)
            fresh = None if new is None else key_values(parent.reader, columns, new)
            for row in list(matching(child.reader, key.cols, values)):
                self._follow(child, key, row, fresh)

    def _follow(self, child: TableAccess, key: StoredForeignKey, row: RowImage, fresh: list[SqlValue] | None) -> None:
        action = key.on_delete if fresh is None else key.on_update
        if action == _CASCADE and fresh is None:
            child.delete(row)
            return
        if action not in {_CASCADE, _SET_NULL}:
            raise SqlRefused(
                CHILD_IN_THE_WAY,
                f"Cannot delete or update a parent row: a foreign key constraint fails ({_shown(child, key)})",
                "23000",
            )
        values = fresh if action == _CASCADE and fresh is not None else [None] * len(key.cols)
        assigned: dict[str, Assigned] = {name.lower: value for name, value in zip(key.cols, values, strict=True)}
        changed = child.changed(row, assigned)
        if changed is not None:
            child.replace(row, changed)


def key_columns(table: TableReader, names: list[Name]) -> list[ShapeColumn]:
    """Return the columns of a key."""
    return [table.shape.by_name[name.lower] for name in names]


def key_values(table: TableReader, columns: list[ShapeColumn], image: RowImage) -> list[SqlValue]:
    """Return a row's values in the columns of a key."""
    zone = table.context.zone
    return [from_column(column.target.type, image.columns[column.id], zone) for column in columns]


def _differ(columns: list[ShapeColumn], old: RowImage, new: RowImage) -> bool:
    return not all(same(column.target.type, old.columns[column.id], new.columns[column.id]) for column in columns)


def matching(table: TableReader, names: list[Name], values: list[SqlValue]) -> Iterator[RowImage]:
    """Return the rows whose columns have those values, by their collations."""
    columns = key_columns(table, names)
    keys = _sort_keys(columns, values)
    for image in table.find({name.lower: (value,) for name, value in zip(names, values, strict=True)}):
        if _sort_keys(columns, key_values(table, columns, image)) == keys:
            yield image


def _sort_keys(columns: list[ShapeColumn], values: list[SqlValue]) -> list[object]:
    return [sort_key_of(value, column.target.collation) for column, value in zip(columns, values, strict=True)]


def _shown(child: TableAccess, key: StoredForeignKey) -> str:
    own = ", ".join(f"`{name.original}`" for name in key.cols)
    referenced = ", ".join(f"`{name.original}`" for name in key.ref_cols)
    return (
        f"`{child.version.schema}`.`{child.name}`, CONSTRAINT `{key.fk_name.original}` FOREIGN KEY ({own}) "
        f"REFERENCES `{key.ref_table.original}` ({referenced})"
    )


_KEPT: Final = 256


class TableOpener(Relations, Protocol):
    """Opens tables for changes, and relations of all kinds."""

    def table(self, schema: str, name: str) -> TableAccess:
        """Return the table of that name; SqlRefused 1146 if there is none."""
        ...


class Shapes:
    """A cache of table shapes by definition, the oldest dropped first; one per node."""

    def __init__(self) -> None:
        self._shapes: OrderedDict[int, TableShape] = OrderedDict()
        self._lock = Lock()

    def of(self, stored: StoredTable) -> TableShape:
        """Return the shape of a definition; thread-safe."""
        with self._lock:
            shape = self._shapes.get(id(stored))
            if shape is None or shape.stored is not stored:
                shape = self._shapes[id(stored)] = TableShape(stored)
                if len(self._shapes) > _KEPT:
                    self._shapes.popitem(last=False)
            return shape


def find_table(snapshot: StoredSnapshot, schema: str, name: str) -> TableVersion | None:
    """Return the public table of that name, case-insensitive."""
    schema, name = lowered(schema), lowered(name)
    for version in snapshot.tables.values():
        stored = version.stored
        if stored.name.lower == name and lowered(version.schema) == schema and stored.state == ElementState.PUBLIC:
            return version
    return None


class _Exchange(msgspec.Struct, frozen=True):
    """The partition that a table is exchanged with, and its table."""

    exchange_partition_id: int = 0
    exchange_partition_def_id: int = 0


@dataclass
class OpenTables:
    """The tables of a schema snapshot in a transaction."""

    transaction: Transaction
    snapshot: StoredSnapshot
    context: Context
    auto_ids: StoredAutoIds
    shapes: Shapes = field(default_factory=Shapes)
    system: Relations | None = None
    _open: dict[tuple[str, str], TableAccess] = field(default_factory=dict)

    def table(self, schema: str, name: str) -> TableAccess:
        """Return the table of that name for changes."""
        schema = schema or self.context.database
        key = (lowered(schema), lowered(name))
        if key not in self._open:
            version = find_table(self.snapshot, schema, name)
            if version is None:
                raise missing_name(schema, name)
            if version.stored.is_view or version.stored.is_sequence:
                raise SqlRefused(1288, f"The target table {name} of the statement is not updatable")
            shape, fits = self.shapes.of(version.stored), self._exchanged(version.stored)
            self._open[key] = TableAccess(
                self.transaction, version, self.context, self.auto_ids, shape, fits=fits, foreign=self._foreign(version)
            )
        return self._open[key]

    def _foreign(self, version: TableVersion) -> ForeignKeys | None:
        if str(self.context.variables.get("foreign_key_checks", 1)).upper() in {"0", "OFF"}:
            return None
        return keys_between(self.snapshot, version, self.table)

    def _exchanged(self, stored: StoredTable) -> Fits | None:
        info = msgspec.json.decode(stored.exchange_partition_info, type=_Exchange | None)
        other = self.snapshot.tables.get(info.exchange_partition_id) if info else None
        if info is None or other is None:
            return None
        return fits_partition(self.shapes.of(stored), self.shapes.of(other.stored), info.exchange_partition_def_id)

    def relation(self, schema: str, name: str) -> Relation:
        """Return the relation of that name."""
        version = find_table(self.snapshot, schema or self.context.database, name)
        if self.system is not None and (version is None or version.stored.is_view):
            return self.system.relation(schema or self.context.database, name)
        return self.table(schema, name)


@dataclass
class PastTables:
    """The tables of a schema snapshot at a past timestamp, read-only."""

    source: Reader
    snapshot: StoredSnapshot
    context: Context
    shapes: Shapes = field(default_factory=Shapes)
    system: Relations | None = None

    def relation(self, schema: str, name: str) -> Relation:
        """Return the relation of that name; SqlRefused 1146 if there is none."""
        schema = schema or self.context.database
        version = find_table(self.snapshot, schema, name)
        if self.system is not None and (version is None or version.stored.is_view):
            return self.system.relation(schema, name)
        if version is None:
            raise missing_name(schema, name)
        return TableReader(self.source, self.shapes.of(version.stored), self.context)


_SKIPPED: Final = frozenset({1062, 1451, 1452, 1526, 3819})
"""Errors for which IGNORE skips the change of a row."""


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """The table that a statement changes, and the names that its expressions may use."""

    access: TableAccess
    scope: Scope


def opened(node: Node, tables: TableOpener, context: Context) -> ChangedTable:
    """Return the table that a node names, with its alias; SqlRefused 1235 for a join."""
    parent = node.parent
    more = parent is not None and (parent.args.get("tables") or parent.args.get("using"))
    if not isinstance(node, exp.Table) or node.args.get("joins") or more:
        raise SqlRefused(1235, "This version of Tidegate doesn't yet support changes of more than one table", "42000")
    if node.args.get("partition"):
        raise SqlRefused(
            1235, "This version of Tidegate doesn't yet support 'PARTITION (..) in a changed table'", "42000"
        )
    access = tables.table(node.db, node.name)
    plain = Scope.of_columns(access.columns, node.alias or access.name, access.version.schema)
    return ChangedTable(access, Scope(plain.slots, database=context.database, context=context))


def _found_rows(node: Node, target: ChangedTable, context: Context) -> list[tuple[RowImage, Row]]:
    where, order = node.args.get("where"), node.args.get("order")
    scope = target.scope.at("where clause")
    access = target.access
    equal: dict[str, tuple[SqlValue, ...]] = {}
    for column, constants in filter(None, map(equality_of, conjuncts(where.this) if where else ())):
        if all(map(_is_plain, constants)) and scope.has(column.name, column.table):
            equal[lowered(column.name)] = tuple(
                compile_scalar(constant, scope).run((), context) for constant in constants
            )
    rows: Iterator[tuple[RowImage, Row]] = ((image, access.shown(image)) for image in access.reader.find(equal))
    if where:
        test = truth(compile_scalar(where.this, scope))
        rows = ((image, row) for image, row in rows if test(row, context))
    if order:
        ordered = target.scope.at("order clause")
        terms = [(compile_scalar(term.this, ordered), bool(term.args.get("desc"))) for term in order.expressions]
        rows = iter(in_order(rows, lambda pair: [key.run(pair[1], context) for key, _ in terms], terms))
    return list(cut(rows, *limits_of(node, scope), context))


def _is_plain(node: Node) -> bool:
    inner = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    return isinstance(inner, exp.Literal | exp.HexString | exp.BitString | exp.Null | exp.Boolean)


def run_update(node: Node, tables: TableOpener, context: Context) -> Outcome:
    """Run an UPDATE; SqlRefused undoes the statement."""
    ignore = bool(node.meta.get("ignore"))
    target = opened(node.this, tables, context)
    access = target.access
    savepoint = access.transaction.savepoint()
    context.writing = True
    try:
        assignments = assignments_of(node.expressions, access, target.scope)
        matched = changed = 0
        for image, row in _found_rows(node, target, context):
            matched += 1
            values = assign_all(assignments, access, list(row), context)
            changed += _change(access, image, values, matched, ignore=ignore)
    except TidegateError:
        access.transaction.restore(savepoint)
        raise
    finally:
        context.writing = False
    info = f"Rows matched: {matched}  Changed: {changed}  Warnings: {len(context.warnings)}"
    return Outcome(changed, 0, info, matched)


def _change(access: TableAccess, old: RowImage, values: dict[str, Assigned], row_number: int, *, ignore: bool) -> bool:
    try:
        new = access.changed(old, values, row_number, lenient=ignore)
        if new is None:
            access.lock(old)
            return False
        access.replace(old, new)
    except SqlRefused as refused:
        if not ignore or refused.mysql_code not in _SKIPPED:
            raise
        access.context.warn(refused.mysql_code, refused.message)
        return False
    return True


def run_delete(node: Node, tables: TableOpener, context: Context) -> Outcome:
    """Run a DELETE; SqlRefused undoes the statement."""
    target = opened(node.this, tables, context)
    savepoint = target.access.transaction.savepoint()
    context.writing = True
    try:
        gone = sum(
            _delete(target.access, image, ignore=bool(node.meta.get("ignore")))
            for image, _row in _found_rows(node, target, context)
        )
    except TidegateError:
        target.access.transaction.restore(savepoint)
        raise
    finally:
        context.writing = False
    return Outcome(gone)


def _delete(access: TableAccess, image: RowImage, *, ignore: bool) -> bool:
    savepoint = access.transaction.savepoint()
    try:
        access.delete(image)
    except SqlRefused as refused:
        if not ignore or refused.mysql_code != CHILD_IN_THE_WAY:
            raise
        access.transaction.restore(savepoint)
        access.context.warn(refused.mysql_code, refused.message)
        return False
    return True


"""Errors for which IGNORE skips a row."""


def run_insert(node: Node, tables: TableOpener, context: Context) -> Outcome:
    """Run an INSERT or REPLACE; SqlRefused undoes the statement."""
    into = node.this
    target = opened(into.this if isinstance(into, exp.Schema) else into, tables, context)
    savepoint = target.access.transaction.savepoint()
    context.writing = True
    try:
        return _Insert(node, target, tables, context).run()
    except TidegateError:
        target.access.transaction.restore(savepoint)
        raise
    finally:
        context.writing = False


class _Insert:
    def __init__(self, node: Node, target: ChangedTable, tables: TableOpener, context: Context) -> None:
        self.node, self.access, self.scope = node, target.access, target.scope
        self.tables, self.context = tables, context
        self.ignore, self.replaces = bool(node.args.get("ignore")), bool(node.meta.get("replace"))
        into = node.this
        listed = into.expressions if isinstance(into, exp.Schema) else None
        self.columns = self._columns([name.name for name in listed] if listed is not None else None)
        self.bare = not listed
        source = node.expression
        self.many = not isinstance(source, exp.Values) or len(source.expressions) > 1
        self.lenient = self.ignore or (self.many and not context.strict)
        conflict = node.args.get("conflict")
        self.on_duplicate = (
            assignments_of(conflict.expressions, self.access, self._duplicate_scope()) if conflict else None
        )

    def run(self) -> Outcome:
        affected, records, kept = 0, 0, 0
        for row_number, values in enumerate(self._source(), 1):
            records += 1
            count = self._insert(values, row_number)
            affected, kept = affected + count, kept + (count == 1)
        last = self.access.numbers.first or 0
        doubles = records - kept if self.ignore or self.on_duplicate else max(affected - records, 0)
        info = f"Records: {records}  Duplicates: {doubles}  Warnings: {len(self.context.warnings)}"
        return Outcome(affected, last, info if self.many else "")

    # --- what is inserted ---

    def _columns(self, names: list[str] | None) -> list[ShapeColumn | None]:
        if names is None:
            return [column for column in self.access.shape.public if not column.stored.hidden]
        columns: list[ShapeColumn | None] = []
        for name in names:
            is_row_id = lowered(name) == ROW_ID and self.access.shape.hidden_handle
            column = None if is_row_id else named_column(self.access, name)
            if column in columns:
                raise SqlRefused(1110, f"Column '{name}' specified twice", "42000")
            columns.append(column)
        return columns

    def _source(self) -> Iterator[dict[str, Assigned]]:
        source = self.node.expression
        if isinstance(source, exp.Values):
            for row_number, item in enumerate(source.expressions, 1):
                nodes = item.expressions if isinstance(item, exp.Tuple) else [item]
                yield self._listed(nodes, row_number)
            return
        answer = select(source, self.tables, self.context)
        self._check_count(len(answer.columns), 1)
        for row in answer.rows:
            assigned: dict[str, Assigned] = {}
            for column, value, shown in zip(self.columns, row, answer.columns, strict=True):
                if column is None:
                    assigned[ROW_ID] = value
                else:
                    assigned[column.stored.name.lower] = fitted(value, shown.type, column.target.type)
            yield assigned

    def _check_count(self, count: int, row_number: int) -> None:
        if count != len(self.columns):
            raise SqlRefused(1136, f"Column count doesn't match value count at row {row_number}", "21S01")

    def _listed(self, nodes: list[Node], row_number: int) -> dict[str, Assigned]:
        if not nodes and self.bare:
            return {}
        self._check_count(len(nodes), row_number)
        scope, access = self.scope, self.access
        shown = [from_column(public.target.type, public.constant, self.context.zone) for public in access.shape.public]
        row: list[SqlValue] = [*shown, *[None] * (len(access.columns) - len(shown))]
        assigned: dict[str, Assigned] = {}
        for column, node in zip(self.columns, nodes, strict=True):
            if column is None:
                assigned[ROW_ID] = compile_scalar(node, scope).run(row, self.context)
            else:
                assigned |= assign_all([assignment(access, column, node, scope)], access, row, self.context)
        return assigned

    # --- one row ---

    def _insert(self, values: dict[str, Assigned], row_number: int) -> int:
        try:
            image = self.access.new_row(values, row_number, lenient=self.lenient)
            conflicts = self.access.conflicts(image) if self.replaces or self.on_duplicate is not None else []
            if conflicts and self.on_duplicate is not None:
                return self._change(conflicts[0].row, image, row_number)
            if conflicts:
                return self._replace(conflicts, image)
            self.access.insert(image)
        except SqlRefused as refused:
            if not self.ignore or refused.mysql_code not in _SKIPPED:
                raise
            self.context.warn(refused.mysql_code, refused.message)
            return 0
        return 1

    def _replace(self, conflicts: list[Conflict], image: RowImage) -> int:
        removed = 0
        while conflicts:
            old = conflicts[0].row
            only = all(conflict.row[:2] == old[:2] for conflict in conflicts)
            if only and not removed and self._alike(old, image):
                return 1
            self.access.delete(old)
            removed += 1
            conflicts = self.access.conflicts(image)
        self.access.insert(image)
        return removed + 1

    def _alike(self, old: RowImage, new: RowImage) -> bool:
        public = self.access.shape.public
        return all(same(column.target.type, old.columns[column.id], new.columns[column.id]) for column in public)

    def _change(self, old: RowImage, new: RowImage, row_number: int) -> int:
        row = [*self.access.shown(old), *self.access.shown(new)]
        values = assign_all(self.on_duplicate or (), self.access, row, self.context)
        changed = self.access.changed(old, values, row_number, lenient=self.ignore)
        if changed is None:
            return 0
        self.access.replace(old, changed)
        return 2

    def _duplicate_scope(self) -> Scope:
        if self.node.expression.args.get("alias"):
            raise SqlRefused(1235, "This version of Tidegate doesn't yet support an alias of the new row", "42000")
        width = len(self.access.columns)
        by_name = {lowered(column.name): width + index for index, column in enumerate(self.access.columns)}

        def value_of(name: str) -> Compiled:
            slot = by_name.get(lowered(name))
            if slot is None:
                raise unknown_column(name, "field list")
            column = self.access.columns[slot - width]
            return Compiled(lambda row, _context: row[slot], column.type, column.collation, 2)

        return replace(self.scope, values=value_of)
