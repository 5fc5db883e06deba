"""Dispatching: the topic and the partition of each event, bit for bit as TiCDC computes them, and the splitting of
updates.

    [sink]
    dispatchers = [
      {matcher = ["shop.*"], topic = "shop_{table}", partition = "index-value", index = "by_email"},
      {matcher = ["log.*"], partition = "columns", columns = ["day"]},
    ]

    Router ── plan(table, fields) ──→ TablePlan ── route(row, partitions) ──→ Route(topic, partition, key)

    partition       hash                                                               key
    default, table  crc32(schema table)                                                schema.table
    index-value     crc32(schema table) ^ crc32(column value) ^ ... of the handle      the hash, decimal
                    or of the unique index `index`; `rowid` is an old name of it
    columns         crc32(schema table) ^ crc32(column value) ^ ... of `columns`       the hash, decimal
    ts              the commit timestamp itself                                        the timestamp, decimal

    topic = literal [{schema}] [literal {table}] literal        literal: letters, digits, ".", "_", "-"

The first rule whose matcher takes the table decides; the last rule takes all tables, by table, into the default
topic. A matcher is a list of table filter rules; an empty one takes no table.  `dispatcher` is the older spelling of
`partition`, and only one of them may be given.  In a topic's name every character of the schema or table that Kafka
does not allow becomes "_", the name ends after 249 bytes, and the names "." and ".." become "_" and "__": two tables
can get the same topic (你 and 好 do).

The partition is hash mod partitions.  The CRC is that of IEEE, over names and values without separators; exclusive
or makes the order of columns irrelevant.  Values are those of the new row, of a DELETE the old one, as TiCDC writes
them (`value_text`); names keep their case.  A NULL in a column of `index` or `columns` is hashed as the text `null`
by the classic emitter and left out by newarch.  A virtual column, which rows do not carry, is left out when it
belongs to an index, and refused when `columns` names it, as is every other mismatch of rule and table.  `Splitter`
splits updates.

Source: TiCDC documentation, "Customize the rules for Topic and Partition dispatchers of Kafka Sink", "Split UPDATE
events"; tiflow, cdc/sink/dmlsink/mq/dispatcher, pkg/hash, cdc/model/sink.go (SingleTableTxn), issue 11297;
recordings.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go import positional32, positional64
from tidegate.codec.values import INT_RANGES
from tidegate.codec.zone import zone_shift
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import (
    ConfigError,
    DispatcherFailed,
    EncodeError,
    SinkConfigInvalid,
    TopicExpressionInvalid,
    redacted_value,
)
from tidegate.model.event import Delete, Field, Insert, RowChange, Update, Value, Values, images
from tidegate.model.mysql import ColumnFlag, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName

MAX_TOPIC_BYTES: Final = 249
_EXPRESSION: Final = re.compile(r"[A-Za-z0-9._-]*+(\{schema\})?([A-Za-z0-9._-]*+\{table\})?[A-Za-z0-9._-]*+")
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9._-]")
_RESERVED: Final = {".": "_", "..": "__"}


class PartitionDispatcher(Enum):
    """The partitioning of rows: by table, index, columns or commit_ts."""

    TABLE = "table"
    INDEX_VALUE = "index-value"
    COLUMNS = "columns"
    TS = "ts"


PARTITION_WORDS: Final = {
    "": PartitionDispatcher.TABLE,
    "default": PartitionDispatcher.TABLE,
    "rowid": PartitionDispatcher.INDEX_VALUE,
    **{by.value: by for by in PartitionDispatcher},
}
"""Every word of `partition`, in lower case, and its meaning."""


class DispatchRule(msgspec.Struct, frozen=True):
    """One entry of `sink.dispatchers`; an empty `topic` is the default topic."""

    matcher: tuple[str, ...] = ()
    partition: str = ""
    topic: str = ""
    index: str = ""
    columns: tuple[str, ...] = ()

    @property
    def by(self) -> PartitionDispatcher:
        """The partitioning; a word that TiCDC does not know means the table, as it does there."""
        return PARTITION_WORDS.get(self.partition.lower(), PartitionDispatcher.TABLE)


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """An entry as the file has it. The targets rename tables inside messages; they decide no topic or partition."""

    matcher: tuple[str, ...] = ()
    partition: str = ""
    dispatcher: str = ""
    topic: str = ""
    index: str = ""
    columns: tuple[str, ...] = ()
    target_schema: str = ""
    target_table: str = ""


def dispatch_rules(entries: object) -> tuple[DispatchRule, ...]:
    """Return the rules in the value of `sink.dispatchers`.

    ConfigError for another shape or an unknown key, SinkConfigInvalid for `dispatcher` beside `partition`."""
    try:
        parsed = msgspec.convert(entries, tuple[_Entry, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"sink.dispatchers: {error}") from error
    rules = []
    for number, entry in enumerate(parsed):
        if entry.partition and entry.dispatcher:
            raise SinkConfigInvalid(
                f"sink.dispatchers[{number}] has both dispatcher = {entry.dispatcher!r} and partition = "
                f"{entry.partition!r}: they are the same key; remove dispatcher"
            )
        partition = entry.partition or entry.dispatcher
        rules.append(DispatchRule(entry.matcher, partition, entry.topic, entry.index, entry.columns))
    return tuple(rules)


def complaints(rules: Sequence[DispatchRule]) -> tuple[str, ...]:
    """Return warnings about rules that work, but perhaps not as intended; TiCDC warns of the same."""
    warnings = []
    for number, rule in enumerate(rules):
        where, word = f"sink.dispatchers[{number}]", rule.partition.lower()
        if word == "rowid":
            warnings.append(f"{where}: partition = 'rowid' is an old name of 'index-value'")
        elif word not in PARTITION_WORDS:
            names = ", ".join(by.value for by in PartitionDispatcher)
            warnings.append(f"{where}: partition = {rule.partition!r} is not one of {names}: rows go by their table")
        if rule.by is PartitionDispatcher.COLUMNS and not rule.columns:
            warnings.append(f"{where}: partition = 'columns' without columns: rows go by their table")
        if not rule.matcher:
            warnings.append(f"{where}: an empty matcher matches no table")
    return tuple(warnings)


def topic_pattern(text: str, protocol: str) -> str:
    """`text` unchanged when it is a topic expression that the protocol allows."""
    if _EXPRESSION.fullmatch(text) is None:
        raise TopicExpressionInvalid(
            f"{text!a:.300} is not a topic expression: expected [prefix]{{schema}}[middle]{{table}}[suffix] with "
            f"letters, "
            "digits, '.', '_' and '-' around the placeholders, or a fixed name"
        )
    if protocol == "avro" and not ("{schema}" in text and "{table}" in text):
        raise TopicExpressionInvalid(f"{text!a:.300}: the topic of avro must hold {{schema}} and {{table}}")
    return text


def topic_name(pattern: str, schema: str, table: str) -> str:
    """Return the topic of a table."""
    named = pattern.replace("{schema}", _FORBIDDEN.sub("_", schema)).replace("{table}", _FORBIDDEN.sub("_", table))
    return _RESERVED.get(named, named[:MAX_TOPIC_BYTES])


ValueText: TypeAlias = Callable[[Any], bytes]
"""The text of a value that is not NULL; TypeError or AttributeError for a value of another type."""

NULL_TEXT: Final = b"null"


def value_text(code: int, time_zone: str = "UTC") -> ValueText:
    """Return the function that makes the texts of a column whose type is `code`."""
    if code in INT_RANGES:
        return _integer
    if code == MysqlType.TIMESTAMP and time_zone != "UTC":
        shift = zone_shift(time_zone)
        return lambda value: shift(value).encode()
    return _FLOATS.get(code, _text)


def _integer(value: int) -> bytes:
    return int.__repr__(value).encode()


def _float(value: float) -> bytes:
    return positional32(value).encode()


def _double(value: float) -> bytes:
    return positional64(value).encode()


def _text(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


_FLOATS: Final[dict[int, ValueText]] = {MysqlType.FLOAT: _float, MysqlType.DOUBLE: _double}


_CATCH_ALL: Final = DispatchRule(matcher=("*.*",))


class Route(NamedTuple):
    """The topic and partition of a row; `key` is used by Pulsar instead of a partition."""

    topic: str
    partition: int
    key: str


class DdlRoute(NamedTuple):
    """The topic of a DDL, and one or all of its partitions."""

    topic: str
    partitions: range


class _Part(NamedTuple):
    """A hashed column: its index in rows, the CRC of its name, which the value continues, and the texts of its
    values."""

    column: int
    name: str
    name_crc: int
    text: ValueText


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The dispatching of one table's rows with these columns; valid until a DDL changes the table."""

    topic: str
    by: PartitionDispatcher
    fields: tuple[Field, ...]
    _name: TableName
    _seed: int
    _parts: tuple[_Part, ...]
    _skips_null: bool

    def route(self, row: RowChange, partitions: int) -> Route:
        """Return the topic and partition of a row, out of `partitions`."""
        if partitions < 1:
            raise DispatcherFailed(f"topic {self.topic} has {partitions} partitions; at least one is needed")
        if self.by is PartitionDispatcher.TS:
            if row.commit_ts is None:
                raise DispatcherFailed(
                    f"a row of {self._name} has no commit timestamp to dispatch by (canal-json includes it with "
                    f"enable-tidb-extension); choose another partition rule"
                )
            hashed = row.commit_ts
            return Route(self.topic, hashed % partitions, str(hashed))
        before, after = images(row)
        values = before if after is None else after
        assert values is not None
        hashed = self.hash_of(row, values)
        key = ".".join(self._name) if self.by is PartitionDispatcher.TABLE else str(hashed)
        return Route(self.topic, hashed % partitions, key)

    def hash_of(self, row: RowChange, values: Values) -> int:
        """Return the hash of an image; a plan by timestamp has one hash for all rows."""
        self.check(row)
        hashed = self._seed
        for index, name, name_crc, text in self._parts:
            value = values[index]
            if value is None and self._skips_null:
                continue
            try:
                hashed ^= crc32(NULL_TEXT if value is None else text(value), name_crc)
            except (TypeError, AttributeError) as error:
                refused = EncodeError(f"column {name!r} of {self._name} cannot be {redacted_value(value)}")
                raise refused.at(table=str(self._name)) from error
        return hashed

    def hashes(self, columns: Callable[[int], Sequence[Value]], rows: int) -> list[int]:
        """`hash_of` for many images, whose column values `columns` returns by index."""
        hashes = [self._seed] * rows
        for index, _, name_crc, text in self._parts:
            null = 0 if self._skips_null else crc32(NULL_TEXT, name_crc)
            texts = (null if value is None else crc32(text(value), name_crc) for value in columns(index))
            hashes = [hashed ^ crc for hashed, crc in zip(hashes, texts, strict=True)]
        return hashes

    def check(self, row: RowChange) -> None:
        """Raise DispatcherFailed unless the plan was made for this table and these columns."""
        if row.fields is not self.fields and row.fields != self.fields:
            raise DispatcherFailed(f"a row of {self._name} has other columns than its dispatcher was made for")
        name = TableName(row.schema, row.table)
        if name != self._name and name.key != self._name.key:
            raise DispatcherFailed(f"a row of {name} met the dispatcher of {self._name}")


class _Rule(NamedTuple):
    takes: Callable[[str, str], bool]
    rule: DispatchRule


@dataclass(frozen=True, slots=True)
class Router:
    """The dispatchers of a changefeed. Build it with `of`."""

    default_topic: str
    protocol: str
    _rules: tuple[_Rule, ...]
    _skips_null: bool
    _time_zone: str

    @classmethod
    def of(
        cls,
        rules: Sequence[DispatchRule],
        default_topic: str,
        options: EncodeOptions,
        *,
        case_sensitive: bool = False,
    ) -> "Router":
        """Return the router of these rules. Raises FilterRuleInvalid and TopicExpressionInvalid for rules that do not
        parse."""
        for rule in rules:
            if rule.topic:
                topic_pattern(rule.topic, options.protocol)
        parsed = tuple(
            _Rule(TableFilter.parse(rule.matcher, case_sensitive=case_sensitive).matches, rule)
            for rule in rules
            if rule.matcher
        )
        return cls(default_topic, options.protocol, parsed, options.newarch, options.time_zone)

    def rule(self, schema: str, table: str) -> DispatchRule:
        """Return the first rule that takes the table."""
        return next((rule for takes, rule in self._rules if takes(schema, table)), _CATCH_ALL)

    def topic(self, schema: str, table: str) -> str:
        """Return the topic of a table; the default one for "", the table of DDLs that concern a schema."""
        pattern = self.rule(schema, table).topic if table else ""
        return topic_name(pattern, schema, table) if pattern else self.default_topic

    def plan(self, name: TableName, fields: tuple[Field, ...], info: TableInfo | None = None) -> TablePlan:
        """Return the plan for rows with these columns; rules that name an index need `info`. Raises DispatcherFailed
        for a rule that does not fit the table."""
        rule = self.rule(*name)
        names = _hashed_names(rule, name, fields, info)
        named = rule.by is PartitionDispatcher.COLUMNS or bool(rule.index)
        return TablePlan(
            topic=self.topic(*name),
            by=rule.by,
            fields=fields,
            _name=name,
            _seed=crc32(_bytes(name.schema + name.table)),
            _parts=tuple(_parts(fields, names, self._time_zone)),
            _skips_null=self._skips_null and named,
        )

    def only_partition(self, name: TableName, partitions: int) -> int | None:
        """Return the one partition of a table that is dispatched by its name; None when its rows are spread."""
        if self.rule(*name).by is not PartitionDispatcher.TABLE:
            return None
        return crc32(_bytes(name.schema + name.table)) % partitions

    def ddl(self, schema: str, table: str, partitions: int, previous: TableName | None = None) -> DdlRoute:
        """Return the partitions of a DDL: canal-json has it once, in partition 0, Open Protocol in every partition."""
        topic = self.ddl_topic(schema, table, previous)
        return DdlRoute(topic, range(1 if self.protocol == "canal-json" else partitions))

    def ddl_topic(self, schema: str, table: str, previous: TableName | None = None) -> str:
        """Return the topic of a DDL; a RENAME goes to the topic of the old name."""
        return self.topic(*(previous or (schema, table)))

    def watermark_topics(self, tables: Iterable[TableName]) -> tuple[str, ...]:
        """Return the topics, all partitions of which get the watermark: those of the tables and the default one."""
        return tuple(dict.fromkeys([*(self.topic(*name) for name in tables), self.default_topic]))


def _hashed_names(
    rule: DispatchRule, name: TableName, fields: tuple[Field, ...], info: TableInfo | None
) -> tuple[str, ...]:
    match rule.by:
        case PartitionDispatcher.TABLE | PartitionDispatcher.TS:
            return ()
        case PartitionDispatcher.COLUMNS:
            folded = {lowered(field.name): field.name for field in fields}
            for column_name in rule.columns:
                if lowered(column_name) in folded:
                    continue
                column = info.column(column_name) if info is not None else None
                is_virtual = column is not None and column.virtual
                reason = "is virtual, and rows do not contain it" if is_virtual else "does not exist"
                has = ", ".join(folded.values())
                raise DispatcherFailed(f"columns not found: {column_name!r} of {name} {reason}; it has {has}")
            return tuple(folded[lowered(column_name)] for column_name in rule.columns)
        case PartitionDispatcher.INDEX_VALUE:
            return _indexed(rule, name, info) if rule.index else tuple(f.name for f in fields if f.handle)


def _indexed(rule: DispatchRule, name: TableName, info: TableInfo | None) -> tuple[str, ...]:
    if info is None:
        raise DispatcherFailed(
            f"index {rule.index!r} of {name} should dispatch rows, but the table definition is unknown"
        )
    folded = lowered(rule.index)
    index = next((index for index in info.indexes if lowered(index.name) == folded), None)
    if index is None and folded == "primary":
        index = next((index for index in info.indexes if index.primary), None)
    if index is None:
        names = ", ".join(index.name for index in info.indexes if index.unique or index.primary) or "none"
        raise DispatcherFailed(f"index not found: {name} has no index {rule.index!r}; its unique ones: {names}")
    if not (index.unique or index.primary):
        raise DispatcherFailed(
            f"index is not unique: {rule.index!r} of {name}; an update of its columns could overtake itself in "
            "another partition; name a unique index"
        )
    columns = (info.column(column) for column in index.columns)
    return tuple(column.name for column in columns if column is not None and not column.virtual)


def _parts(fields: tuple[Field, ...], names: tuple[str, ...], time_zone: str) -> Iterator[_Part]:
    indexes = {field.name: index for index, field in enumerate(fields)}
    for name in names:
        if name not in indexes:
            raise DispatcherFailed(f"column {name!r} should dispatch rows, but rows do not contain it")
        index = indexes[name]
        yield _Part(index, name, crc32(_bytes(name)), value_text(fields[index].type, time_zone))


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


_KEYS: Final = ColumnFlag.HANDLE_KEY | ColumnFlag.UNIQUE_KEY
_ORDER: Final[dict[type, int]] = {Delete: 0, Update: 1, Insert: 2}


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """The rule for splitting updates: one is split when the texts of one of these groups of columns differ.

    `unique_keys`: those of the handle or of any unique key, as TiCDC does unless `output-raw-change-event` is set.

    `dispatch_key`: those that the dispatcher hashes, so that the row would move to another partition.  TiCDC leaves
    this open: with `columns`, and with `output-raw-change-event`, its halves race.  Set it to False for messages
    that equal TiCDC's one by one."""

    unique_keys: bool = True
    dispatch_key: bool = True
    newarch: bool = False


@dataclass(frozen=True, slots=True)
class Splitter:
    """The splitting of one table's updates; valid as long as the table's plan. Build it with `of`.

        UPDATE (k=1 → k=2)   ──→   DELETE (k=1), INSERT (k=2)      both whole, with the update's commit timestamp

    A reader that applies partitions side by side must not see the new owner of a key before the old one has released
    it. Columns whose flags a message did not carry (canal-json) are compared when they belong to the handle.

    Without a split a transaction's rows of one table keep their order.  After a split the order is:

        classic    all its DELETEs, then its UPDATEs, then its INSERTs; each kind in the order it had (TiCDC's own sort
                   may change that order from 13 rows on)
        newarch    the DELETE in the update's place, the INSERTs of split updates at the end"""

    policy: SplitPolicy
    plan: TablePlan
    keys: tuple[tuple[int, ValueText], ...]
    """The columns whose change splits an update: their indexes, and the conversion of their values to text."""

    @classmethod
    def of(cls, policy: SplitPolicy, plan: TablePlan) -> "Splitter":
        """Return the splitter of the rows that `plan` routes."""
        keys = (
            (index, value_text(field.type))
            for index, field in enumerate(plan.fields)
            if field.handle or (field.flag or 0) & _KEYS
        )
        return cls(policy, plan, tuple(keys) if policy.unique_keys else ())

    def splits(self, update: Update) -> bool:
        """Return True if the update must be split."""
        self.plan.check(update)
        for index, text in self.keys:
            before, after = update.before[index], update.after[index]
            if before == after and type(before) is type(after) and not isinstance(before, float):
                continue
            try:
                if split_text(text, before) != split_text(text, after):
                    return True
            except (TypeError, AttributeError) as error:
                table = f"{update.schema}.{update.table}"
                where = f"column {update.fields[index].name!r} of {table}"
                refused = EncodeError(f"{where} cannot change from {redacted_value(before)} to {redacted_value(after)}")
                raise refused.at(table=table) from error
        if not self.policy.dispatch_key or self.plan.by in {PartitionDispatcher.TABLE, PartitionDispatcher.TS}:
            return False
        return self.plan.hash_of(update, update.before) != self.plan.hash_of(update, update.after)

    def transaction(self, rows: Sequence[RowChange]) -> tuple[RowChange, ...]:
        """Return the rows to send for one table's rows of one transaction, in order."""
        marked = [(row, isinstance(row, Update) and self.splits(row)) for row in rows]
        if not any(split for _, split in marked):
            return tuple(rows)
        kept = [halves(row) if split and isinstance(row, Update) else (row,) for row, split in marked]
        if not self.policy.newarch:
            return tuple(sorted((half for sent in kept for half in sent), key=lambda row: _ORDER[type(row)]))
        return (*(sent[0] for sent in kept), *(half for sent in kept for half in sent[1:]))


def halves(update: Update) -> tuple[Delete, Insert]:
    """Return the old row's DELETE and the new row's INSERT."""
    carried = {name: getattr(update, name) for name in update.__struct_fields__ if name not in {"before", "after"}}
    return Delete(before=update.before, **carried), Insert(after=update.after, **carried)


def split_text(text: ValueText, value: Value) -> bytes:
    """Return the text of a value as split rows are compared, NULL included."""
    return NULL_TEXT if value is None else text(value)
