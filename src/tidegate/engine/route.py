"""Where an event goes: its topic and its partition, bit for bit as TiCDC has it.

    Router ── plan(table, fields) ──→ TablePlan ── route(row, partitions) ──→ Route(topic, partition, key)

    by           hash                                                               key
    table        crc32(schema table)                                                schema.table
    index-value  crc32(schema table) ^ crc32(column value) ^ ... of the handle      the hash, decimal
                 or of the named unique index
    columns      crc32(schema table) ^ crc32(column value) ^ ... of the columns     the hash, decimal
    ts           the commit timestamp itself                                        the timestamp, decimal

The partition is hash mod partitions.  The CRC is that of IEEE; nothing stands between names and values; exclusive or
forgets the order of the columns.  The values are those of the new row, of a DELETE the old one, as `value_text` writes
them; names keep their case, those of columns are the table's own.

What the emitters make of NULL differs where `index` or `columns` names the columns: classic hashes the text `null`,
newarch leaves the column out.  The same row goes to another partition then.

A column that rows do not carry, because it is virtual, is left out when it belongs to an index, and refused when
`columns` names it.  Every other mismatch of rule and table is refused too (DispatcherFailed).

Source: tiflow, cdc/sink/dmlsink/mq/dispatcher and pkg/hash; recordings of the dispatchers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from tidegate.codec.encoding import EncodeOptions
from tidegate.engine.dispatch_rule import DispatchRule, PartitionDispatcher, topic_name, topic_pattern
from tidegate.engine.filter import TableFilter
from tidegate.engine.value_text import NULL_TEXT, ValueText, value_text
from tidegate.model.errors import DispatcherFailed, EncodeError
from tidegate.model.event import Field, RowChange, Value, Values, images
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName

_CATCH_ALL: Final = DispatchRule(matcher=("*.*",))


class Route(NamedTuple):
    """The place of a row; `key` is what Pulsar takes instead of a partition."""

    topic: str
    partition: int
    key: str


class DdlRoute(NamedTuple):
    """The places of a DDL: one topic, one or all partitions."""

    topic: str
    partitions: range


class _Part(NamedTuple):
    """A hashed column: its place in rows, the CRC of its name, to be continued by the value, and its texts."""

    at: int
    name: str
    name_crc: int
    text: ValueText


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How rows of one table with these columns are placed; holds until a DDL changes the table."""

    topic: str
    by: PartitionDispatcher
    fields: tuple[Field, ...]
    _name: TableName
    _seed: int
    _parts: tuple[_Part, ...]
    _skips_null: bool

    def route(self, row: RowChange, partitions: int) -> Route:
        """Return the place of a row among `partitions`."""
        if partitions < 1:
            raise DispatcherFailed(f"topic {self.topic} has {partitions} partitions; at least one is needed")
        if self.by is PartitionDispatcher.TS:
            hashed = self._commit_ts(row)
            return Route(self.topic, hashed % partitions, str(hashed))
        before, after = images(row)
        values = before if after is None else after
        assert values is not None
        hashed = self.hash_of(row, values)
        key = ".".join(self._name) if self.by is PartitionDispatcher.TABLE else str(hashed)
        return Route(self.topic, hashed % partitions, key)

    def hash_of(self, row: RowChange, values: Values) -> int:
        """Return the hash that an image of the row leads to; of a plan by timestamp one that all rows share."""
        self.check(row)
        hashed = self._seed
        for at, name, name_crc, text in self._parts:
            value = values[at]
            if value is None and self._skips_null:
                continue
            try:
                hashed ^= crc32(NULL_TEXT if value is None else text(value), name_crc)
            except (TypeError, AttributeError) as error:
                told = EncodeError(f"column {name!r} of {self._name} cannot be {value!a:.60}")
                raise told.at(table=str(self._name)) from error
        return hashed

    def hashes(self, columns: Callable[[int], Sequence[Value]], rows: int) -> list[int]:
        """`hash_of` for many images, `columns` of which gives the values of the column at a place."""
        found = [self._seed] * rows
        for at, _, name_crc, text in self._parts:
            null = 0 if self._skips_null else crc32(NULL_TEXT, name_crc)
            texts = (null if value is None else crc32(text(value), name_crc) for value in columns(at))
            found = [hashed ^ crc for hashed, crc in zip(found, texts, strict=True)]
        return found

    def check(self, row: RowChange) -> None:
        """Raise DispatcherFailed unless the plan was made for this table and these columns."""
        if row.fields is not self.fields and row.fields != self.fields:
            raise DispatcherFailed(f"a row of {self._name} has other columns than its dispatcher was made for")
        name = TableName(row.schema, row.table)
        if name != self._name and name.key != self._name.key:
            raise DispatcherFailed(f"a row of {name} met the dispatcher of {self._name}")

    def _commit_ts(self, row: RowChange) -> int:
        if row.commit_ts is None:
            raise DispatcherFailed(
                f"a row of {self._name} has no commit timestamp to be dispatched by (canal-json carries one with "
                "enable-tidb-extension); choose another partition rule"
            )
        return row.commit_ts


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
        """Return the router of these rules; FilterRuleInvalid and TopicExpressionInvalid for those that cannot be
        read."""
        for rule in rules:
            if rule.topic:
                topic_pattern(rule.topic, options.protocol)
        parsed = tuple(_Rule(_matcher(rule, case_sensitive=case_sensitive), rule) for rule in rules)
        return cls(default_topic, options.protocol, parsed, options.newarch, options.time_zone)

    def rule(self, schema: str, table: str) -> DispatchRule:
        """Return the first rule that takes the table."""
        return next((rule for takes, rule in self._rules if takes(schema, table)), _CATCH_ALL)

    def topic(self, schema: str, table: str) -> str:
        """Return the topic of a table; the default one for "", the table of DDLs that concern a schema."""
        pattern = self.rule(schema, table).topic if table else ""
        return topic_name(pattern, schema, table) if pattern else self.default_topic

    def plan(self, name: TableName, fields: tuple[Field, ...], info: TableInfo | None = None) -> TablePlan:
        """Return how rows with these columns are placed; `info` is needed by rules that name an index.

        DispatcherFailed for a rule that does not fit the table."""
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
        """Return the one partition of a table whose rows go by its name; None when they are spread."""
        if self.rule(*name).by is not PartitionDispatcher.TABLE:
            return None
        return crc32(_bytes(name.schema + name.table)) % partitions

    def ddl(self, schema: str, table: str, partitions: int, previous: TableName | None = None) -> DdlRoute:
        """Return the places of a DDL: canal-json has it once, in partition 0, Open Protocol in every partition."""
        topic = self.ddl_topic(schema, table, previous)
        return DdlRoute(topic, range(1 if self.protocol == "canal-json" else partitions))

    def ddl_topic(self, schema: str, table: str, previous: TableName | None = None) -> str:
        """Return the topic of a DDL, of a RENAME by the name that it takes away."""
        return self.topic(*(previous or (schema, table)))

    def watermark_topics(self, tables: Iterable[TableName]) -> tuple[str, ...]:
        """Return the topics, all partitions of which get the watermark: those of the tables and the default one."""
        return tuple(dict.fromkeys([*(self.topic(*name) for name in tables), self.default_topic]))


def _matcher(rule: DispatchRule, *, case_sensitive: bool) -> Callable[[str, str], bool]:
    if not rule.matcher:
        return _takes_nothing
    return TableFilter.parse(rule.matcher, case_sensitive=case_sensitive).matches


def _takes_nothing(_schema: str, _table: str) -> bool:
    return False


def _hashed_names(
    rule: DispatchRule, name: TableName, fields: tuple[Field, ...], info: TableInfo | None
) -> tuple[str, ...]:
    """The columns by which the rule goes."""
    match rule.by:
        case PartitionDispatcher.TABLE | PartitionDispatcher.TS:
            return ()
        case PartitionDispatcher.COLUMNS:
            return _configured(rule, name, fields, info)
        case PartitionDispatcher.INDEX_VALUE:
            return _indexed(rule, name, info) if rule.index else tuple(f.name for f in fields if f.handle)


def _indexed(rule: DispatchRule, name: TableName, info: TableInfo | None) -> tuple[str, ...]:
    """The columns of the named index that rows carry."""
    if info is None:
        raise DispatcherFailed(
            f"index {rule.index!r} of {name} is to dispatch rows, but the definition of the table is not known"
        )
    folded = lowered(rule.index)
    index = next((index for index in info.indexes if lowered(index.name) == folded), None)
    if index is None and folded == "primary":
        index = next((index for index in info.indexes if index.primary), None)
    if index is None:
        known = ", ".join(index.name for index in info.indexes if index.unique or index.primary) or "none"
        raise DispatcherFailed(f"index not found: {name} has no index {rule.index!r}; its unique ones: {known}")
    if not (index.unique or index.primary):
        raise DispatcherFailed(
            f"index is not unique: {rule.index!r} of {name}; an update of its columns could overtake itself in "
            "another partition; name a unique index"
        )
    columns = (info.column(column) for column in index.columns)
    return tuple(column.name for column in columns if column is not None and not column.virtual)


def _configured(
    rule: DispatchRule, name: TableName, fields: tuple[Field, ...], info: TableInfo | None
) -> tuple[str, ...]:
    """The configured columns in the table's spelling."""
    folded = {lowered(field.name): field.name for field in fields}
    for wanted in rule.columns:
        if lowered(wanted) in folded:
            continue
        column = info.column(wanted) if info is not None else None
        why = "is virtual, and rows do not carry it" if column is not None and column.virtual else "does not exist"
        raise DispatcherFailed(f"columns not found: {wanted!r} of {name} {why}; it has {', '.join(folded.values())}")
    return tuple(folded[lowered(wanted)] for wanted in rule.columns)


def _parts(fields: tuple[Field, ...], names: tuple[str, ...], time_zone: str) -> Iterator[_Part]:
    places = {field.name: at for at, field in enumerate(fields)}
    for name in names:
        if name not in places:
            raise DispatcherFailed(f"column {name!r} is to dispatch rows, but they do not carry it")
        at = places[name]
        yield _Part(at, name, crc32(_bytes(name)), value_text(fields[at].type, time_zone))


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
