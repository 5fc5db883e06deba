"""Columns that a changefeed leaves out of its messages, or out of the tables of its lake.

    [sink]
    column-selectors = [
      {matcher = ["shop.*"], columns = ["*", "!secret*"]},
      {matcher = ["log.*"], columns = ["id", "text"]},
    ]

    column rule = ["!"] pattern         the last rule that matches a name decides; none means: left out
                                        patterns as in table filter rules, without regard to case

The first selector whose matcher takes a table chooses among its columns; a table that none takes is sent, or stored,
whole.

    topic   row ─ updates split by all columns ─► narrowed ─► partition by what is left ─► message
            the primary key must stay, or all columns of a unique key, and so must the columns of a `columns` dispatcher
    lake    definition ─► narrowed ─► columns of the stored table, which are all that is read of a row
            the handle key must stay, by which rows are merged, and so must the columns that tell a row's partition

Source: TiCDC documentation, "Column selectors"; tiflow, cdc/sink/dmlsink/mq/transformer/columnselector.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from tidegate.codec.wire_table import WireTable
from tidegate.engine.filter import TableFilter, name_filter
from tidegate.model.errors import ConfigError, TidegateError
from tidegate.model.event import Field, RowChange, Values
from tidegate.model.feed_errors import ColumnSelectorFailed
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo, TableName


class SelectorRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `sink.column-selectors`."""

    matcher: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


class Selection(NamedTuple):
    """The columns of a table that are sent, by their places in whole rows."""

    places: tuple[int, ...]
    fields: tuple[Field, ...]
    wire: WireTable

    def narrowed(self, row: RowChange) -> RowChange:
        """Return the row with these columns alone."""
        images = {name: self._image(getattr(row, name)) for name in ("before", "after") if hasattr(row, name)}
        given: dict[str, Any] = {"fields": self.fields, "pk_names": self.wire.pk_names, **images}
        return msgspec.structs.replace(row, **given)

    def _image(self, values: Values) -> Values:
        return tuple([values[at] for at in self.places])


class _Selector(NamedTuple):
    takes: Callable[[str, str], bool]
    keeps: Callable[[str], bool]
    rule: SelectorRule


@dataclass(frozen=True)
class ColumnSelectors:
    """The column selectors of a changefeed. Build it with `of`; without rules it leaves every column in."""

    _selectors: tuple[_Selector, ...] = ()

    @classmethod
    def of(cls, rules: Sequence[SelectorRule], *, case_sensitive: bool = False) -> "ColumnSelectors":
        """Return the selectors of these rules. FilterRuleInvalid for what is no rule."""
        return cls(
            tuple(
                _Selector(
                    TableFilter.parse(rule.matcher, case_sensitive=case_sensitive).matches
                    if rule.matcher
                    else _nothing,
                    name_filter(rule.columns),
                    rule,
                )
                for rule in rules
            )
        )

    def narrows(self, name: TableName) -> bool:
        """Return whether a selector takes the table."""
        return any(selector.takes(*name) for selector in self._selectors)

    def selection(self, info: TableInfo, wire: WireTable, dispatched: Iterable[str] = ()) -> Selection | None:
        """Return what is sent of a table, None for all of it; `dispatched` are columns by which its rows are spread.

        ColumnSelectorFailed when what stays does not tell rows apart, or not where they go."""
        selector = self._selector(info.name)
        if selector is None:
            return None
        kept = {column.name for column in wire.columns if selector.keeps(column.name)}
        if len(kept) == len(wire.columns):
            return None
        _check(info, kept, selector.rule, dispatched)
        places = tuple(at for at, column in enumerate(wire.columns) if column.name in kept)
        left = WireTable(
            tuple(wire.columns[at] for at in places), tuple(name for name in wire.pk_names if name in kept)
        )
        return Selection(places, left.fields, left)

    def keeps(self, name: TableName, column: str) -> bool:
        """Return whether a column of a table stays."""
        selector = self._selector(name)
        return selector is None or selector.keeps(column)

    def chosen(self, info: TableInfo) -> tuple[ColumnInfo, ...]:
        """Return the columns of a definition that stay."""
        selector = self._selector(info.name)
        return info.columns if selector is None else tuple(one for one in info.columns if selector.keeps(one.name))

    def stored(self, info: TableInfo) -> TableInfo:
        """Return the definition with the columns that a lake stores of a table; `info` itself for all of them.

        ColumnSelectorFailed when a column is left out by which the lake finds rows, or when none stays."""
        selector, columns = self._selector(info.name), self.chosen(info)
        if selector is None or len(columns) == len(info.columns):
            return info
        left = msgspec.structs.replace(info, columns=columns)
        _check_stored(info, left, selector.rule)
        return left

    def _selector(self, name: TableName) -> _Selector | None:
        return next((each for each in self._selectors if each.takes(*name)), None)


def selector_rules(entries: object) -> tuple[SelectorRule, ...]:
    """Return the rules in the value of `sink.column-selectors`; ConfigError for another shape or an unknown key."""
    try:
        return msgspec.convert(entries, tuple[SelectorRule, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"sink.column-selectors: {error}") from error


def _check(info: TableInfo, kept: set[str], rule: SelectorRule, dispatched: Iterable[str]) -> None:
    folded, where = {lowered(name) for name in kept}, f"column selector {list(rule.columns)} for {info.name}"
    gone = [name for name in dispatched if lowered(name) not in folded]
    if gone:
        raise ColumnSelectorFailed(f"{where}: its rows are dispatched by {gone[0]!r}, which the selector leaves out")
    keys = [index for index in info.indexes if index.primary or index.unique]
    if keys and not any(all(lowered(name) in folded for name in index.columns) for index in keys):
        shown = "; ".join(f"{index.name}: {', '.join(index.columns)}" for index in keys)
        raise ColumnSelectorFailed(f"{where}: no primary or unique key stays whole ({shown}); keep one of them")


def _check_stored(info: TableInfo, left: TableInfo, rule: SelectorRule) -> None:
    where = f"column selector {list(rule.columns)} for {info.name} at ts {info.version}"
    if all(column.virtual for column in left.columns):
        raise ColumnSelectorFailed(f"{where}: no column stays; leave the table out with a filter rule, or keep one")
    gone = next((name for name in info.handle_key if left.column(name) is None), None)
    if gone is not None:
        raise ColumnSelectorFailed(
            f"{where}: {gone!r} is left out, and a lake finds rows by their key ({', '.join(info.handle_key)}); keep it"
        )
    if info.partition is not None and _tells_partition(info) and not _tells_partition(left):
        raise ColumnSelectorFailed(
            f"{where}: the columns that tell a row's partition are left out, and a lake needs them where DDLs drop, "
            f"truncate or exchange partitions ({info.partition.expr or ', '.join(info.partition.columns)}); keep them"
        )


def _tells_partition(info: TableInfo) -> bool:
    from tidegate.schema.partition import partition_of  # it needs sqlglot, which most commands do without

    assert info.partition is not None
    try:
        partition_of(info.partition, info.columns, primary_key=info.handle_key)
    except TidegateError:
        return False
    return True


def _nothing(_schema: str, _table: str) -> bool:
    return False
