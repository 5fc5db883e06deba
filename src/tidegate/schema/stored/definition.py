"""Definitions as TiDB stores them: the JSON of DBInfo and TableInfo, member by member.

    DB:2 -> Table:45    {"id":45,"name":{"O":"T","L":"t"},..,"cols":[..],"index_info":[..],..,"partition":null,..}

    StoredSchema      a database
    StoredTable       a table: StoredColumn (type: StoredType), StoredIndex, StoredPartition, StoredCheck,
                      StoredForeignKey, StoredTtl, StoredView, StoredSequence
    ElementState      the state of a column, index or other element while a DDL job changes it
    render_stored     the JSON again, byte for byte: members in TiDB's order, < > & escaped as Go does

Members that Tidegate does not use (placement, statistics) are kept unparsed.  Members that TiDB leaves out when
empty are UNSET when absent; members that this version of the format does not have are lost.

    key                            flag bit of column types
    PRIMARY KEY (a, b)             PRIMARY on a and b
    UNIQUE (a)                     UNIQUE on a
    UNIQUE (a, b), KEY (a, b)      MULTIPLE on a

`table_layout` gives what kv/ needs to read and write the keys and rows of a table, or of one partition and its local
indexes.  All columns and indexes take part, whatever their state: a running DDL writes rows with columns that are not
public yet.

Source: TiDB pkg/meta/model (TableInfo, ColumnInfo, IndexInfo, PartitionInfo, DBInfo), pkg/parser/mysql/type.go,
pkg/ddl/index.go (AddIndexColumnFlag, DropIndexColumnFlag), pkg/table/tables; recorded definitions.
"""

from enum import IntEnum
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tidegate.expr.cast import Target
from tidegate.model.errors import SchemaError
from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.layout import ColumnLayout, IndexLayout, IndexPart, TableLayout


class ElementState(IntEnum):
    """The state of one schema element, numbered as in TiDB's job and table JSON (`schema_state`, `state`)."""

    NONE = 0
    DELETE_ONLY = 1
    WRITE_ONLY = 2
    WRITE_REORG = 3
    DELETE_REORG = 4
    PUBLIC = 5
    REPLICA_ONLY = 6
    GLOBAL_TXN_ONLY = 7

    @property
    def label(self) -> str:
        """`write-only`: the name in lower case, as the documents write it."""
        return self.name.lower().replace("_", "-")


NOT_NULL: Final = 1
PRIMARY: Final = 2
UNIQUE: Final = 4
MULTIPLE: Final = 8
UNSIGNED: Final = 32
ZEROFILL: Final = 64
BINARY: Final = 128
AUTO_INCREMENT: Final = 512
NO_DEFAULT: Final = 4096
ON_UPDATE_NOW: Final = 8192
PREVENT_NULL: Final = 1 << 20
"""New NULLs are refused while stored rows are checked."""
KEYS: Final = PRIMARY | UNIQUE | MULTIPLE


_T = TypeVar("_T")
_NULL: Final = Raw(b"null")


class Name(msgspec.Struct, frozen=True):
    """A name as written (O) and in lower case (L), by which names are compared."""

    original: str = msgspec.field(name="O", default="")
    lower: str = msgspec.field(name="L", default="")

    @classmethod
    def of(cls, name: str) -> "Name":
        """Return both forms of a name."""
        return cls(name, lowered(name))


class StoredType(msgspec.Struct, frozen=True, rename="pascal"):
    """A type: code, flag bits (NotNull 1, PriKey 2, Unsigned 32, Zerofill 64, AutoIncrement 512, ..), length."""

    tp: int
    flag: int = 0
    flen: int = -1
    decimal: int = -1
    charset: str = ""
    collate: str = ""
    elems: list[str] | None = None
    elems_is_binary_lit: list[bool] | None = None
    array: bool = False


class ChangeState(msgspec.Struct, frozen=True):
    """The position of the column that a change of type reads from or writes to."""

    relative_col_offset: int = 0


class StoredColumn(msgspec.Struct, frozen=True):
    """A column, of any state. Defaults are texts; those of BIT are bytes in base64 in the `_bit` members."""

    id: int
    name: Name
    offset: int = 0
    origin_default: str | int | float | None = None
    origin_default_bit: bytes | None = None
    default: str | int | float | None = None
    default_bit: bytes | None = None
    default_is_expr: bool = False
    generated_expr_string: str = ""
    generated_stored: bool = False
    dependences: dict[str, Raw] | None = None
    type: StoredType = StoredType(0)
    changing_type: StoredType | UnsetType = UNSET
    state: int = ElementState.PUBLIC
    comment: str = ""
    hidden: bool = False
    change_state_info: ChangeState | None = None
    version: int = 2


class StoredPart(msgspec.Struct, frozen=True):
    """A column of an index by name and offset; `length` -1 takes all of it."""

    name: Name
    offset: int = 0
    length: int = -1


class StoredIndex(msgspec.Struct, frozen=True):
    """An index, of any state."""

    id: int
    idx_name: Name
    tbl_name: Name = Name()
    idx_cols: list[StoredPart] = []
    state: int = ElementState.PUBLIC
    backfill_state: int = 0
    comment: str = ""
    index_type: int = 1
    is_unique: bool = False
    is_primary: bool = False
    is_invisible: bool = False
    is_global: bool = False
    mv_index: bool = False
    vector_index: Raw | UnsetType = UNSET
    inverted_index: Raw | UnsetType = UNSET
    full_text_index: Raw | UnsetType = UNSET
    condition_expr_string: str | UnsetType = UNSET
    affect_column: Raw | UnsetType = UNSET
    global_index_version: int | UnsetType = UNSET

    @property
    def is_columnar(self) -> bool:
        """True for a vector, inverted or full-text index, which has no entries in TiKV."""
        kinds = (self.vector_index, self.inverted_index, self.full_text_index)
        return any(isinstance(kind, Raw) and bytes(kind) != b"null" for kind in kinds)


class StoredPartitionDef(msgspec.Struct, frozen=True):
    """A partition; `id` is that of its keys."""

    id: int
    name: Name
    less_than: list[str] | None = None
    in_values: list[list[str]] | None = None
    policy_ref_info: Raw = _NULL
    comment: str | UnsetType = UNSET


PARTITION_METHODS: Final = {1: "RANGE", 2: "HASH", 3: "LIST", 4: "KEY"}


class StoredPartition(msgspec.Struct, frozen=True):
    """The partitioning of a table; `type` is one of PARTITION_METHODS, or 5 for system time."""

    type: int
    expr: str = ""
    columns: list[Name] | None = None
    enable: bool = True
    is_empty_columns: bool = False
    definitions: list[StoredPartitionDef] | None = None
    adding_definitions: list[StoredPartitionDef] | None = None
    dropping_definitions: list[StoredPartitionDef] | None = None
    new_partition_ids: list[int] | UnsetType = UNSET
    original_partition_ids_order: list[int] | UnsetType = UNSET
    states: Raw = _NULL
    num: int = 0
    ddl_action: int | UnsetType = UNSET
    ddl_state: int = 0
    new_table_id: int | UnsetType = UNSET
    ddl_type: int | UnsetType = UNSET
    ddl_expr: str | UnsetType = UNSET
    ddl_columns: list[Name] | UnsetType = UNSET


class StoredForeignKey(msgspec.Struct, frozen=True):
    """A foreign key in `fk_info`; actions 0 none, 1 restrict, 2 cascade, 3 set null, 4 no action, 5 set default."""

    id: int
    fk_name: Name
    ref_schema: Name = Name()
    ref_table: Name = Name()
    ref_cols: list[Name] = []
    cols: list[Name] = []
    on_delete: int = 0
    on_update: int = 0
    state: int = 0
    version: int = 1


class StoredCheck(msgspec.Struct, frozen=True):
    """A check constraint in `constraint_info`."""

    id: int
    constraint_name: Name
    tbl_name: Name = Name()
    constraint_cols: list[Name] | None = None
    enforced: bool = True
    in_column: bool = False
    expr_string: str = ""
    state: int = 0


class StoredTtl(msgspec.Struct, frozen=True):
    """`ttl_info`: rows expire at `column` + the interval; `interval_time_unit` is TiDB's number of a unit."""

    column: Name
    interval_expr: str
    interval_time_unit: int
    enable: bool = True
    job_interval: str = "24h"


class StoredSequence(msgspec.Struct, frozen=True):
    """`sequence`."""

    sequence_start: int = 1
    sequence_cache: bool = True
    sequence_cycle: bool = False
    sequence_min_value: int = 1
    sequence_max_value: int = 9223372036854775806
    sequence_increment: int = 1
    sequence_cache_value: int = 1000
    sequence_comment: str = ""


class ViewDefiner(msgspec.Struct, frozen=True, rename="pascal"):
    """The definer of a view; the embedded TiDB leaves it empty."""

    username: str = ""
    hostname: str = ""
    current_user: bool = True
    auth_username: str = ""
    auth_hostname: str = ""
    auth_plugin: str = ""


class StoredView(msgspec.Struct, frozen=True):
    """`view`: the SELECT with all names written out."""

    view_algorithm: int = 0
    view_definer: ViewDefiner | None = ViewDefiner()
    view_security: int = 0
    view_select: str = ""
    view_checkoption: int = 1
    view_cols: list[Name] | None = None


class StoredTable(msgspec.Struct, frozen=True):
    """A table with all its elements, whatever their state."""

    id: int
    name: Name
    charset: str = "utf8mb4"
    collate: str = "utf8mb4_bin"
    cols: list[StoredColumn] | None = None
    index_info: list[StoredIndex] | None = None
    constraint_info: list[StoredCheck] | None = None
    fk_info: list[StoredForeignKey] | None = None
    state: int = ElementState.PUBLIC
    pk_is_handle: bool = False
    is_common_handle: bool = False
    common_handle_version: int = 0
    comment: str = ""
    auto_inc_id: int = 0
    auto_id_cache: int = 0
    auto_rand_id: int = 0
    max_col_id: int = 0
    max_idx_id: int = 0
    max_fk_id: int = 0
    max_cst_id: int = 0
    update_timestamp: int = 0
    old_schema_id: int | UnsetType = UNSET
    shard_row_id_bits: int = msgspec.field(name="ShardRowIDBits", default=0)
    max_shard_row_id_bits: int = 0
    auto_random_bits: int = 0
    auto_random_range_bits: int = 0
    pre_split_regions: int = 0
    partition: StoredPartition | None = None
    compression: str = ""
    view: StoredView | None = None
    sequence: StoredSequence | None = None
    lock: Raw = msgspec.field(name="Lock", default=_NULL)
    version: int = 5
    tiflash_replica: Raw = _NULL
    is_columnar: bool = False
    temp_table_type: int = 0
    cache_table_status: int = 0
    policy_ref_info: Raw = _NULL
    stats_options: Raw = _NULL
    exchange_partition_info: Raw = _NULL
    ttl_info: StoredTtl | None = None
    is_active_active: bool | UnsetType = UNSET
    softdelete_info: Raw | UnsetType = UNSET
    affinity: Raw | UnsetType = UNSET
    mode: int | UnsetType = UNSET
    revision: int = 0

    @property
    def is_view(self) -> bool:
        """True for a view."""
        return self.view is not None

    @property
    def is_sequence(self) -> bool:
        """True for a sequence."""
        return self.sequence is not None

    @property
    def physical_ids(self) -> tuple[int, ...]:
        """The ids under which rows are stored: the partitions', else the table's own."""
        if self.partition is None or not self.partition.enable:
            return (self.id,)
        return tuple(definition.id for definition in self.partition.definitions or ())


class StoredSchema(msgspec.Struct, frozen=True):
    """A database."""

    id: int
    name: Name = msgspec.field(name="db_name")
    charset: str = "utf8mb4"
    collate: str = "utf8mb4_bin"
    deprecated: Raw = msgspec.field(name="Deprecated", default=Raw(b"{}"))
    state: int = ElementState.PUBLIC
    policy_ref_info: Raw = _NULL


def parse_stored(data: bytes | str, kind: type[_T]) -> _T:
    """Return the definition in a JSON text; SchemaError for an invalid one."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SchemaError(f"no {kind.__name__} of TiDB: {error}") from error


_GO_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def render_stored(definition: msgspec.Struct) -> bytes:
    """Return the JSON of a definition, byte for byte as Go writes it."""
    text = msgspec.json.encode(definition)
    for plain, escaped in _GO_ESCAPES:
        text = text.replace(plain, escaped)
    return text


_CODES: Final = {int(code): code for code in MysqlType}
_UNWRITTEN: Final = frozenset({ElementState.NONE, ElementState.DELETE_ONLY, ElementState.DELETE_REORG})


def column_type(stored: StoredType) -> ColumnType:
    """Return the type of a stored column; SchemaError for a code that MySQL does not have."""
    code = _CODES.get(stored.tp)
    if code is None:
        raise SchemaError(f"type code {stored.tp} is none of MySQL")
    return ColumnType(
        code,
        stored.flen,
        stored.decimal,
        unsigned=bool(stored.flag & UNSIGNED),
        zerofill=bool(stored.flag & ZEROFILL),
        charset=stored.charset,
        elems=None if stored.elems is None else tuple(stored.elems),
    )


def target_of(column: StoredColumn) -> Target:
    """Return the assignment target of a stored column."""
    flags = column.type.flag & (NOT_NULL | PREVENT_NULL)
    return Target(column.name.original, column_type(column.type), column.type.collate, bool(flags))


def table_layout(table: StoredTable, physical_id: int | None = None, *, new_collation: bool = True) -> TableLayout:
    """Return the layout of a table, or of its partition with that id; SchemaError for a definition that contradicts
    itself."""
    columns = table.cols or []
    int_handle, common_handle = None, None
    if table.pk_is_handle:
        int_handle = next((column.id for column in columns if column.type.flag & PRIMARY), None)
    elif table.is_common_handle:
        primary = next((index for index in table.index_info or [] if index.is_primary), None)
        common_handle = None if primary is None else _index(table, primary)
    if (table.pk_is_handle and int_handle is None) or (table.is_common_handle and common_handle is None):
        raise SchemaError(f"table {table.name.original} (id {table.id}) has no column for its handle")
    return TableLayout(
        id=table.id if physical_id is None else physical_id,
        columns=tuple(column_layout(column) for column in columns),
        indexes=tuple(_index(table, index) for index in table.index_info or []),
        int_handle=int_handle,
        common_handle=common_handle,
        common_handle_version=table.common_handle_version,
        new_collation=new_collation,
    )


def column_layout(column: StoredColumn) -> ColumnLayout:
    """Return the layout of a column."""
    defaults = (column.default, column.default_bit, column.origin_default, column.origin_default_bit)
    return ColumnLayout(
        id=column.id,
        type=column_type(column.type),
        collation=column.type.collate,
        primary=bool(column.type.flag & PRIMARY),
        virtual=bool(column.generated_expr_string) and not column.generated_stored,
        keeps_null=any(default is not None for default in defaults),
        writable=column.state not in _UNWRITTEN,
    )


def _index(table: StoredTable, index: StoredIndex) -> IndexLayout:
    columns = table.cols or []
    if not all(0 <= part.offset < len(columns) for part in index.idx_cols):
        raise SchemaError(f"index {index.idx_name.original} of table {table.name.original} names a missing column")
    parts = tuple(IndexPart(columns[part.offset].id, part.length) for part in index.idx_cols)
    return IndexLayout(index.id, parts, index.is_unique, index.is_global)
