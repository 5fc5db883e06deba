"""What of a table can be searched, and how: its mapping, made of its definition and of the user's rules. Pure.

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

    [[index]]                                   a file of rules; the first one that takes a table counts
    matcher = ["shop.*"]
    columns = "text"                            "all", "text" (words alone), or a list of names
    fields.title = {analyzer = "english"}       added to the field, in its place if it has a type
    settings = {number_of_replicas = 2}         of the index

A document has all columns of its row, whatever is searched: a DDL makes the next index of what the last one holds.

A dot in a field's name is a path, and a name that begins with `_` may be the server's own: both are written %XX.

Source: OpenSearch and Elasticsearch documentation, "Field types", "Mapping parameters".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tidegate.engine.filter import TableFilter
from tidegate.model.mysql import CHARS, INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableInfo

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


class IndexRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user wants of the indexes of some tables."""

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
    found = (rule for rule in rules if TableFilter.parse(rule.matcher).matches(table.name.schema, table.name.table))
    rule = next(found, IndexRule(()))
    own = {lowered(name): asked for name, asked in rule.fields.items()}
    fields: dict[str, FieldMapping] = {}
    for column in table.columns:
        asked, usual = own.get(lowered(column.name)), _usual(column.type)
        if column.virtual or (asked is None and not _is_wanted(rule, column.name, usual)):
            continue
        fields[field_name(column.name)] = (asked or {}) if "type" in (asked or {}) else {**usual, **(asked or {})}
    return IndexMapping({name: field for name, field in fields.items() if field}, rule.settings)


def field_name(column: str) -> str:
    """Return the name that a column has in documents."""
    name = column.replace("%", "%25").replace(".", "%2e")
    return f"%5f{name[1:]}" if name.startswith("_") else name


def _usual(kind: ColumnType) -> FieldMapping:
    if kind.code in STRINGS:
        if kind.charset == "binary":
            return {}
        return _NAME if kind.code in CHARS else _WORDS
    found = _TYPES.get(kind.code, {})
    return _UNSIGNED if found is _LONG and kind.unsigned else found


def _is_wanted(rule: IndexRule, name: str, usual: FieldMapping) -> bool:
    if isinstance(rule.columns, tuple):
        return lowered(name) in map(lowered, rule.columns)
    return rule.columns == "all" or usual.get("type") == "text"
