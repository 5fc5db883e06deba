r"""Filters of a changefeed: table filter rules select tables and DDLs, column selectors select columns.

    rule     = ["!"] pattern "." pattern          schema, then table
    pattern  = "/" regular expression "/"         found anywhere in the name; "/" inside is written "\/"
             | '"' name '"' | "`" name "`"        the very name; the quote inside is doubled
             | wildcards                          "*" any text, "?" one character, "[a-z]" "[!a-z]" one of a class,
                                                  "\" takes the next character as it is

The last rule that matches a table decides; "!" excludes it; a table that no rule matches is left out.  An empty list
means `*.*`.  Blank rules and rules that start with "#" are ignored.  Names compare without case unless
`case_sensitive`.  System schemas never pass, whatever the rules say, under any of their names (such as
`#mysql50#mysql`).  A schema passes (CREATE DATABASE and the like) when some table of it could: a "!" rule excludes
the schema only if its table pattern is `*`.

A DDL is judged by the name that its table had before, too (`previous_name`).  Column selectors: `ColumnSelectors`.

Source: TiDB documentation, "Table Filter"; TiCDC's list of system schemas; TiCDC documentation, "Column selectors";
tiflow, cdc/sink/dmlsink/mq/transformer/columnselector.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.codec.wire_table import WireTable
from tidegate.model.errors import (
    ColumnSelectorFailed,
    ConfigError,
    FilterRuleInvalid,
    InputError,
    RenameRefused,
    TidegateError,
)
from tidegate.model.event import Ddl, Field, RowChange, Values
from tidegate.model.name import lowered
from tidegate.model.pattern import RegularExpression, expression
from tidegate.model.table import ColumnInfo, TableInfo, TableName
from tidegate.schema.ddl_tables import read_statements, subject_table
from tidegate.schema.effects import Effect, PartitionExchanged, TableRenamed
from tidegate.schema.statement import AlterTable, ExchangePartition, RenameTables, RenameTo


def previous_name(ddl: Ddl, effects: Sequence[Effect] | None = None) -> TableName | None:
    """Return the earlier name of the table of `ddl`, from its `effects`, else from its text.

        RENAME TABLE a TO b, ALTER TABLE a RENAME b         a
        ALTER TABLE p EXCHANGE PARTITION x WITH TABLE t     t
        any other                                           None

    TiCDC sends an EXCHANGE PARTITION by the name of the table that moves into the partitioned one."""
    for effect in effects or ():
        if isinstance(effect, TableRenamed):
            return effect.old.name
        if isinstance(effect, PartitionExchanged):
            return effect.other.name
    if not any(word in ddl.query.upper() for word in ("RENAME", "EXCHANGE")):
        return None
    for statement in read_statements(ddl):
        if isinstance(statement, RenameTables):
            return statement.pairs[0].old
        if not isinstance(statement, AlterTable):
            continue
        for spec in statement.specs:
            if isinstance(spec, RenameTo | ExchangePartition):
                return statement.table if isinstance(spec, RenameTo) else spec.table
    return None


def renamed_together(ddl: Ddl) -> tuple[TableName, ...]:
    """Return the tables, by their old names, of a RENAME of several tables; () for another DDL.

    Names that a table has only within the statement, as x in RENAME TABLE a TO x, b TO a, x TO b, are none."""
    pairs = [pair for each in read_statements(ddl) if isinstance(each, RenameTables) for pair in each.pairs]
    if len(pairs) < 2:
        return ()
    seen = set[object]()
    names: list[TableName] = []
    for pair in pairs:
        if pair.old.key not in seen:
            names.append(pair.old)
        seen.add(pair.new.key)
        seen.discard(pair.old.key)
    return tuple(names)


DEFAULT_RULES: Final = ("*.*",)
SYSTEM_SCHEMAS: Final = frozenset(
    {
        "dm_heartbeat",
        "information_schema",
        "inspection_schema",
        "lightning_task_info",
        "metrics_schema",
        "mysql",
        "performance_schema",
        "sys",
        "tidb_cdc",
        "tidegate",
        "workload_schema",
    }
)
"""TiCDC's system schemas, and the one in which the sink of databases stores its state."""
FILE_NAME: Final = "#mysql50#"
"""The prefix that MariaDB, and MySQL before 8, read as a file name's: `#mysql50#mysql` is `mysql`."""

_QUOTED: Final = {"`": re.compile(r"`((?:``|[^`])+)`"), '"': re.compile(r'"((?:""|[^"])+)"')}
_REGEX: Final = re.compile(r"/((?:\\.|[^/])+)/")
_CLASS: Final = re.compile(r"\[(!?+)((?:\\[^0-9A-Za-z]|[^\\\]])+)\]")
_WILDCARDS: Final = {"*": ".*", "?": "."}


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One side of a rule: a regular expression (None for `*`) that is searched in a name or must match all of it.

    `exact` is a name without wildcards: it is compared, in lower case where case does not count; an expression would
    hold the two small sigmas to be one letter, and TiDB's names do not."""

    matcher: RegularExpression | None = None
    anywhere: bool = False
    exact: str | None = None
    any_case: bool = True

    @property
    def everything(self) -> bool:
        return self.exact is None and self.matcher is None

    def matches(self, name: str) -> bool:
        if self.exact is not None:
            return self.exact == (lowered(name) if self.any_case else name)
        if self.matcher is None:
            return True
        return self.matcher.is_in(name) if self.anywhere else self.matcher.is_all(name)


@dataclass(frozen=True, slots=True)
class _Rule:
    schema: _Pattern
    table: _Pattern
    positive: bool


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Parsed rules, the last one first; equal to those of other texts with the same meaning. Build it with `parse`."""

    rules: tuple[str, ...] = field(compare=False)
    _rules: tuple[_Rule, ...]

    @classmethod
    def parse(cls, rules: Sequence[str] = DEFAULT_RULES, *, case_sensitive: bool = False) -> "TableFilter":
        """Return the filter of `rules`. Raises FilterRuleInvalid with the rule and the position in it."""
        texts = tuple(rules) or DEFAULT_RULES
        parsed = [
            _Reader(text, any_case=not case_sensitive).rule()
            for text in texts
            if text.strip(" \t")[:1] not in ("", "#")
        ]
        return cls(texts, tuple(reversed(parsed)))

    def within(self, outer: "Callable[[], TableFilter | None]") -> "WithinFilter":
        """Return this filter for a log that has the tables of what `outer` returns; None: all."""
        return WithinFilter(self.rules, self._rules, outer)

    def matches(self, schema: str, table: str) -> bool:
        """Return True if rows and DDLs of this table belong to the changefeed; of the schema itself without a table."""
        if not table:
            return self.matches_schema(schema)
        if is_system(schema) or table.startswith(FILE_NAME):
            return False
        return _first(
            rule.positive for rule in self._rules if rule.schema.matches(schema) and rule.table.matches(table)
        )

    def matches_schema(self, schema: str) -> bool:
        """Return True if DDLs of the schema itself belong to the changefeed."""
        if is_system(schema):
            return False
        return _first(
            rule.positive
            for rule in self._rules
            if rule.schema.matches(schema) and (rule.positive or rule.table.everything)
        )

    def takes_ddl(self, ddl: Ddl, previous: TableName | None) -> bool:
        """Return True if a DDL belongs to the changefeed: one of a schema if some table of it could, a RENAME if the
        old name (`previous`) matches. Raises RenameRefused for a RENAME that brings a table into the filter, whose
        earlier rows were filtered out, and for a RENAME of several tables of which only some match."""
        if not ddl.table:
            return self.matches_schema(ddl.schema)
        if "," in ddl.query and "RENAME" in ddl.query.upper():
            together = renamed_together(ddl)
            left = [name for name in together if not self.matches(*name)]
            if left and len(left) < len(together):
                raise RenameRefused(
                    f"ts {ddl.commit_ts}: {', '.join(map(str, left))} of the tables renamed together "
                    f"({ddl.query!a:.200}) is excluded; let filter.rules include all of them, or none"
                )
            if together:
                return not left
        matched = self.matches(*subject_table(ddl))
        if previous is None or self.matches(*previous):
            return matched or previous is not None
        if matched and "RENAME" in ddl.query.upper():
            raise RenameRefused(
                f"ts {ddl.commit_ts}: {previous}, which the filter excludes, becomes {ddl.schema}.{ddl.table}, which "
                f"it includes ({ddl.query!a:.200}); its earlier rows are not written: let filter.rules include both "
                f"names and start before the table was created, or exclude the new name"
            )
        return matched


@dataclass(frozen=True, slots=True)
class WithinFilter(TableFilter):
    """A filter for a log that another one made: a table that it takes must be in that one, too."""

    outer: Callable[[], TableFilter | None]

    def matches(self, schema: str, table: str) -> bool:
        """Return as TableFilter does. Raises ConfigError for a table that the log lacks."""
        matched = TableFilter.matches(self, schema, table)
        if matched and table and (outer := self.outer()) is not None and not outer.matches(schema, table):
            raise ConfigError(
                f"{schema}.{table} is in the filter of the changefeed, and not in that of its log, "
                f"{', '.join(outer.rules)}: let filter.rules exclude it, or begin a log with a wider --filter"
            )
        return matched


def is_system(schema: str) -> bool:
    """Return True for a system database or Tidegate's own, by any name that a server accepts for it."""
    return lowered(schema) in SYSTEM_SCHEMAS or schema.startswith(FILE_NAME)


def name_filter(rules: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that is true if a name matches rules of one pattern each, ["!"] pattern; for column names,
    so case is ignored.

    Without rules nothing matches. Raises FilterRuleInvalid with the rule and the position in it."""
    return partial(_is_taken, [_Reader(rule).name_rule() for rule in rules][::-1])


def _is_taken(rules: Sequence[tuple[bool, _Pattern]], name: str) -> bool:
    return _first(positive for positive, pattern in rules if pattern.matches(name))


def _first(verdicts: Iterable[bool]) -> bool:
    return next(iter(verdicts), False)


class _Reader:
    def __init__(self, text: str, *, any_case: bool = True) -> None:
        self.text = text.rstrip(" \t")
        self.any_case = any_case
        self.position = len(text) - len(text.lstrip(" \t"))

    def rule(self) -> _Rule:
        positive = not self.take("!")
        if self.peek() == "@":
            raise self.error("rules cannot be imported from a file: write them into the list")
        schema = self.pattern("schema")
        if not self.take("."):
            end = self.position == len(self.text)
            what = "the table pattern is missing" if end else "expected '.' between the schema and the table pattern"
            raise self.error(f"{what}: a rule is SCHEMA.TABLE, such as {self.text}.*" if end else what)
        table = self.pattern("table")
        if self.position != len(self.text):
            raise self.error("unexpected text after the table pattern: quote names with special characters")
        return _Rule(schema, table, positive)

    def name_rule(self) -> tuple[bool, _Pattern]:
        positive = not self.take("!")
        pattern = self.pattern("name")
        if self.position != len(self.text):
            raise self.error("unexpected text after the pattern: quote names with special characters")
        return positive, pattern

    def pattern(self, what: str) -> _Pattern:
        first = self.peek()
        if not first:
            raise self.error(f"the {what} pattern is missing")
        if first == "/":
            return self.regex()
        if first in _QUOTED:
            return self.quoted(first)
        return self.wildcards()

    def regex(self) -> _Pattern:
        match = _REGEX.match(self.text, self.position)
        if match is None:
            raise self.error("the regular expression has no closing '/'")
        pattern = _Pattern(self.compile(match[1]), anywhere=True)
        self.position = match.end()
        return pattern

    def quoted(self, quote: str) -> _Pattern:
        match = _QUOTED[quote].match(self.text, self.position)
        if match is None:
            raise self.error(f"the quoted name has no closing {quote}")
        self.position = match.end()
        return self.name(re.escape(match[1].replace(quote * 2, quote)))

    def name(self, escaped: str) -> _Pattern:
        plain = re.sub(r"\\(.)", r"\1", escaped, flags=re.DOTALL)
        return _Pattern(exact=lowered(plain) if self.any_case else plain, any_case=self.any_case)

    def wildcards(self) -> _Pattern:
        start = self.position
        out: list[str] = []
        while (char := self.peek()) and char != ".":
            out.append(self.wildcard(char))
        if not {"*", "?", "["} & set(re.sub(r"\\.", "", self.text[start : self.position], flags=re.DOTALL)):
            return self.name("".join(out))
        return _Pattern() if self.text[start : self.position] == "*" else _Pattern(self.compile("".join(out)))

    def wildcard(self, char: str) -> str:
        if char in _WILDCARDS:
            self.position += 1
            return _WILDCARDS[char]
        if char == "[":
            return self.character_class()
        if char == "\\":
            return self.escape()
        if char in "$_" or char.isalnum() or not char.isascii():
            self.position += 1
            return re.escape(char)
        raise self.error(f"unexpected {char!r}: quote the name (`...`) or write \\{char}")

    def escape(self) -> str:
        escaped = self.text[self.position + 1 : self.position + 2]
        if not escaped:
            raise self.error("a backslash at the end of the rule escapes nothing")
        if escaped.isascii() and escaped.isalnum():
            raise self.error(f"letters and digits cannot be escaped (\\{escaped})")
        self.position += 2
        return re.escape(escaped)

    def character_class(self) -> str:
        match = _CLASS.match(self.text, self.position)
        if match is None:
            raise self.error("the character class is not complete: expected [...] with at least one character")
        negated, members = match.groups()
        # "^" is an ordinary member here, and "[" and set operators of Python's future syntax stay literal.
        body = re.sub(r"\\(.)|([\^\[&|~])", lambda hit: "\\" + (hit[1] or hit[2]), members)
        pattern = f"[{'^' if negated else ''}{body}]"
        self.compile(pattern)
        self.position = match.end()
        return pattern

    def compile(self, pattern: str) -> RegularExpression:
        try:
            return expression(pattern, "is" if self.any_case else "s")
        except InputError as error:
            raise self.error(f"not a Go regular expression (RE2): {error}") from error

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def take(self, char: str) -> bool:
        matches = self.peek() == char
        self.position += matches
        return matches

    def error(self, what: str) -> FilterRuleInvalid:
        return FilterRuleInvalid(f"filter rule {self.text!r}, character {self.position + 1}: {what}")


class EventRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"):
    """One entry of `filter.event-filters`, as the file has it."""

    matcher: tuple[str, ...] = ()
    ignore_event: tuple[str, ...] = ()
    ignore_sql: tuple[str, ...] = ()
    ignore_insert_value_expr: str = ""
    ignore_update_new_value_expr: str = ""
    ignore_update_old_value_expr: str = ""
    ignore_delete_value_expr: str = ""
    ignore_update_only_columns: tuple[str, ...] = ()

    @property
    def expressions(self) -> tuple[str, ...]:
        """The value expressions that are set."""
        every = (
            self.ignore_insert_value_expr,
            self.ignore_update_new_value_expr,
            self.ignore_update_old_value_expr,
            self.ignore_delete_value_expr,
        )
        return tuple(filter(None, every))


class SelectorRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `sink.column-selectors`."""

    matcher: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


class Selection(NamedTuple):
    """The selected columns of a table, by their indexes in whole rows."""

    indexes: tuple[int, ...]
    fields: tuple[Field, ...]
    wire: WireTable

    def narrowed(self, row: RowChange) -> RowChange:
        """Return the row with the selected columns alone."""
        images = {name: self._image(getattr(row, name)) for name in ("before", "after") if hasattr(row, name)}
        changes: dict[str, Any] = {"fields": self.fields, "pk_names": self.wire.pk_names, **images}
        return msgspec.structs.replace(row, **changes)

    def _image(self, values: Values) -> Values:
        return tuple([values[index] for index in self.indexes])


class _Selector(NamedTuple):
    takes: Callable[[str, str], bool]
    keeps: Callable[[str], bool]
    rule: SelectorRule


@dataclass(frozen=True)
class ColumnSelectors:
    """The column selectors of a changefeed. Build it with `of`; without rules it leaves every column in.

        [sink]
        column-selectors = [
          {matcher = ["shop.*"], columns = ["*", "!secret*"]},
          {matcher = ["log.*"], columns = ["id", "text"]},
        ]

    The first selector whose matcher takes a table decides; a table that none takes keeps all columns.

        topic   row ─ updates split by all columns ─► narrowed ─► partition by the remaining columns ─► message
                the primary key or all columns of a unique key must stay, and the columns of a `columns` dispatcher
        lake    definition ─► narrowed ─► columns of the stored table; no others are read of a row
                the handle key must stay, by which rows are merged, and the columns that determine the partition"""

    _selectors: tuple[_Selector, ...] = ()

    @classmethod
    def of(cls, rules: Sequence[SelectorRule], *, case_sensitive: bool = False) -> "ColumnSelectors":
        """Return the selectors of these rules. Raises FilterRuleInvalid."""
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
        """Return whether a selector matches the table."""
        return any(selector.takes(*name) for selector in self._selectors)

    def selection(self, info: TableInfo, wire: WireTable, dispatched: Iterable[str] = ()) -> Selection | None:
        """Return the columns of a table to send, None for all; `dispatched` are the columns of its dispatcher. Raises
        ColumnSelectorFailed when the selected columns lack a key, or a dispatched column."""
        selector = self._selector(info.name)
        if selector is None:
            return None
        kept = {column.name for column in wire.columns if selector.keeps(column.name)}
        if len(kept) == len(wire.columns):
            return None
        _check(info, kept, selector.rule, dispatched)
        indexes = tuple(index for index, column in enumerate(wire.columns) if column.name in kept)
        left = WireTable(
            tuple(wire.columns[index] for index in indexes), tuple(name for name in wire.pk_names if name in kept)
        )
        return Selection(indexes, left.fields, left)

    def keeps(self, name: TableName, column: str) -> bool:
        """Return whether a column of a table is selected."""
        selector = self._selector(name)
        return selector is None or selector.keeps(column)

    def chosen(self, info: TableInfo) -> tuple[ColumnInfo, ...]:
        """Return the selected columns of a definition."""
        selector = self._selector(info.name)
        return (
            info.columns
            if selector is None
            else tuple(column for column in info.columns if selector.keeps(column.name))
        )

    def stored(self, info: TableInfo) -> TableInfo:
        """Return the definition with the columns that a lake stores of a table; `info` itself for all of them. Raises
        ColumnSelectorFailed when a key column of the lake is not selected, or no column is."""
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
        raise ColumnSelectorFailed(f"{where}: its rows are dispatched by {gone[0]!r}, which the selector excludes")
    keys = [index for index in info.indexes if index.primary or index.unique]
    if keys and not any(all(lowered(name) in folded for name in index.columns) for index in keys):
        shown = "; ".join(f"{index.name}: {', '.join(index.columns)}" for index in keys)
        raise ColumnSelectorFailed(f"{where}: no primary or unique key is complete ({shown}); select one of them")


def _check_stored(info: TableInfo, left: TableInfo, rule: SelectorRule) -> None:
    where = f"column selector {list(rule.columns)} for {info.name} at ts {info.version}"
    if all(column.virtual for column in left.columns):
        raise ColumnSelectorFailed(f"{where}: no column is selected; exclude the table by a filter rule, or select one")
    gone = next((name for name in info.handle_key if left.column(name) is None), None)
    if gone is not None:
        raise ColumnSelectorFailed(
            f"{where}: {gone!r} is excluded, but a lake finds rows by their key ({', '.join(info.handle_key)}); keep it"
        )
    if info.partition is not None and _tells_partition(info) and not _tells_partition(left):
        raise ColumnSelectorFailed(
            f"{where}: the columns that determine a row's partition are excluded, but a lake needs them for DDLs that "
            f"drop, truncate or exchange partitions ({info.partition.expr or ', '.join(info.partition.columns)}); "
            f"keep them"
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
