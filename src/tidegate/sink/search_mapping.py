"""Mappings and names of the search sink: searchable fields of a table, names of aliases, indexes and documents.

    column                         field                                   found by
    CHAR, VARCHAR                  text, with .keyword                     words
    TEXT                           text                                    words
    ENUM, SET, TIME                keyword                                 the whole value
    integers, YEAR                 long; unsigned_long if unsigned         value, range
    BIT                            unsigned_long                           value, range
    FLOAT, DOUBLE, DECIMAL         float, double, double                   value, range; the document keeps every digit
    DATE, DATETIME, TIMESTAMP      date; a zero date is kept, not found    value, range
    JSON                           object that is kept and not indexed
    BINARY, BLOB, VECTOR           none: kept and not indexed

    [[index]]                                   rules of the user; the first one that matches a table applies
    matcher = ["shop.*"]
    columns = "text"                            "all", "text" (words alone), or a list of names
    fields.title = {analyzer = "english"}       added to the field, or replacing it if it has a type
    settings = {number_of_replicas = 2}         of the index

A document has all columns of its row, whatever is searched, because a DDL fills the next index from the documents of
the last one.  In field names a dot, which is a path, and a leading `_`, which may be the server's own, are written %XX.

    alias      shop.orders                               what readers search; it moves from index to index
    index      shop.orders-470606747354005504.1.0-7      of the DDL of that ts, of the writer of epoch 7
    document   17, or 1:a%3Ab                            the values of the row's key

In names of schemas and tables everything but a-z, 0-9, `_` and `-` is written %XX, in lower case as TiDB compares them,
so that no two tables share a name.  Long names end with a digest.

Source: OpenSearch and Elasticsearch documentation, "Field types", "Mapping parameters"; OpenSearch documentation,
"Create index", index naming restrictions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from tidegate.engine.filter import TableFilter
from tidegate.model.event import Value
from tidegate.model.mysql import CHARS, INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.option import TIME_MAX_MS, Local, Option, SslCa, SslCert, SslKey
from tidegate.model.table import ColumnType, TableInfo, TableName
from tidegate.sink.row_id import row_id

FieldMapping: TypeAlias = Mapping[str, Any]
_DATE: Final = "uuuu-MM-dd"
_FRACTIONS: Final = "".join(f"[.{'S' * digits}]" for digits in range(6, 0, -1))


def _lenient(kind: str, **more: str) -> FieldMapping:
    """A field that leaves a value of its own alone that it cannot read: the document has it, the index does not."""
    return {"type": kind, **more, "ignore_malformed": True}


_LONG: Final = _lenient("long")
_UNSIGNED: Final = _lenient("unsigned_long")
_WHOLE: Final[FieldMapping] = {"type": "keyword"}
_MOMENT: Final = _lenient("date", format=f"{_DATE} HH:mm:ss{_FRACTIONS}")
_TYPES: Final[Mapping[T, FieldMapping]] = {
    **dict.fromkeys(INTEGERS | {T.YEAR}, _LONG),
    T.BIT: _UNSIGNED,
    T.FLOAT: _lenient("float"),
    T.DOUBLE: _lenient("double"),
    T.DECIMAL: _lenient("double"),
    T.DATE: _lenient("date", format=_DATE),
    **dict.fromkeys((T.DATETIME, T.TIMESTAMP), _MOMENT),
    **dict.fromkeys((T.TIME, T.ENUM, T.SET), _WHOLE),
    T.JSON: {"type": "object", "enabled": False},
}
_WORDS: Final[FieldMapping] = {"type": "text"}
_NAME: Final[FieldMapping] = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}


IndexPrefix = Annotated[str, Option("index-prefix", "prefix of the names that readers search")]
MappingFile = Annotated[
    str, Option("mapping", "file of mapping rules: indexed columns and their types", local=Local.FILE)
]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Servers of one cluster to write, and how; times in seconds. Printing it shows no password."""

    hosts: tuple[tuple[str, int], ...]
    user: str = ""
    password: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    tls: bool = False
    prefix: IndexPrefix = ""
    mapping: MappingFile = ""
    refresh: Annotated[
        str, Option("refresh-interval", "delay until writes become searchable; `-1`: never automatically")
    ] = "1s"
    bulk_rows: Annotated[int, Option("bulk-rows", "maximum rows of a bulk request", low=1, high=100000)] = 2_000
    bulk_bytes: Annotated[
        int, Option("bulk-size", "maximum bytes of a bulk request, except for a single row", low=1)
    ] = 8 << 20
    tombstone_s: Annotated[
        float, Option("tombstone-ttl", "retention of versions of deleted rows", high=TIME_MAX_MS)
    ] = 3_600.0
    timeout_s: Annotated[float, Option("timeout", "timeout of a response", default="60s", low=1, high=TIME_MAX_MS)] = (
        60.0
    )
    api_key_file: Annotated[
        str, Option("api-key-file", "file with an API key, instead of user and password", local=Local.TOKEN)
    ] = ""
    ssl_ca: SslCa = ""
    ssl_cert: SslCert = ""
    ssl_key: SslKey = ""
    ignored: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The servers, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)

    @property
    def identity(self) -> str:
        return self.address

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({f"{self.address}/{self.prefix}"})

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about an address that works, but perhaps not as intended."""
        if not self.tls and (self.user or self.api_key_file):
            return ("sink-uri: without +ssl, rows and password are sent in clear",)
        return ()


class IndexRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user's settings for the indexes of some tables."""

    matcher: tuple[str, ...]
    columns: Literal["all", "text"] | tuple[str, ...] = "all"
    fields: dict[str, dict[str, Any]] = {}
    settings: dict[str, Any] = {}


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rules."""

    index: tuple[IndexRule, ...] = ()


class IndexMapping(msgspec.Struct, frozen=True):
    """The fields of an index by their names, and its settings."""

    fields: dict[str, FieldMapping]
    settings: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The mapping as JSON; indexes of equal texts are alike."""
        return msgspec.json.encode(self, order="sorted").decode()


def mapping_of(table: TableInfo, rules: Sequence[IndexRule]) -> IndexMapping:
    """Return the mapping of a table."""
    matching = (rule for rule in rules if TableFilter.parse(rule.matcher).matches(*table.name))
    rule = next(matching, IndexRule(()))
    own = {lowered(name): field for name, field in rule.fields.items()}
    listed = {lowered(name) for name in rule.columns} if isinstance(rule.columns, tuple) else None
    fields: dict[str, FieldMapping] = {}
    for column in table.columns:
        name, field = lowered(column.name), _default_field(column.type)
        searched = name in listed if listed is not None else rule.columns == "all" or field.get("type") == "text"
        if name in own:
            field = own[name] if "type" in own[name] else {**field, **own[name]}
        if field and not column.virtual and (searched or name in own):
            fields[field_name(column.name)] = field
    return IndexMapping(fields, rule.settings)


def field_name(column: str) -> str:
    """Return the name that a column has in documents."""
    name = column.replace("%", "%25").replace(".", "%2e")
    return f"%5f{name[1:]}" if name.startswith("_") else name


def _default_field(kind: ColumnType) -> FieldMapping:
    if kind.code in STRINGS:
        if kind.charset == "binary":
            return {}
        return _NAME if kind.code in CHARS else _WORDS
    field = _TYPES.get(kind.code, {})
    return _UNSIGNED if field is _LONG and kind.unsigned else field


NAME_MAX: Final = 160
ID_MAX_BYTES: Final = 512
_ESCAPED: Final = re.compile(rb"[^a-z0-9_-]")
_EPOCH: Final = re.compile(r"-(\d+)$")


def alias_of(name: TableName, prefix: str = "") -> str:
    """Return the name by which readers find a table."""
    parts = (lowered(part).encode("utf-8", "surrogatepass") for part in name)
    text = prefix + ".".join(_ESCAPED.sub(lambda hit: b"%%%02x" % hit[0][0], part).decode() for part in parts)
    text = f"%{ord(text[0]):02x}{text[1:]}" if text[0] in "_-" else text
    return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX - 65]}-{_digest(text.encode())}"


def index_name(alias: str, begin: str, epoch: int) -> str:
    """Return the name of an index; `begin` is the position at which it begins."""
    return f"{alias}-{begin}-{epoch}"


def epoch_of(index: str) -> int:
    """Return the epoch of the writer that made an index."""
    match = _EPOCH.search(index)
    return int(match[1]) if match else 0


def write_alias(index: str, epoch: int) -> str:
    """Return the name by which the writer of an epoch writes an index: a later one takes it away."""
    return f"{index}.w{epoch}"


def document_id(values: Sequence[Value]) -> str:
    """Return the name of the document of the row whose key columns have these values."""
    name = row_id(values)
    try:
        text = name.decode()
    except UnicodeDecodeError:  # a text that is no UTF-8
        text = ""
    return text if text and len(name) <= ID_MAX_BYTES else f"sha256:{_digest(name)}"


def _digest(text: bytes) -> str:
    return sha256(text).hexdigest()
