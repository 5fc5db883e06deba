"""UPDATE and DELETE over a join: the rows to change are found by a SELECT.

    UPDATE t JOIN u ON t.id = u.id SET t.a = u.b      SELECT t._row, u.b FROM t JOIN u ON t.id = u.id
    DELETE t FROM t, u WHERE t.id = u.id              SELECT t._row FROM t, u WHERE t.id = u.id

`_row` is a hidden column that the tables to change get for it: the place of the row among those read.  A row changes
once, by the first combination that it is part of; expressions see the rows as they were.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from tidegate.expr.cast.source import fitted
from tidegate.expr.context import Context
from tidegate.expr.relation import Relation, RelationColumn, Relations
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.kinds import SqlValue
from tidegate.kv.handle import Handle
from tidegate.model.errors import SqlRefused, TidegateError
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.tidb.sql.outcome import Outcome
from tidegate.tidb.sql.query.select import select
from tidegate.tidb.sql.rows.access import DEFAULT, Given, TableAccess
from tidegate.tidb.sql.rows.assign import named_column
from tidegate.tidb.sql.rows.error import unknown_column
from tidegate.tidb.sql.rows.open import TableOpener
from tidegate.tidb.sql.rows.row import RowImage

__all__ = ["Change", "delete_join", "is_join", "update_join"]

Change = Callable[[TableAccess, RowImage, dict[str, Given], int], RowImage | None]
"""(table, row, values by column, place of the row) -> the row as it is now, None when it did not change."""
_ROW: Final = "_row"
_ROW_COLUMN: Final = RelationColumn(_ROW, ColumnType(MysqlType.LONGLONG, 20, 0, charset="binary"), hidden=True)


@dataclass
class _Counted:
    """A table whose rows tell their place among those read."""

    access: TableAccess
    images: list[RowImage] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.access.name

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        """The table's columns and the place."""
        return (*self.access.columns, _ROW_COLUMN)

    def rows(self, equal: Mapping[str, tuple[SqlValue, ...]], _context: Context) -> Iterator[tuple[SqlValue, ...]]:
        """Return the table's rows, each with its place."""
        for image in self.access.reader.find(equal):
            self.images.append(image)
            yield (*self.access.shown(image), len(self.images) - 1)


@dataclass
class _Counting(Relations):
    """Relations of which some are to be changed."""

    tables: TableOpener
    counted: dict[tuple[str, str], _Counted]
    database: str

    def relation(self, schema: str, name: str) -> Relation:
        """Return the relation of that name, counted if it is to be changed."""
        found = self.counted.get(((schema or self.database).lower(), name.lower()))
        return found if found is not None else self.tables.relation(schema, name)


class _Join:
    """The tables of a join by their aliases, and those that change."""

    def __init__(self, root: Node, tables: TableOpener, context: Context) -> None:
        self.root, self.tables, self.context = root, tables, context
        nodes = [node for node in root.find_all(exp.Table) if node.find_ancestor(exp.Subquery) is None]
        self.by_alias: dict[str, Node] = {(node.alias or node.name).lower(): node for node in nodes}
        self.counted: dict[tuple[str, str], _Counted] = {}

    def change(self, alias: str) -> _Counted:
        """Return the table behind an alias, to be changed."""
        node = self.by_alias.get(alias.lower())
        if node is None:
            raise SqlRefused(1109, f"Unknown table '{alias}' in MULTI DELETE", "42S02")
        access = self.tables.table(node.db, node.name)
        key = ((node.db or self.context.database).lower(), node.name.lower())
        return self.counted.setdefault(key, _Counted(access))

    def owner(self, column: Node) -> str:
        """Return the alias of the table that an assigned column belongs to; SqlRefused 1054."""
        if column.table:
            return str(column.table)
        for alias, node in self.by_alias.items():
            if node.name and column.name.lower() in self.tables.table(node.db, node.name).shape.by_name:
                return alias
        raise unknown_column(column.name, "field list")

    def select(self, node: Node, items: list[Node]) -> tuple[list[tuple[SqlValue, ...]], list[ColumnType]]:
        """Return the values of `items` for each combination of rows."""
        root = self.root.copy()
        joins = root.args.get("joins") or []
        root.set("joins", None)
        query = exp.Select(expressions=items)
        query.set(_FROM, exp.From(this=root))
        query.set("joins", joins)
        for part in ("where", "order", "limit"):
            if node.args.get(part) is not None:
                query.set(part, node.args[part].copy())
        answer = select(query, _Counting(self.tables, self.counted, self.context.database), self.context)
        return answer.rows, [column.type for column in answer.columns]


_FROM: Final = "from_" if "from_" in exp.Select.arg_types else "from"


def is_join(node: Node) -> bool:
    """Return whether an UPDATE names more than one table."""
    return not isinstance(node.this, exp.Table) or bool(node.this.args.get("joins"))


def _place(alias: str) -> Node:
    return exp.column(_ROW, table=alias)


def update_join(node: Node, tables: TableOpener, context: Context, change: Change) -> tuple[int, int]:
    """(rows found, rows changed) of an UPDATE over a join; SqlRefused undoes the statement."""
    join = _Join(node.this, tables, context)
    owners = [join.owner(item.this) for item in node.expressions]
    aliases = list(dict.fromkeys(owners))
    counted = [join.change(alias) for alias in aliases]
    values = [exp.Null() if _is_default(item.expression) else item.expression.copy() for item in node.expressions]
    rows, kinds = join.select(node, [*map(_place, aliases), *values])
    done: set[tuple[int, Handle, int]] = set()
    matched = changed = 0
    current: dict[tuple[Handle, int], RowImage] = {}
    with _Undone(counted, context):
        for row in rows:
            for at, table in enumerate(counted):
                place = row[at]
                old = table.images[place] if isinstance(place, int) else None
                if old is None or (at, *old[:2]) in done:
                    continue
                done.add((at, *old[:2]))
                matched += 1
                given: dict[str, Given] = {}
                for number, (item, owner) in enumerate(zip(node.expressions, owners, strict=True), len(aliases)):
                    if owner == aliases[at]:
                        target = named_column(table.access, item.this.name).target
                        value = fitted(row[number], kinds[number], target.type)
                        given[item.this.name.lower()] = DEFAULT if _is_default(item.expression) else value
                new = change(table.access, current.get(old[:2], old), given, matched)
                if new is not None:
                    changed += 1
                    current[old[:2]] = new
    return matched, changed


def _is_default(node: Node) -> bool:
    return isinstance(node, exp.Var) and node.name.upper() == "DEFAULT"


def delete_join(node: Node, tables: TableOpener, context: Context) -> Outcome:
    """Return what a DELETE of tables of a join does; SqlRefused undoes the statement."""
    join = _Join(node.this, tables, context)
    aliases = [table.alias or table.name for table in node.args["tables"]]
    counted = [join.change(alias) for alias in aliases]
    rows, _kinds = join.select(node, list(map(_place, aliases)))
    gone: dict[tuple[Handle, int], tuple[TableAccess, RowImage]] = {}
    for row in rows:
        for table, place in zip(counted, row, strict=True):
            if isinstance(place, int):
                image = table.images[place]
                gone[image[:2]] = (table.access, image)
    with _Undone(counted, context):
        for access, image in gone.values():
            access.delete(image)
    return Outcome(len(gone))


class _Undone:
    """Undoes what was written when the statement is refused."""

    def __init__(self, counted: list[_Counted], context: Context) -> None:
        self.transaction, self.context = counted[0].access.transaction, context

    def __enter__(self) -> None:
        self.savepoint = self.transaction.savepoint()
        self.context.writing = True

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        self.context.writing = False
        if kind is not None and issubclass(kind, TidegateError):
            self.transaction.restore(self.savepoint)
