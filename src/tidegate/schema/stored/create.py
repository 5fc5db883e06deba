"""Stored definitions as SQL: SHOW CREATE TABLE, VIEW, SEQUENCE, DATABASE.

    CREATE TABLE `t` (
      `id` bigint(20) NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */,        columns that are public and not hidden
      `v` varchar(20) DEFAULT 'x' COMMENT 'y',
      PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,             an integer handle has no index of its own
      KEY `e` ((`v` + 1))                                                the expression behind a hidden column
    ) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin          options as comments that only TiDB reads
    PARTITION BY RANGE (`id`)                                            HASH (`id`) PARTITIONS 4 of p0 to p3
    (PARTITION `p0` VALUES LESS THAN (10))

The printed SQL parses to the same definition.  To ensure this, backslashes in comments and defaults are doubled, unlike
in TiDB.  A binary default that is not UTF-8 is already lost in TiDB's own JSON.

Source: TiDB pkg/executor/show.go (ConstructResultOfShowCreateTable), pkg/ddl (AppendPartitionInfo); documentation,
"SHOW CREATE TABLE", "Comment Syntax".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

import msgspec
from msgspec import UNSET

from tidegate.expr.tokens import quote_name
from tidegate.model.mysql import NAMED, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.schema.columns import default_collation, render_type
from tidegate.schema.stored.definition import (
    AUTO_INCREMENT,
    NO_DEFAULT,
    NOT_NULL,
    ON_UPDATE_NOW,
    PARTITION_METHODS,
    PRIMARY,
    ZEROFILL,
    ElementState,
    StoredColumn,
    StoredForeignKey,
    StoredIndex,
    StoredPartition,
    StoredPartitionDef,
    StoredSchema,
    StoredTable,
    column_type,
)

_TEXTS: Final = STRINGS | NAMED
_ZERO_TIMES: Final = ("0000-00-00 00:00:00", "")
_AUTO_RANDOM_RANGE: Final = 64
_TEMPORARY: Final = {1: "GLOBAL TEMPORARY TABLE", 2: "TEMPORARY TABLE"}
_CACHED: Final = 1
_TTL_UNITS: Final = ("MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_ESCAPES: Final = str.maketrans({"\0": "\\0", "'": "''", "\n": "\\n", "\r": "\\r", "\\": "\\\\"})
_COUNTED: Final = frozenset({"HASH", "KEY"})
_FK_ACTIONS: Final = {1: "RESTRICT", 2: "CASCADE", 3: "SET NULL", 4: "NO ACTION", 5: "SET DEFAULT"}


@dataclass(frozen=True, slots=True)
class NextIds:
    """The next values of a table's counters; they are printed where above 1."""

    increment: int = 0
    random: int = 0


def escape(text: str) -> str:
    """Return a text escaped for single quotes."""
    return text.translate(_ESCAPES)


def render_full_type(column: StoredColumn) -> str:
    """Return the type with `unsigned` and `zerofill`: "int(6) unsigned zerofill"."""
    kind = column_type(column.type)
    return render_type(kind) + (" zerofill" if column.type.flag & ZEROFILL and kind.code is not T.YEAR else "")


def render_create_schema(schema: StoredSchema) -> str:
    """Return the text of SHOW CREATE DATABASE."""
    head = f"CREATE DATABASE {quote_name(schema.name.original)}"
    collate = "" if schema.collate in ("", default_collation(schema.charset)) else f" COLLATE {schema.collate}"
    return f"{head} /*!40100 DEFAULT CHARACTER SET {schema.charset}{collate} */"


def render_create_table(
    table: StoredTable, zone: tzinfo = UTC, ids: NextIds | None = None, schema: str | None = None
) -> str:
    """Return SHOW CREATE TABLE, VIEW or SEQUENCE. `zone` is the session's, for defaults of TIMESTAMP; `schema` is the
    table's database, which is omitted from references to its tables."""
    if table.is_view:
        return _render_view(table)
    if table.is_sequence:
        return _render_sequence(table)
    parts = [*_columns(table, zone), *_keys(table), *_constraints(table, schema)]
    kind = _TEMPORARY.get(table.temp_table_type, "TABLE")
    body = ",\n".join(f"  {part}" for part in parts)
    return f"CREATE {kind} {quote_name(table.name.original)} (\n{body}\n){_options(table, ids or NextIds())}"


def render_shape(table: StoredTable) -> tuple[list[str], list[str], str]:
    """Return columns, keys and partitioning: the parts that CREATE TABLE .. LIKE copies."""
    return list(_columns(table, UTC)), list(_keys(table)), _partitioning(table.partition)


# --- columns ---


def _columns(table: StoredTable, zone: tzinfo) -> Iterator[str]:
    for column in table.cols or []:
        if column.state == ElementState.PUBLIC and not column.hidden:
            yield _column(table, column, zone)


def _column(table: StoredTable, column: StoredColumn, zone: tzinfo) -> str:
    flag = column.type.flag
    words = [quote_name(column.name.original), render_full_type(column), *_collation(table, column)]
    if column.generated_expr_string:
        words.append(f"GENERATED ALWAYS AS ({column.generated_expr_string})")
        words.append("STORED" if column.generated_stored else "VIRTUAL")
    if flag & NOT_NULL:
        words.append("NOT NULL")
    if flag & AUTO_INCREMENT:
        words.append("AUTO_INCREMENT")
    else:
        words += _default(column, zone)
        if flag & ON_UPDATE_NOW:
            words.append(f"ON UPDATE CURRENT_TIMESTAMP{_fsp(column)}")
    if table.auto_random_bits and flag & PRIMARY and table.pk_is_handle:
        range_bits = table.auto_random_range_bits
        sizes = f"{table.auto_random_bits}" + (f", {range_bits}" if range_bits not in (0, _AUTO_RANDOM_RANGE) else "")
        words.append(f"/*T![auto_rand] AUTO_RANDOM({sizes}) */")
    if column.comment:
        words.append(f"COMMENT '{escape(column.comment)}'")
    return " ".join(words)


def _collation(table: StoredTable, column: StoredColumn) -> Iterator[str]:
    kind = column.type
    if kind.tp not in _TEXTS or kind.charset == "binary":
        return
    if kind.charset != table.charset:
        yield f"CHARACTER SET {kind.charset}"
    if kind.collate != table.collate or kind.collate != default_collation(kind.charset):
        yield f"COLLATE {kind.collate}"


def _fsp(column: StoredColumn) -> str:
    return f"({column.type.decimal})" if column.type.decimal > 0 else ""


def _default(column: StoredColumn, zone: tzinfo) -> Iterator[str]:
    flag = column.type.flag
    if flag & NO_DEFAULT or column.generated_expr_string:
        return
    if column.default is None and column.default_bit is None:
        if not flag & NOT_NULL:
            yield "NULL DEFAULT NULL" if column.type.tp == T.TIMESTAMP else "DEFAULT NULL"
        return
    text = shown_default(column, zone)
    if column.default_is_expr:
        yield f"DEFAULT ({text})"
    elif text.startswith("CURRENT_TIMESTAMP"):
        yield f"DEFAULT {text}"
    elif text == "CURRENT_DATE":
        yield f"DEFAULT ({text})"
    elif column.type.tp == T.BIT:
        yield f"DEFAULT {text}"
    else:
        yield f"DEFAULT '{escape(text)}'"


def shown_default(column: StoredColumn, zone: tzinfo) -> str:
    """Return the default as SHOW prints it: times in `zone`, BIT as b'101', CURRENT_TIMESTAMP with its decimals."""
    if column.type.tp == T.BIT and column.default_bit is not None:
        return f"b'{int.from_bytes(column.default_bit, 'big'):b}'"
    text = str(column.default)
    if column.default_is_expr or column.type.tp not in (T.TIMESTAMP, T.DATETIME):
        return text
    if text == "CURRENT_TIMESTAMP":
        return text + _fsp(column)
    if column.type.tp == T.TIMESTAMP and text.partition(".")[0] not in _ZERO_TIMES and zone is not UTC:
        return _moved(text, zone)
    return text


def _moved(text: str, zone: tzinfo) -> str:
    """Convert a timestamp from UTC to `zone`."""
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC).astimezone(zone)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{text.partition('.')[2]}" if "." in text else "")


# --- keys and constraints ---


def _keys(table: StoredTable) -> Iterator[str]:
    columns = [column for column in table.cols or [] if column.state == ElementState.PUBLIC]
    handle = next((column for column in columns if column.type.flag & PRIMARY), None) if table.pk_is_handle else None
    if handle is not None:
        yield f"PRIMARY KEY ({quote_name(handle.name.original)}) /*T![clustered_index] CLUSTERED */"
    for index in table.index_info or []:
        if index.state == ElementState.PUBLIC:
            yield _key(table, index)


def _key(table: StoredTable, index: StoredIndex) -> str:
    parts = []
    for part in index.idx_cols:
        column = (table.cols or [])[part.offset]
        shown = f"({column.generated_expr_string})" if column.hidden else quote_name(part.name.original)
        parts.append(shown + (f"({part.length})" if part.length >= 0 else ""))
    kind = "UNIQUE KEY" if index.is_unique else "KEY"
    words = ["PRIMARY KEY" if index.is_primary else f"{kind} {quote_name(index.idx_name.original)}"]
    words.append(f"({','.join(parts)})")
    if index.is_invisible:
        words.append("/*!80000 INVISIBLE */")
    if index.comment:
        words.append(f"COMMENT '{escape(index.comment)}'")
    if index.is_primary:
        words.append(f"/*T![clustered_index] {'CLUSTERED' if table.is_common_handle else 'NONCLUSTERED'} */")
    if index.is_global:
        words.append("/*T![global_index] GLOBAL */")
    return " ".join(words)


def _constraints(table: StoredTable, schema: str | None) -> Iterator[str]:
    for key in table.fk_info or []:
        if key.state == ElementState.PUBLIC:
            yield _foreign_key(key, schema)
    for check in table.constraint_info or []:
        if check.state == ElementState.PUBLIC:
            tail = "" if check.enforced else " /*!80016 NOT ENFORCED */"
            yield f"CONSTRAINT {quote_name(check.constraint_name.original)} CHECK (({check.expr_string})){tail}"


def _foreign_key(key: StoredForeignKey, schema: str | None) -> str:
    own, referenced = (",".join(quote_name(name.original) for name in names) for names in (key.cols, key.ref_cols))
    same = schema is not None and lowered(key.ref_schema.original) == lowered(schema)
    target = ("" if same else f"{quote_name(key.ref_schema.original)}.") + quote_name(key.ref_table.original)
    text = f"CONSTRAINT {quote_name(key.fk_name.original)} FOREIGN KEY ({own}) REFERENCES {target} ({referenced})"
    for event, action in (("DELETE", key.on_delete), ("UPDATE", key.on_update)):
        text += f" ON {event} {_FK_ACTIONS[action]}" if action in _FK_ACTIONS else ""
    return text


# --- options ---


def _options(table: StoredTable, ids: NextIds) -> str:
    words = [f"ENGINE=InnoDB DEFAULT CHARSET={table.charset}" + (f" COLLATE={table.collate}" if table.collate else "")]
    if table.compression:
        words.append(f"COMPRESSION='{table.compression}'")
    if ids.increment > 1:
        words.append(f"AUTO_INCREMENT={ids.increment}")
    if table.auto_id_cache:
        words.append(f"/*T![auto_id_cache] AUTO_ID_CACHE={table.auto_id_cache} */")
    if ids.random > 1:
        words.append(f"/*T![auto_rand_base] AUTO_RANDOM_BASE={ids.random} */")
    if table.shard_row_id_bits:
        split = f"PRE_SPLIT_REGIONS={table.pre_split_regions} " if table.pre_split_regions else ""
        words.append(f"/*T! SHARD_ROW_ID_BITS={table.shard_row_id_bits} {split}*/")
    if table.comment:
        words.append(f"COMMENT='{escape(table.comment)}'")
    if _TEMPORARY.get(table.temp_table_type, "").startswith("GLOBAL"):
        words.append("ON COMMIT DELETE ROWS")
    if table.cache_table_status == _CACHED:
        words.append("/* CACHED ON */")
    words += _later_options(table)
    return " " + " ".join(words) + _partitioning(table.partition)


def _partitioning(partition: StoredPartition | None) -> str:
    """Return the clause on a new line; "" for a table that is not partitioned."""
    if partition is None or not partition.enable or partition.type not in PARTITION_METHODS:
        return ""
    method = PARTITION_METHODS[partition.type]
    definitions = partition.definitions or []
    columns = ",".join(quote_name(name.original) for name in partition.columns or ())
    plain = all(_is_plain(definition, index) for index, definition in enumerate(definitions))
    if method in _COUNTED and plain:
        inside = columns if method == "KEY" else partition.expr
        return f"\nPARTITION BY {method} ({inside}) PARTITIONS {len(definitions)}"
    by = (
        f"{method} COLUMNS({columns})"
        if columns and method not in _COUNTED
        else f"{method} ({partition.expr}{columns})"
    )
    listed = ",\n ".join(_definition(method, definition) for definition in definitions)
    return f"\nPARTITION BY {by}\n({listed})"


def _definition(method: str, definition: StoredPartitionDef) -> str:
    text = f"PARTITION {quote_name(definition.name.original)}"
    values = definition.in_values or []
    if method == "RANGE":
        text += f" VALUES LESS THAN ({','.join(definition.less_than or ())})"
    elif method == "LIST" and values in ([], [["DEFAULT"]]):
        text += " DEFAULT"
    elif method == "LIST":
        listed = (f"({','.join(value)})" if len(value) > 1 else ",".join(value) for value in values)
        text += f" VALUES IN ({','.join(listed)})"
    if definition.comment is not UNSET and definition.comment:
        text += f" COMMENT '{escape(definition.comment)}'"
    return text


def _is_plain(definition: StoredPartitionDef, index: int) -> bool:
    return definition.name.original == f"p{index}" and not definition.comment


def _later_options(table: StoredTable) -> Iterator[str]:
    policy = msgspec.json.decode(table.policy_ref_info)
    if policy is not None:
        yield f"/*T![placement] PLACEMENT POLICY={quote_name(policy['name']['O'])} */"
    ttl = table.ttl_info
    if ttl is not None:
        unit = _TTL_UNITS[ttl.interval_time_unit - 1]
        yield f"/*T![ttl] TTL={quote_name(ttl.column.original)} + INTERVAL {ttl.interval_expr} {unit} */"
        yield f"/*T![ttl] TTL_ENABLE='{'ON' if ttl.enable else 'OFF'}' */"
        yield f"/*T![ttl] TTL_JOB_INTERVAL='{ttl.job_interval}' */"


def _render_view(table: StoredTable) -> str:
    view = table.view
    assert view is not None
    names: Mapping[str, None] = dict.fromkeys(quote_name(name.original) for name in view.view_cols or [])
    shown = ", ".join(names or [quote_name(column.name.original) for column in table.cols or []])
    head = "CREATE ALGORITHM=UNDEFINED DEFINER=CURRENT_USER SQL SECURITY DEFINER VIEW"
    return f"{head} {quote_name(table.name.original)} ({shown}) AS {view.view_select}"


def _render_sequence(table: StoredTable) -> str:
    sequence = table.sequence
    assert sequence is not None
    cache = f"cache {sequence.sequence_cache_value}" if sequence.sequence_cache else "nocache"
    return (
        f"CREATE SEQUENCE {quote_name(table.name.original)} start with {sequence.sequence_start} "
        f"minvalue {sequence.sequence_min_value} maxvalue {sequence.sequence_max_value} "
        f"increment by {sequence.sequence_increment} {cache} {'cycle' if sequence.sequence_cycle else 'nocycle'} "
        f"ENGINE=InnoDB"
    )
