"""Partitioning: how a table is cut, and the definitions of its partitions."""

from typing import Final

from tidegate.schema.restore.reader import SqlReader, placement
from tidegate.schema.restore.template import by_words, one_of, template


def partitioning(r: SqlReader) -> str:
    """Return what follows PARTITION BY."""
    text, counted = _method(r)
    if r.accept("PARTITIONS"):
        counted = str(r.integer())
    below, below_count = "", ""
    if r.accept("SUBPARTITION BY"):
        below, _ = _method(r)
        if r.accept("SUBPARTITIONS"):
            below_count = str(r.integer())
    parts = _definitions(r) if r.is_sign("(") else ""
    if parts and below:
        below_count = str(_subpartitions(parts) or below_count)
    if counted and not parts:
        text += f" PARTITIONS {counted}"
    if below:
        text += f" SUBPARTITION BY {below}" + (f" SUBPARTITIONS {below_count}" if below_count else "")
    text += f" {parts}" if parts else ""
    return "PARTITION BY " + text + update_indexes(r)


def _subpartitions(parts: str) -> int:
    first = parts.find("(SUBPARTITION ")
    return parts[first : parts.find("),PARTITION", first)].count("SUBPARTITION `") if first >= 0 else 0


def _method(r: SqlReader) -> tuple[str, str]:
    """Return the method with its columns, and how many partitions it makes when nobody says."""
    linear = "LINEAR " if r.accept("LINEAR") else ""
    text = _KINDS(r)
    return linear + text, "1" if text.startswith(("HASH", "KEY")) else ""


_KINDS: Final = one_of(
    by_words(
        "SYSTEM_TIME[ INTERVAL expression word][ LIMIT integer]",
        "KEY[ ALGORITHM = integer] ([path,..])",
        "RANGE COLUMNS|RANGE FIELDS: 'RANGE COLUMNS '([path,..])interval",
        "LIST COLUMNS|LIST FIELDS: 'LIST COLUMNS '([path,..])",
        "HASH (expression)",
        "RANGE (expression)interval",
        "LIST (expression)",
        interval=template(
            "[ INTERVAL (expression[ word])"
            "[ FIRST PARTITION LESS THAN (expression) LAST PARTITION LESS THAN (expression)]"
            "[ NULL PARTITION][ MAXVALUE PARTITION]]"
        ),
    )
)


def _values(r: SqlReader) -> str:
    return f" {found}" if (found := r.first_of(_VALUES)) else ""


def _in(r: SqlReader) -> str:
    values = _IN(r)
    return "DEFAULT" if values == "(DEFAULT)" else f"VALUES IN {values}"


def _value(r: SqlReader) -> str:
    if word := r.accept("MAXVALUE", "DEFAULT"):
        return word
    return _tuple(r) if r.is_sign("(") else r.read_expression()


def _tuple(r: SqlReader) -> str:
    at = r.at
    text = _IN(r)
    if r.is_sign(",") or r.is_sign(")"):
        return text
    r.at = at
    return r.read_expression()


_IN: Final = template("(value, ..)", value=_value)
_VALUES: Final = by_words(
    "VALUES LESS THAN MAXVALUE: 'VALUES LESS THAN (MAXVALUE)'",
    "VALUES LESS THAN (value, ..)",
    "VALUES IN: values_in",
    "DEFAULT",
    "HISTORY",
    "CURRENT",
    value=_value,
    values_in=_in,
)


def _options(r: SqlReader) -> str:
    parts: list[str] = []
    while (part := r.first_of(_OPTIONS)) is not None:
        parts.append(part)
    return "".join(f" {part}" for part in parts)


_OPTIONS: Final = by_words(
    "STORAGE ENGINE|ENGINE: 'ENGINE' = text",
    "COMMENT = string",
    "DATA DIRECTORY = string",
    "INDEX DIRECTORY = string",
    "MAX_ROWS = integer",
    "MIN_ROWS = integer",
    "TABLESPACE = name",
    "NODEGROUP = integer",
    "INSERT_METHOD = upper",
    "PLACEMENT POLICY: placement",
    placement=placement,
)
definition: Final = template(
    "PARTITION name~values~options[ (subpartition,..)]",
    values=_values,
    options=_options,
    subpartition=template("SUBPARTITION name~options", options=_options),
)
"""The definition of a partition."""
_definitions: Final = template("(definition,..)", definition=definition)
update_indexes: Final = template("[ UPDATE INDEXES (index,..)]", index=template("name {GLOBAL|LOCAL}"))
"""UPDATE INDEXES (..), after a blank, if it stands here."""
