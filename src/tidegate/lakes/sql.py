"""A query over the tables of one moment: `shop.orders` in it becomes a view of that very state.

    select orders.id from shop.orders join bank.accounts a on ...
                          ───────────      ─────────────
    select orders.id from `v1` AS `orders` join `v2` a on ...

The query's own text stays; only names of tables are replaced, at the places where the parser saw them.  A bare `orders`
means the one table of that name.  The views live as long as the query is being analyzed.
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


@dataclass(frozen=True, slots=True)
class Reference:
    """A place of the query's text, [start, end), and the table that stands there; no table: the text goes away."""

    start: int
    end: int
    table: str | None
    alias: str | None
    """The name under which the query knows the table, unless it says so itself."""


def run(spark: Any, query: str, tables: Sequence[str], frame: Callable[[str], Any]) -> Any:
    """Return the DataFrame of `query`; `frame` gives the rows of a table by its name."""
    from pyspark.errors import AnalysisException

    places = references(query, tables)
    prefix = f"tidegate_{uuid.uuid4().hex}"
    names = sorted({place.table for place in places if place.table is not None})
    views = {name: f"{prefix}_{number}" for number, name in enumerate(names)}
    text = rewritten(query, places, views)
    try:
        if is_connect(spark):
            return _connected(spark, text, {view: frame(name) for name, view in views.items()})
        for name, view in views.items():
            frame(name).createOrReplaceTempView(view)
        return spark.sql(text)
    except AnalysisException as wrong:
        raise SqlError(_shown(str(wrong), views)) from wrong
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)


def _connected(spark: Any, text: str, frames: Mapping[str, Any]) -> Any:
    """The DataFrame of a query over Connect, which looks names up when it is executed: the frames go with the query."""
    text = text.replace("{", "{{").replace("}", "}}")
    for view in frames:
        text = text.replace(f"`{view}`", f"{{{view}}}")
    found = spark.sql(text, **frames)
    assert found.schema is not None  # what is wrong with the query is told here
    return found


def _shown(message: str, views: Mapping[str, str]) -> str:
    """The head of Spark's message, with the names that the query used."""
    head = message.partition(";\n")[0].partition("\n\n")[0]
    for name, view in views.items():
        head = head.replace(view, name)
    return " ".join(head.split())


def rewritten(query: str, places: Sequence[Reference], views: Mapping[str, str]) -> str:
    """Return the query over views."""
    for place in sorted(places, key=lambda one: one.start, reverse=True):
        text = "" if place.table is None else f"`{views[place.table]}`"
        if place.alias is not None:
            text += f" AS `{place.alias.replace('`', '``')}`"
        query = query[: place.start] + text + query[place.end :]
    return query


def references(query: str, tables: Sequence[str]) -> list[Reference]:
    """Return where the query names tables. Raises SqlError for what is no single query, ConfigError for unknown
    tables."""
    try:
        statements = [one for one in sqlglot.parse(query, dialect="spark") if one is not None]
    except SqlglotError as broken:
        raise SqlError(f"the query cannot be read: {_reason(broken)}") from broken
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise SqlError("a lake is read by one query: SELECT, or WITH … SELECT")
    catalog = {lowered(name): name for name in tables}
    found: dict[int, Reference] = {}
    for scope in traverse_scope(statements[0]):
        for place in _in_scope(scope, catalog):
            found[place.start] = place
    return list(found.values())


def _reason(broken: SqlglotError) -> str:
    for place in getattr(broken, "errors", ()):
        return f"{place['description']}, line {place['line']} column {place['col']}"
    return str(broken).partition("\n")[0]


def _in_scope(scope: Scope, catalog: Mapping[str, str]) -> Iterator[Reference]:
    qualified: set[tuple[str, ...]] = set()
    ctes = {key.lower() for key in scope.cte_sources}
    ctes |= {key.lower() for key, source in scope.sources.items() if isinstance(source, Scope)}
    for table in scope.tables:
        if not isinstance(table.this, exp.Identifier) or (not table.db and table.name.lower() in ctes):
            continue
        if table.args.get("version") is not None:
            raise SqlError("a query reads all tables at one moment: name it with at(...) or --at, not in the query")
        name = _known(table, catalog)
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


def _known(table: exp.Table, catalog: Mapping[str, str]) -> str:
    wanted = lowered(qualified(*(part.name for part in table.parts)))
    matches = [catalog[wanted]] if wanted in catalog else []
    if not table.db:
        matches = [name for key, name in catalog.items() if key.endswith(f".{wanted}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigError(f"{wanted} could be any of {', '.join(sorted(matches))}: write its database too")
    known = ", ".join(sorted(catalog.values())) or "none"
    raise ConfigError(f"no table {wanted} in the lake at this moment; it has: {known}")
