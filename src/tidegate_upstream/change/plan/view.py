"""CREATE and DROP VIEW.

    CREATE VIEW vw AS SELECT id, v FROM a      view_select "SELECT `id` AS `id`,`v` AS `v` FROM `gd`.`a`", columns id, v

The SELECT is stored with all names written out, so that it means the same in any session.  A star stands for the
columns that the tables have now.

Source: TiDB pkg/ddl/executor.go (CreateView, BuildViewInfo), pkg/parser/ast/dml.go (Restore).
"""

from typing import Final

import sqlglot
from sqlglot import exp

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.statement import CreateView, DropViews
from tidegate.schema.stored.arguments import CreateTableArgs, DropObjectArgs
from tidegate.schema.stored.definition import Name, StoredColumn, StoredTable, StoredType, StoredView
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.catalog import Catalog
from tidegate_upstream.change.make.table import check_name
from tidegate_upstream.change.request import request_new, request_on
from tidegate_upstream.change.session import DdlSession, StatementNote, StatementPlan, passed_over

_DIALECT: Final = "mysql"
_NO_TYPE: Final = StoredType(0, 0, 0, 0, "", "")


def create_view(statement: CreateView, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or a note when the view exists and may; SqlRefused 1050, 1064, 1146, 1353."""
    schema = catalog.schema(statement.view.schema)
    check_name(statement.view.table)
    old = catalog.find(statement.view)
    if old is not None and not old.stored.is_view and statement.detail.or_replace:
        raise SqlRefused(1347, f"'{statement.view.schema}.{statement.view.table}' is not VIEW", "HY000")
    if old is not None and not statement.detail.or_replace:
        message = f"Table '{statement.view.schema}.{statement.view.table}' already exists"
        return passed_over(1050, message, "42S01", accepted=statement.detail.if_not_exists)
    text, names = _written_out(statement.detail.select, catalog, session.database)
    if statement.detail.columns:
        if len(statement.detail.columns) != len(names):
            message = "View's SELECT and view's field list have different column counts"
            raise SqlRefused(1353, message, "HY000")
        names = list(statement.detail.columns)
    view = StoredView(view_select=text, view_cols=None)
    columns = [
        StoredColumn(number, Name.of(name), offset=number - 1, type=_NO_TYPE, version=0)
        for number, name in enumerate(names, start=1)
    ]
    made = StoredTable(
        0,
        Name.of(statement.view.table),
        session.charset,
        session.collate,
        cols=columns,
        max_col_id=len(columns),
        state=ElementState.NONE,
        view=view,
    )
    arguments = CreateTableArgs(made, statement.detail.or_replace, 0 if old is None else old.stored.id)
    return StatementPlan((request_new(21, schema, arguments),))


def _written_out(select: str, catalog: Catalog, database: str) -> tuple[str, list[str]]:
    """(the SELECT with all names written out, the names of its columns)."""
    try:
        tree = sqlglot.parse_one(select, read=_DIALECT)
    except sqlglot.errors.SqlglotError as error:
        raise SqlRefused(1064, f"You have an error in your SQL syntax near {select[:80]!r}", "42000") from error
    if not isinstance(tree, exp.Query):
        raise SqlRefused(1064, f"You have an error in your SQL syntax near {select[:80]!r}", "42000")
    common = {lowered(cte.alias_or_name) for cte in tree.find_all(exp.CTE)}
    sources = {}
    for table in tree.find_all(exp.Table):
        if not table.db and lowered(table.name) in common:
            continue
        name = TableName(table.db or database, table.name)
        found = catalog.find(name)
        if found is None:
            raise SqlRefused(1146, f"Table '{name.schema}.{name.table}' doesn't exist", "42S02")
        table.set("db", exp.to_identifier(name.schema))
        sources[lowered(table.alias_or_name)] = found.stored
    if not isinstance(tree, exp.Select):
        return _text(tree), [one.alias_or_name for one in tree.selects]
    selects = [shown for one in tree.expressions for shown in _shown(one, sources)]
    tree.set("expressions", None)
    rest = _text(tree).removeprefix("SELECT").removeprefix(" DISTINCT")
    distinct = "DISTINCT " if tree.args.get("distinct") else ""
    listed = ",".join(_text(one) for one in selects)
    return f"SELECT {distinct}{listed} {rest.strip()}".strip(), [one.alias for one in selects]


def _text(tree: exp.Expression) -> str:
    return str(tree.sql(dialect=_DIALECT, identify=True))


def _shown(one: exp.Expression, sources: dict[str, StoredTable]) -> list[exp.Alias]:
    """One entry of the select list as aliased columns; a star as all public columns."""
    table = one.table if isinstance(one, exp.Column) else ""
    if isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
        wanted = [source for name, source in sources.items() if not table or name == lowered(table)]
        return [
            exp.alias_(exp.column(column.name.original, table=table or None, quoted=True), column.name.original)
            for source in wanted
            for column in source.cols or ()
            if not column.hidden and column.state == ElementState.PUBLIC
        ]
    if isinstance(one, exp.Alias):
        return [one]
    name = one.name if isinstance(one, exp.Column) else one.sql(dialect=_DIALECT)
    return [exp.alias_(one, name, quoted=True)]


def drop_views(statement: DropViews, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return one job a view; SqlRefused 1051 where there is none, 1347 for a table."""
    requests = []
    notes: list[StatementNote] = []
    for name in statement.views:
        found = catalog.find(name)
        if found is None:
            message = f"Unknown table '{name.schema}.{name.table}'"
            notes += passed_over(1051, message, "42S02", accepted=statement.if_exists).warnings
            continue
        if not found.stored.is_view:
            raise SqlRefused(1347, f"'{name.schema}.{name.table}' is not VIEW", "HY000")
        requests.append(request_on(24, found, DropObjectArgs()))
    return StatementPlan(tuple(requests), tuple(notes))
