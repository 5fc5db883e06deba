"""Which columns of a table a lake stores: those that the column selectors of its changefeed choose. Pure.

    upstream's definition ── stored_definition ──► the definition by which stored columns are made and changed

Rows are read by the stored columns, so what no selector chooses is not read either.  Which row a key names, and whether
a column of a row is known at all, is asked of the upstream's definition as ever.
"""

from functools import lru_cache

from tidegate.engine.filter import ColumnSelectors, SelectorRule
from tidegate.model.table import TableInfo
from tidegate.sink.delta.options import DeltaOptions


def selectors_of(options: DeltaOptions) -> ColumnSelectors:
    """Return the column selectors of a lake."""
    return _compiled(options.selectors, case_sensitive=options.case_sensitive)


def stored_definition(table: TableInfo, options: DeltaOptions) -> TableInfo:
    """Return the definition with the columns that the lake stores.

    ColumnSelectorFailed when a column is left out that the lake needs."""
    return selectors_of(options).stored(table)


def chosen_ids(table: TableInfo, options: DeltaOptions) -> frozenset[int]:
    """Return the ids of the columns that the lake stores."""
    return frozenset(column.id for column in selectors_of(options).chosen(table) if not column.virtual)


@lru_cache(maxsize=16)
def _compiled(rules: tuple[SelectorRule, ...], *, case_sensitive: bool) -> ColumnSelectors:
    return ColumnSelectors.of(rules, case_sensitive=case_sensitive)
