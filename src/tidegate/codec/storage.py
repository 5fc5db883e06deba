r"""The directory of a storage sink: names of its files, and the small files beside the data.

    metadata                                                        {"checkpoint-ts":N}
    shop/meta/schema_451_3668434463.json                            a DDL of the database, commit_ts 451
    shop/orders/meta/schema_451_0004192708.json                     the table from 451 on; its checksum has ten digits
    shop/orders/451/2026-08-20/CDC00000000000000000001.csv          rows; files count from 1 in every directory
    shop/orders/451/2026-08-20/meta/CDC.index                       "CDC00000000000000000001.csv\n": the newest file
    shop/orders/451/105/2026-08-20/CDC00000000000000000001.csv      rows of the physical partition 105

    shop/orders/451/2026-08-20/CDC_<writer>_00000000000000000001.csv          new architecture: one of several writers
    shop/orders/451/2026-08-20/meta/CDC_<writer>.index                        of a table, each with numbers of its own
    105/451/2026-08-20/CDC00000000000000000001.csv                            use-table-id-as-path

The date is that on which a file was written, not that of its commits.  Names of schemas and tables are used
unescaped, so some that TiDB allows cannot be written: a slash, `..`, control characters, more than 255 bytes, and a
schema named like the file `metadata`.

A schema file (`SchemaFile`) describes a table from a version on, and the DDL that led to it.  For formats whose rows
carry no types, it is the definition of the table (`table_of_file`).

Source: TiCDC's storage sink document; ticdc, pkg/cloudstorage (path_key, generator, schema_file).
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple
from zlib import crc32

from tidegate.codec.canal import NAMES
from tidegate.model.errors import DecodeError, SinkRefused
from tidegate.model.mysql import BLOBS, CHARS, FLOATS, INTEGERS, NAMED, STRINGS, default_length, sql_name
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits, lowered, qualified
from tidegate.model.table import ColumnInfo, ColumnType, IndexInfo, TableInfo, TableName

METADATA: Final = "metadata"
CHECKSUM_DIGITS: Final = 10
DATE_LENGTHS: Final = {"none": 0, "year": 4, "month": 7, "day": 10}
"""The length of the prefix of 2026-08-20 that names a directory, by date-separator."""
_SCHEMA_NAME: Final = re.compile(r"schema_(\d+)_(\d{10})\.json")
_DATA_NAME: Final = re.compile(r"CDC(?:_(.+)_)?([0-9]{1,20})(\.csv|\.json)")
_INDEX_NAME: Final = re.compile(r"CDC(?:_(.+))?\.index")
_CONTROLS: Final = frozenset(map(chr, (*range(32), 127)))
_NAME_BYTES: Final = 255
"""What file systems take; a name of TiDB has 64 characters of up to 4 bytes."""
_CHECKPOINT: Final = re.compile(rb'\{"checkpoint-ts":(\d+)\}')


@dataclass(frozen=True, slots=True)
class FileNames:
    """Names of data files: CDC, a number of `digits` digits, the extension with its dot."""

    extension: str
    digits: int = 20

    def data(self, number: int) -> str:
        """Return the name of a data file."""
        return f"CDC{number:0{self.digits}d}{self.extension}"

    def number(self, name: str) -> int:
        """Return the number of a data file; 0 for another file."""
        digits = name.removeprefix("CDC").removesuffix(self.extension)
        is_data = name.startswith("CDC") and name.endswith(self.extension) and all_digits(digits)
        return int(digits) if is_data else 0

    def index(self, number: int) -> bytes:
        """Return the content of an index file whose newest data file has this number."""
        return f"{self.data(number)}\n".encode()

    def indexed(self, body: bytes) -> int:
        """Return the number that an index file names; 0 for a file that names none."""
        return self.number(body.decode("utf-8", "replace").strip())


def date_part(day: date, separator: str) -> str:
    """Return the directory of a day; "" without a date-separator."""
    return day.isoformat()[: DATE_LENGTHS[separator]]


def version_directory(name: TableName, version: int) -> str:
    """Return the directory of all rows that were written with one version of a table."""
    return f"{_directory(*name)}/{version}"


def data_directory(version: str, date: str, partition_id: int | None = None) -> str:
    """Return the directory of data files below that of a version; `partition_id` where partitions have their own."""
    return "/".join([version, *([] if partition_id is None else [str(partition_id)]), *([date] if date else [])])


def index_path(directory: str) -> str:
    """Return the index file of a directory of data files."""
    return f"{directory}/meta/CDC.index"


def schema_directory(schema: str, table: str = "") -> str:
    """Return the directory of schema files of a table, or of a database."""
    return f"{_directory(*([schema, table] if table else [schema]))}/meta"


def schema_name(version: int, checksum: int) -> str:
    """Return the name of a schema file."""
    return f"schema_{version}_{checksum:0{CHECKSUM_DIGITS}d}.json"


def parse_schema_name(name: str) -> tuple[int, int] | None:
    """Return the version and checksum in a schema file's name; None for another file."""
    match = _SCHEMA_NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


class DataPath(NamedTuple):
    """A data file: its directory, its writer ("" where a table has one), its number there, its extension."""

    directory: str
    writer: str
    number: int
    extension: str

    @property
    def stream(self) -> str:
        """The files that are numbered together: one writer's in one directory."""
        return stream_name(self.directory, self.writer)


def stream_name(directory: str, writer: str) -> str:
    """Return the name of the files that a writer numbers in a directory."""
    return f"{directory}/CDC_{writer}" if writer else directory


def parse_data_path(path: str) -> DataPath | None:
    """Return the parts of a data file's path; None for another file."""
    directory, _, name = path.rpartition("/")
    match = _DATA_NAME.fullmatch(name)
    return None if match is None else DataPath(directory, match[1] or "", int(match[2]), match[3])


def parse_index_path(path: str) -> str | None:
    """Return the stream of an index file; None for another file."""
    directory, _, name = path.rpartition("/")
    match = _INDEX_NAME.fullmatch(name)
    if match is None or not directory.endswith("/meta"):
        return None
    return stream_name(directory.removesuffix("/meta"), match[1] or "")


def parse_index(body: bytes) -> int:
    """Return the number of the file that an index names; 0 if it names none."""
    data_path = parse_data_path(body.decode("utf-8", "replace").strip())
    return 0 if data_path is None else data_path.number


def parse_schema_path(path: str) -> tuple[str, int, int] | None:
    """Return directory, version and checksum of a schema file; None for another file."""
    directory, _, name = path.rpartition("/")
    parsed = parse_schema_name(name) if directory.endswith("/meta") else None
    return None if parsed is None else (directory.removesuffix("/meta"), *parsed)


def render_metadata(checkpoint_ts: int) -> bytes:
    """Return the content of `metadata`."""
    return f'{{"checkpoint-ts":{checkpoint_ts}}}'.encode()


def parse_metadata(body: bytes) -> int:
    """Return the checkpoint in the file `metadata`; -1 without one."""
    match = _CHECKPOINT.fullmatch(body.strip())
    return -1 if match is None else int(match[1])


def _directory(*names: str) -> str:
    """The directory of a database, or of a table. SinkRefused for a name of TiDB's that stores do not take."""
    for kind, name in zip(("schema", "table"), names, strict=False):
        if reason := _unfit(kind, name):
            raise SinkRefused(
                f"the name {name!r} of {qualified(*names)} cannot be that of a directory: {reason}. Leave it out by a "
                "filter rule"
            )
    return "/".join(names)


def _unfit(kind: str, name: str) -> str:
    """Why the name of a schema or table cannot be that of a directory; empty where it can."""
    if kind == "schema" and name == METADATA:
        return "the file with the checkpoint is called so"
    if name in {"", ".", ".."} or "/" in name:
        return "it would lead to another"
    if not _CONTROLS.isdisjoint(name):
        return "it holds a control character"
    return "it has more than 255 bytes" if len(name.encode("utf-8", "surrogateescape")) > _NAME_BYTES else ""


FORMAT_VERSION: Final = 1
Column = Mapping[str, Any]

_SIZED: Final = INTEGERS | CHARS | BLOBS | {T.BIT, T.YEAR, T.FLOAT, T.DOUBLE, T.DECIMAL}
_FRACTIONS: Final = {T.TIME, T.DATETIME, T.TIMESTAMP, T.FLOAT, T.DOUBLE}
_GO: Final = {
    **{ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"},
    **dict.fromkeys(range(0xD800, 0xE000), "\\ufffd"),
}
"""Characters that Go's JSON escapes and Python's does not; texts that are not UTF-8 have surrogates."""


@dataclass(frozen=True, slots=True)
class SchemaFile:
    r"""One schema file; `columns` is None for that of a database.

        {
            "Table": "orders",  "Schema": "shop",  "Version": 1,      the version of this format
            "TableVersion": 451,                                      the DDL's commit_ts
            "Query": "ALTER TABLE ..",  "Type": 5,                    "" and 0 where there is no DDL
            "TableColumns": [                                         null for a database
                {"ColumnName": "id", "ColumnType": "BIGINT UNSIGNED", "ColumnPrecision": "20",
                 "ColumnNullable": "false", "ColumnIsPk": "true"},
                ..
            ],
            "TableColumnsTotal": 1
        }

        type                                    ColumnPrecision              ColumnScale
        integers, BIT, YEAR                     display width                -
        FLOAT, DOUBLE                           length, 12 or 22 by default  digits, if given
        DECIMAL                                 precision                    scale
        CHAR, BINARY, TEXT and BLOB families    length                       -
        TIME, DATETIME, TIMESTAMP               -                            digits of the fraction, if any
        DATE, JSON, ENUM, SET, VECTOR           -                            -

    Go writes the JSON: four blanks deep, `<`, `>` and `&` as \u003c and the like.  The checksum in a file's name is
    the CRC-32 of a JSON of this form with Version 0, without TableVersion, Query and Type, and with the columns by
    name. ColumnElems, the names of ENUM and SET, are the new architecture's; they change the checksum."""

    schema: str
    table: str
    version: int
    columns: tuple[Column, ...] | None
    query: str = ""
    action: int = 0

    @property
    def path(self) -> str:
        return f"{schema_directory(self.schema, self.table)}/{schema_name(self.version, self.checksum)}"

    @property
    def checksum(self) -> int:
        """CRC-32 of the table's name and columns."""
        columns = sorted(self.columns or (), key=lambda column: str(column["ColumnName"]).encode("utf-8", "replace"))
        return crc32(_printed({**self._name(0), **_counted(columns)}))

    def render(self) -> bytes:
        """Return the bytes of the file."""
        members = {"TableVersion": self.version, "Query": self.query, "Type": self.action}
        return _printed({**self._name(FORMAT_VERSION), **members, **_counted(self.columns)})

    def _name(self, version: int) -> dict[str, Any]:
        return {"Table": self.table, "Schema": self.schema, "Version": version}


def parse_schema_file(body: bytes) -> SchemaFile:
    """Return the content of a schema file. Raises DecodeError for another file."""
    try:
        document = json.loads(body)
        columns = document["TableColumns"]
        return SchemaFile(
            schema=str(document["Schema"]),
            table=str(document["Table"]),
            version=int(document["TableVersion"]),
            columns=None
            if columns is None
            else tuple({**column, "ColumnName": column["ColumnName"]} for column in columns),
            query=str(document["Query"]),
            action=int(document["Type"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise DecodeError(f"no schema file: {error!r:.200}", "storage", 0) from error


def schema_file_columns(table: TableInfo, *, ids: bool = False, elems: bool = True) -> tuple[Column, ...]:
    """Return the columns of `table` for a schema file, virtual ones included; `ids` adds their ids (output-column-id),
    `elems` the names of ENUM and SET."""
    primary = next((index.columns for index in table.indexes if index.primary), ())
    keys = {lowered(name) for name in primary}
    return tuple(
        dict(_column(column, ids=ids, elems=elems, is_key=lowered(column.name) in keys)) for column in table.columns
    )


def _column(column: ColumnInfo, *, ids: bool, elems: bool, is_key: bool) -> Iterator[tuple[str, Any]]:
    kind = column.type
    if ids:
        yield "ColumnId", str(column.id)
    yield "ColumnName", column.name
    name = sql_name(kind.code, binary=kind.charset == "binary" and kind.code in STRINGS).upper()
    yield "ColumnType", f"{name} UNSIGNED" if kind.unsigned else name
    if column.default is not None:
        text = column.default
        yield "ColumnDefault", text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
    precision, scale = _sizes(kind)
    if precision is not None:
        yield "ColumnPrecision", str(precision)
    if scale is not None:
        yield "ColumnScale", str(scale)
    if not column.nullable or is_key:
        yield "ColumnNullable", "false"
    if is_key:
        yield "ColumnIsPk", "true"
    if elems and kind.elems is not None:
        yield "ColumnElems", list(kind.elems)


def _sizes(kind: ColumnType) -> tuple[int | None, int | None]:
    """(precision, scale) of a type, None for one that it does not have."""
    precision = None
    if kind.code in _SIZED:
        length = kind.flen if kind.flen >= 0 else default_length(kind.code, unsigned=kind.unsigned)
        precision = length if length >= 0 else None
    if kind.code is T.DECIMAL:
        return precision, max(kind.decimal, 0)
    return precision, kind.decimal if kind.code in _FRACTIONS and kind.decimal > 0 else None


def _counted(columns: "tuple[Column, ...] | list[Column] | None") -> dict[str, Any]:
    return {"TableColumns": None if columns is None else list(columns), "TableColumnsTotal": len(columns or ())}


def _printed(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=4, ensure_ascii=False).translate(_GO).encode()


_TIMES: Final = frozenset({T.TIME, T.DATETIME, T.TIMESTAMP})
_HIDDEN: Final = "_V$_"
"""What the name of a column begins with that TiDB makes for a key on an expression."""


def table_of_file(file: SchemaFile, named: Collection[str] = ()) -> TableInfo:
    """Return the table of a schema file. DecodeError for invalid columns.

        {"ColumnName": "amt", "ColumnType": "DECIMAL", "ColumnPrecision": "10", "ColumnScale": "2"}   amt decimal(10,2)
        {"ColumnName": "st", "ColumnType": "ENUM", "ColumnElems": ["a", "b"]}                         st enum('a','b')
        {"ColumnName": "st", "ColumnType": "ENUM"}      classic: names without numbers, so a text      st varchar

        {"ColumnName": "_V$_ix_0", "ColumnType": "JSON"}          left out: of a key on an expression, and in no row

    A schema file has no index but the primary key, and not the order of its columns; it lists virtual columns like
    any other, though rows lack them.  The DDLs of the same directory may tell more: `named` are the columns, in lower
    case, that they name, and such a one is not TiDB's own."""
    columns = []
    for number, entry in enumerate(file.columns or (), start=1):
        name = str(entry["ColumnName"])
        if name.startswith(_HIDDEN) and lowered(name) not in named:
            continue
        nullable = entry.get("ColumnNullable") != "false" and entry.get("ColumnIsPk") != "true"
        columns.append(ColumnInfo(number, name, _type(name, entry), nullable=nullable, default=_default(entry)))
    primary = tuple(str(column["ColumnName"]) for column in file.columns or () if column.get("ColumnIsPk") == "true")
    indexes = (IndexInfo(1, "PRIMARY", primary, unique=True, primary=True),) if primary else ()
    return TableInfo(TableName(file.schema, file.table), "", file.version, tuple(columns), indexes)


def mysql_type(kind: ColumnType) -> str:
    """Return a type as SQL spells it, with all known parameters."""
    name = sql_name(kind.code, binary=kind.charset == "binary" and kind.code in STRINGS)
    if kind.code in NAMED and kind.elems is not None:
        return f"{name}({','.join(map(_quoted, kind.elems))})"
    sizes: tuple[int, ...] = ()
    if kind.code == T.DECIMAL or (kind.code in FLOATS and kind.decimal > 0):
        sizes = (kind.flen, max(kind.decimal, 0))
    elif kind.code in CHARS or kind.code == T.BIT:
        sizes = (kind.flen,)
    elif kind.code in _TIMES and kind.decimal > 0:
        sizes = (kind.decimal,)
    parameters = f"({','.join(map(str, sizes))})" if sizes and sizes[0] >= 0 else ""
    return f"{name}{parameters}{' unsigned' if kind.unsigned else ''}"


def _quoted(element: str) -> str:
    return "'" + element.replace("\\", "\\\\").replace("'", "''") + "'"


def _default(entry: Mapping[str, Any]) -> str | None:
    value = entry.get("ColumnDefault")
    return None if value is None else str(value)


def _type(column: str, entry: Column) -> ColumnType:
    word = str(entry.get("ColumnType", "")).lower()
    name = word.removesuffix(" unsigned")
    code = NAMES.get(name, T.VARCHAR)
    try:
        flen, decimal = int(entry.get("ColumnPrecision") or -1), int(entry.get("ColumnScale") or -1)
    except ValueError as error:
        raise DecodeError(f"column {column!r} with a size that is no number", "storage", 0) from error
    elems = entry.get("ColumnElems")
    if code in NAMED and not isinstance(elems, list):
        return ColumnType(T.VARCHAR)
    if code == T.DECIMAL and decimal < 0:
        decimal = 0
    return ColumnType(
        code,
        flen=-1 if code in NAMED else flen,
        decimal=decimal,
        unsigned=name != word,
        charset="utf8mb4" if code in STRINGS | NAMED and not ("binary" in name or "blob" in name) else "binary",
        elems=tuple(map(str, elems)) if code in NAMED and elems is not None else None,
    )
