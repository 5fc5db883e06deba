"""SQL over the tables of one timestamp: `shop.orders` in a query becomes a view of that state.

    select orders.id from shop.orders join bank.accounts a on ...
                          ───────────      ─────────────
    select orders.id from `v1` AS `orders` join `v2` a on ...

Only the table names that the parser found are replaced; the rest of the query's text is unchanged.  An unqualified
`orders` means the only table of that name.  The views exist while the query is analyzed; over Connect, which resolves
names at execution, the frames go with the query, and on Spark 3, which takes none, the views stay with the session.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from tidegate.model.errors import ConfigError, SqlError
from tidegate.model.name import lowered, qualified
from tidegate.spark.session import is_connect
from tidegate.spark.versions import is_3


@dataclass(frozen=True, slots=True)
class Reference:
    """A range [start, end) of the query's text and the table that it names; without a table, the text is dropped."""

    start: int
    end: int
    table: str | None
    alias: str | None
    """Name of the table in the query, unless the query has an alias."""


def run(spark: Any, query: str, tables: Sequence[str], frame: Callable[[str], Any]) -> Any:
    """Return the DataFrame of `query`; `frame` returns the rows of a table by its name."""
    from pyspark.errors import AnalysisException

    table_references = references(query, tables)
    prefix = f"tidegate_{uuid.uuid4().hex}"
    names = sorted({reference.table for reference in table_references if reference.table is not None})
    views = {name: f"{prefix}_{number}" for number, name in enumerate(names)}
    text = rewritten(query, table_references, views)
    names_at_execution = is_connect(spark)
    try:
        if names_at_execution and not is_3(spark):
            return _connected(spark, text, {view: frame(name) for name, view in views.items()})
        for name, view in views.items():
            frame(name).createOrReplaceTempView(view)
        return _analyzed(spark.sql(text))
    except AnalysisException as wrong:
        raise SqlError(_shown(str(wrong), views)) from wrong
    finally:
        for view in () if names_at_execution else views.values():
            spark.catalog.dropTempView(view)


def _connected(spark: Any, text: str, frames: Mapping[str, Any]) -> Any:
    """Return the DataFrame of a query that has its frames with it."""
    text = text.replace("{", "{{").replace("}", "}}")
    for view in frames:
        text = text.replace(f"`{view}`", f"{{{view}}}")
    return _analyzed(spark.sql(text, **frames))


def _analyzed(frame: Any) -> Any:
    assert frame.schema is not None  # what is wrong with the query is told here
    return frame


def _shown(message: str, views: Mapping[str, str]) -> str:
    """Return the head of Spark's message, with the names that the query used."""
    head = message.partition(";\n")[0].partition("\n\n")[0]
    for name, view in views.items():
        head = head.replace(view, name)
    return " ".join(head.split())


def rewritten(query: str, table_references: Sequence[Reference], views: Mapping[str, str]) -> str:
    """Return the query over views."""
    for reference in sorted(table_references, key=lambda reference: reference.start, reverse=True):
        text = "" if reference.table is None else f"`{views[reference.table]}`"
        if reference.alias is not None:
            text += f" AS `{reference.alias.replace('`', '``')}`"
        query = query[: reference.start] + text + query[reference.end :]
    return query


def references(query: str, tables: Sequence[str]) -> list[Reference]:
    """Return the offsets where the query names tables. Raises SqlError if it is not a single query, ConfigError for
    unknown tables."""
    try:
        statements = [statement for statement in sqlglot.parse(query, dialect="spark") if statement is not None]
    except SqlglotError as broken:
        raise SqlError(f"cannot parse the query: {_reason(broken)}") from broken
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise SqlError("expected a single query: SELECT, or WITH … SELECT")
    catalog = {lowered(name): name for name in tables}
    references_by_start: dict[int, Reference] = {}
    for scope in traverse_scope(statements[0]):
        for reference in _in_scope(scope, catalog):
            references_by_start[reference.start] = reference
    return list(references_by_start.values())


def _reason(cause: SqlglotError) -> str:
    for error in getattr(cause, "errors", ()):
        return f"{error['description']}, line {error['line']} column {error['col']}"
    return str(cause).partition("\n")[0]


def _in_scope(scope: Scope, catalog: Mapping[str, str]) -> Iterator[Reference]:
    qualified: set[tuple[str, ...]] = set()
    ctes = {key.lower() for key in scope.cte_sources}
    ctes |= {key.lower() for key, source in scope.sources.items() if isinstance(source, Scope)}
    for table in scope.tables:
        if not isinstance(table.this, exp.Identifier) or (not table.db and table.name.lower() in ctes):
            continue
        if table.args.get("version") is not None:
            raise SqlError("a query reads all tables at one moment: set it by at(...) or --at, not in the query")
        name = _table_named(table, catalog)
        parts = [part.name for part in table.parts]
        qualified.add(tuple(part.lower() for part in parts))
        yield Reference(*_span(table.parts), name, None if table.alias else parts[-1])
    for column in scope.columns:
        owner = column.parts[:-1]
        if len(owner) > 1 and tuple(part.name.lower() for part in owner) in qualified:
            start = owner[0].meta["start"]
            yield Reference(start, owner[-1].meta["start"], None, None)


def _span(parts: Sequence[exp.Expression]) -> tuple[int, int]:
    return parts[0].meta["start"], parts[-1].meta["end"] + 1


def _table_named(table: exp.Table, catalog: Mapping[str, str]) -> str:
    name = lowered(qualified(*(part.name for part in table.parts)))
    matches = [catalog[name]] if name in catalog else []
    if not table.db:
        matches = [match for key, match in catalog.items() if key.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigError(f"{name} is ambiguous: add the database; it could be {', '.join(sorted(matches))}")
    names = ", ".join(sorted(catalog.values())) or "none"
    raise ConfigError(f"no table {name} in the lake at this moment; it has: {names}")
